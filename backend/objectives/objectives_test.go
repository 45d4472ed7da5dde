package objectives

import (
	"bufio"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/history"
	"pegasus/backend/meter"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A scenario is a file of lines:
//
//	targets share=0.5 wait=10ms rate=100 window=1m
//	for 40s used=0.5 waits=0.5 others=0.5 calls=100 each=2ms
//	expect share violated 0.25
//	clock -24h
//
// used, waits and others are parts of the time; calls are per second, and each of them waits for that long. expect has
// the objective, its state and, optionally, the measured value.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var s scenario
			s.now = start
			for n, lines := 1, bufio.NewScanner(f); lines.Scan(); n++ {
				text, _, _ := strings.Cut(lines.Text(), "#")
				if err := s.line(strings.Fields(text)); err != nil {
					t.Errorf("%s:%d: %s: %v", file, n, lines.Text(), err)
				}
			}
		})
	}
}

type scenario struct {
	Tracker
	now     time.Time
	want    Targets
	changes []string
}

func (s *scenario) line(words []string) error {
	if len(words) == 0 {
		return nil
	}
	given := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		given[k] = v
	}
	number := func(key string) float64 { f, _ := strconv.ParseFloat(given[key], 64); return f }
	span := func(key string) time.Duration { d, _ := time.ParseDuration(given[key]); return d }
	switch words[0] {
	case "targets":
		s.want = Targets{Share: number("share"), WaitP99: span("wait"), Rate: number("rate"), Window: span("window")}
	case "for":
		length, err := time.ParseDuration(words[1])
		if err != nil {
			return err
		}
		part := func(key string) time.Duration { return time.Duration(number(key) * float64(history.Interval)) }
		for range length / history.Interval {
			s.now = s.now.Add(history.Interval)
			r := history.Reading{Elapsed: history.Interval, Used: part("used"), Stood: part("waits"), All: part("used") + part("others"),
				Calls: uint64(number("calls") * history.Interval.Seconds())}
			r.Waits = waits(span("each"), r.Calls)
			for _, c := range s.Step(s.now, s.want, &r) {
				s.changes = append(s.changes, c.Name+" "+c.To)
			}
		}
	case "clock": // the host's clock is set
		by, err := time.ParseDuration(words[1])
		s.now = s.now.Add(by)
		return err
	case "expect":
		for _, o := range s.Show().Objectives {
			if o.Name != words[1] {
				continue
			}
			got := fmt.Sprintf("%s %.2f kept for %.2f of %v", o.State, o.Measured, o.Kept, time.Duration(o.Judged))
			if !strings.HasPrefix(got, strings.Join(words[2:], " ")) {
				return fmt.Errorf("got %s", got)
			}
			return nil
		}
		return fmt.Errorf("there is no such objective")
	case "changes":
		got := strings.Join(s.changes, ", ")
		s.changes = nil
		if want := strings.Join(words[1:], " "); got != want {
			return fmt.Errorf("got %s", got)
		}
	default:
		return fmt.Errorf("no such line")
	}
	return nil
}

// waits returns n waits of a length.
func waits(each time.Duration, n uint64) (w meter.Waits) {
	i := 0
	for 1<<i <= each {
		i++
	}
	w[i] = n
	return w
}

