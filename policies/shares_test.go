package policies

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/vcpu"
)

// TestShares runs the scenarios in testdata/shares on a model of an accelerator.
//
//	policy NAME [paper] [tick D] [cap D] [yield D]
//	domain ID: credits N, kernels D D…, [burst N, pause D, [lapse D],] [from D, to D] [a promise]
//	         64 alike are written 1-64; without a burst it is always backlogged
//	         ·, cpu N: its CPU credits
//	hypervisor N         schedules the domains on so many CPUs, by CPU credits
//	blind                idle time is not measured
//	latency D            from the scheduler's timer to the gates
//	at D: credits ID N
//	share D D: ID PERCENT, … ± POINTS
//	                     of accelerator time between two instants
//	busy D D ± D         the engine idles no longer than that in between
//	wait ID < D          no request waits longer from its arrival to its start
func TestShares(t *testing.T) {
	files, err := filepath.Glob("testdata/shares/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios found", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, part := range strings.Split("\n"+string(text), "\npolicy ") {
				if i > 0 {
					runScenario(t, "policy "+part)
				}
			}
		})
	}
}

// scenario is a model and its expected results.
type scenario struct {
	t *testing.T
	m *model
}

func runScenario(t *testing.T, text string) {
	s := &scenario{t: t}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if words := split(line); len(words) > 0 {
			s.line(words)
		}
	}
	if t.Failed() {
		t.Logf("in\n%s", text)
		t.FailNow()
	}
}

func split(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" :,\n", r) })
}

func (s *scenario) line(words []string) {
	switch rest := words[1:]; words[0] {
	case "policy":
		s.m = newModel(policyOf(s.t, rest), 1)
	case "hypervisor":
		s.m.cpus = &cpus{n: number(s.t, rest[0])}
	case "blind":
		s.m.blind = true
	case "latency":
		s.m.latency = length(s.t, rest[0])
	case "domain":
		s.domains(rest)
	case "at":
		s.credits(rest)
	case "share":
		s.share(rest)
	case "busy":
		s.busy(rest)
	case "wait":
		s.wait(rest)
	default:
		s.t.Fatalf("unknown line %q", words)
	}
}

func (s *scenario) domains(words []string) {
	first, last, many := strings.Cut(words[0], "-")
	if !many {
		last = first
	}
	for id := number(s.t, first); id <= number(s.t, last); id++ {
		s.m.add(s.client(id, words[1:]))
	}
}

func (s *scenario) client(id int, words []string) *client {
	c := &client{id: ID(id)}
	for i := 0; i+1 < len(words); i++ {
		switch value := words[i+1]; words[i] {
		case "credits":
			c.credits = number(s.t, value)
		case "cpu":
			c.cpu = number(s.t, value)
		case "burst":
			c.burst = number(s.t, value)
		case "pause":
			c.think = length(s.t, value)
		case "lapse":
			c.lapse = length(s.t, value)
		case "from":
			c.from = Time(length(s.t, value))
		case "to":
			c.to = Time(length(s.t, value))
		case "kernels":
			for ; i+1 < len(words) && words[i+1][0] <= '9'; i++ {
				c.kernels = append(c.kernels, length(s.t, words[i+1]))
			}
			continue
		default:
			promise(s.t, &c.promise, words[i], value)
		}
		i++
	}
	return c
}

func (s *scenario) credits(words []string) {
	d := Domain{ID: ID(number(s.t, words[2])), Credits: vcpu.Credits(number(s.t, words[3]))}
	s.m.scripts = append(s.m.scripts, script{Time(length(s.t, words[0])), func(m *model) {
		m.step(Event{Kind: Attach, Domain: d})
	}})
}

func (s *scenario) share(words []string) {
	s.m.run(Time(length(s.t, words[0])))
	s.m.measure()
	s.m.run(Time(length(s.t, words[1])))
	got := s.m.shares()
	off := s.decimal(words[len(words)-1])
	for i := 2; words[i] != "±"; i += 2 {
		id, want := number(s.t, words[i]), s.decimal(words[i+1])
		if is := got[ID(id)]; math.Abs(is-want) > off {
			s.t.Errorf("domain %d got %.2f %%, not %.2f ± %.2f, between %s and %s", id, is, want, off, words[0], words[1])
		}
	}
}

func (s *scenario) busy(words []string) {
	s.m.run(Time(length(s.t, words[0])))
	before := s.m.gaps
	s.m.run(Time(length(s.t, words[1])))
	if got := s.m.gaps.Sub(before); got > length(s.t, words[3]) {
		s.t.Errorf("the engine idled %v between %s and %s", got, words[0], words[1])
	}
}

func (s *scenario) wait(words []string) {
	if got := s.m.longest[ID(number(s.t, words[0]))]; got >= length(s.t, words[2]) {
		s.t.Errorf("a request of domain %s waited %v", words[0], got)
	}
}

func (s *scenario) decimal(word string) float64 {
	f, err := strconv.ParseFloat(word, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// Time that a domain used while it was alone is no debt.
func TestAloneOwesNobody(t *testing.T) {
	for _, name := range Names() {
		for _, mode := range []Mode{Production, Paper} {
			m := newModel(mustNew(t, name, mode), 1)
			m.add(&client{id: 1, kernels: []time.Duration{2 * ms}})
			m.add(&client{id: 2, kernels: []time.Duration{2 * ms}, from: Time(10 * time.Second)})
			m.run(Time(10 * time.Second))
			m.measure()
			m.run(Time(12 * time.Second))
			if got := m.shares()[1]; got < 45 || got > 55 {
				t.Errorf("%s, %v mode: after 10 s alone it gets %.1f %% beside its equal", name, mode, got)
			}
		}
	}
}

// TestLongKernelsGetShares: programs that submit a kernel when the one before has ended get their shares,
// also where each kernel takes several turns: the rest of a kernel waits for a turn like a new one.
func TestLongKernelsGetShares(t *testing.T) {
	for name, most := range map[string]float64{"accc": 0.5, "lag": 0.5, "credit": 2, "band": 2, "drr": 9} { // drr saves up for whole kernels
		t.Run(name, func(t *testing.T) {
			m := newModel(mustNew(t, name, Production), 1)
			m.slice, m.beat = 2*ms, 10*ms
			for id, credits := range []int{256, 768} {
				m.add(&client{id: ID(id + 1), credits: credits, cpu: 256, kernels: of(150 * ms), lone: true})
			}
			m.run(Time(time.Second))
			m.measure()
			m.run(Time(31 * time.Second))
			if got := m.shares()[1]; math.Abs(got-25) > most {
				t.Errorf("the domain with a quarter of the credits got %.1f %%, want 25 ± %g", got, most)
			}
		})
	}
}