// For any readings and changes of targets: states and reported changes agree, an objective that the domain meets in
// each reading is not violated, and one of an idle domain is not judged.
func TestAnyReadings(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var tr Tracker
		now, targets := start, Targets{Share: 0.3, WaitP99: 10 * time.Millisecond, Rate: 50}
		state := map[string]string{}
		quiet, good := time.Duration(0), time.Duration(0)
		busy := true
		for range 300 {
			if rnd.IntN(100) == 0 {
				targets.Window = time.Duration(10+rnd.IntN(100)) * time.Second
				state, quiet, good = map[string]string{}, 0, 0
			}
			r := history.Reading{Elapsed: time.Duration(rnd.IntN(4e9) + 1)}
			if rnd.IntN(80) == 0 {
				busy = !busy
			}
			if busy {
				r.Used = time.Duration(rnd.Int64N(int64(r.Elapsed) + 1))
				r.Stood = time.Duration(rnd.Int64N(int64(r.Elapsed) + 1))
				if r.All = r.Used; seed%2 == 0 {
					r.All = min(r.Used+time.Duration(rnd.Int64N(int64(r.Elapsed)+1)), r.Elapsed)
				}
				r.Calls = uint64(rnd.IntN(1000))
				r.Waits = waits(time.Duration(rnd.Int64N(int64(20*time.Millisecond))), r.Calls)
			}
			if r.Used == 0 && r.Stood == 0 {
				quiet += r.Elapsed
			} else {
				quiet = 0
			}
			if r.Used >= r.All { // it had all time there was
				good += r.Elapsed
			} else {
				good = 0
			}
			now = now.Add(r.Elapsed)
			for _, c := range tr.Step(now, targets, &r) {
				if c.To != c.State || c.From == c.To || state[c.Name] != "" && state[c.Name] != c.From {
					t.Fatalf("seed %d: change %+v after %q", seed, c, state[c.Name])
				}
				state[c.Name] = c.To
			}
			window := cmp.Or(targets.Window, DefaultWindow)
			const late = 20 * time.Second // the oldest slot and the confirmations
			worst := control.ObjectiveNone
			for _, o := range tr.Show().Objectives {
				if want := state[o.Name]; want != "" && want != o.State {
					t.Fatalf("seed %d: %s is %s, the changes came to %s", seed, o.Name, o.State, want)
				}
				if o.Kept < 0 || o.Kept > 1 || o.Judged < 0 || o.Since.After(now) {
					t.Fatalf("seed %d: %+v", seed, o)
				}
				if quiet > window+late && o.State != control.ObjectiveIdle {
					t.Fatalf("seed %d: %s is %s after %v without work", seed, o.Name, o.State, quiet)
				}
				if o.Name == "share" && good > window+late && o.State == control.ObjectiveViolated {
					t.Fatalf("seed %d: a violated share after %v with all the time", seed, good)
				}
				if rank[o.State] > rank[worst] {
					worst = o.State
				}
			}
			if got := tr.Show().State; got != worst {
				t.Fatalf("seed %d: the domain is %s, its worst objective %s", seed, got, worst)
			}
		}
	}
}

// Each cause has its line, and the last line gives the scheduler's part.
func TestCauses(t *testing.T) {
	violated := control.ObjectiveState{Name: "share", State: control.ObjectiveViolated, Target: 0.5}
	for _, c := range []struct {
		what string
		d    control.Domain
		s    Surroundings
		want []string
	}{
		{"too few credits", control.Domain{Name: "a", Accelerator: "gpu", DomainShare: control.DomainShare{Entitled: 0.25}}, Surroundings{Policy: "accc", Promised: 0.5},
			[]string{"its credits come to 25.0 %", "policy accc keeps to the credits"}},
		{"too many promises", control.Domain{Accelerator: "gpu", DomainShare: control.DomainShare{Entitled: 0.25}}, Surroundings{Policy: "slaf", Promised: 1.2, Raises: true},
			[]string{"add up to 120 %", "gives it extra ticks"}},
		{"a policy without shares", control.Domain{}, Surroundings{Policy: "fifo"}, []string{"owes no domain", "keeps to"}},
		{"steal and eviction", control.Domain{DomainShare: control.DomainShare{Entitled: 0.5}, DomainCPU: control.DomainCPU{Steal: 0.3}, DomainSwap: control.DomainSwap{Swapped: 5}},
			Surroundings{Policy: "accc"}, []string{"30 %", "5 bytes", "keeps to"}},
		{"its own idleness", control.Domain{DomainShare: control.DomainShare{Entitled: 0.5}, Spent: control.Spent{Window: 2e9, Idle: 0.4}}, Surroundings{Policy: "accc"},
			[]string{"requested nothing for 40 %", "keeps to"}},
		{"waits for others", control.Domain{DomainShare: control.DomainShare{Entitled: 0.5, Share: 0.5}, Spent: control.Spent{Window: 2e9, Turn: 0.6}}, Surroundings{Policy: "lag"},
			[]string{"more credits", "keeps to"}},
		{"waits behind its own work", control.Domain{DomainShare: control.DomainShare{Entitled: 1, Share: 1}, Spent: control.Spent{Window: 2e9, Turn: 0.6}}, Surroundings{Policy: "lag"},
			[]string{"its own earlier ones", "keeps to"}},
		{"nothing", control.Domain{DomainShare: control.DomainShare{Entitled: 0.5}}, Surroundings{Policy: "accc"}, []string{"no cause outside", "keeps to"}},
	} {
		o := violated
		if c.d.Spent.Turn > 0 {
			o.Name = "wait_p99"
		}
		got := Causes(o, &c.d, c.s)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%s: %q, want %q", c.what, got[i], c.want[i])
			}
		}
	}
}

// BenchmarkStep is one reading of one domain.
func BenchmarkStep(b *testing.B) {
	var tr Tracker
	r := history.Reading{Elapsed: history.Interval, Used: time.Second, All: history.Interval, Waits: meter.Waits{11: 100}}
	now := start
	for b.Loop() {
		now = now.Add(history.Interval)
		tr.Step(now, Targets{Share: 0.5, WaitP99: time.Millisecond}, &r)
	}
}
