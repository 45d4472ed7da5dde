package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// sharer is a backlogged domain.
type sharer struct {
	name     string
	credits  int
	kernelMs float64
}

func (s sharer) String() string { return fmt.Sprintf("%s:%d:%gms", s.name, s.credits, s.kernelMs) }

// queue returns how many kernels the program keeps queued: two, or 200 ms of them. A host with its processors taken lets
// the program wait for up to 150 ms, and a domain without work has no claim to that time.
func (s sharer) queue() string { return fmt.Sprint(max(2, int(math.Ceil(200/s.kernelMs)))) }

func shareConfig(policy, mode string, sharers []sharer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[[accelerator]]\nname = \"a0\"\ntype = \"soft\"\ncores = 1\nmemory = \"1GiB\"\npolicy = %q\nmode = %q\n", policy, mode)
	for _, s := range sharers {
		fmt.Fprintf(&b, "[[domain]]\nname = %q\ncredits = %d\n", s.name, s.credits)
	}
	return b.String()
}

// run starts a sharer's program.
func (h *host) run(s sharer) {
	steps := max(1, math.Round(s.kernelMs*stepsPerMs(h.t)))
	background(h.t.(*testing.T), h.bench(s.name, "busy", "--seconds", "3600", "--queue", s.queue(), "--steps", fmt.Sprint(steps), "--no-check"))
}

// stepsPerMs returns the steps of work that take a core of this machine a millisecond, measured once on an otherwise
// unused accelerator: beside other domains a program would include its waiting for them.
func stepsPerMs(t testing.TB) float64 {
	speed.Do(func() {
		h := startHost(t, "[[accelerator]]\nname = \"a0\"\ntype = \"soft\"\ncores = 1\nmemory = \"1GiB\"\n")
		var report struct {
			Steps float64 `json:"steps"`
		}
		const long = 5
		out, err := h.bench("trial", "busy", "--kernel-ms", fmt.Sprint(long), "--iterations", "1", "--json").Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		speed.steps = report.Steps / long
	})
	return speed.steps
}

var speed struct {
	sync.Once
	steps float64
}

// inParallel runs a test of shares beside other tests of shares, after the tests that need the machine for themselves.
// Each test's accelerator computes on one core, and other load on the host lengthens the engine time of all domains of
// an accelerator alike, so that their shares stay the same. The speed of a core is measured before, while no other test
// runs.
func inParallel(t *testing.T) {
	t.Helper()
	stepsPerMs(t)
	t.Parallel()
}

// await waits until all sharers use the accelerator.
func (h *host) await(sharers []sharer) {
	h.t.Helper()
	eventually(h.t, soon, "all domains compute", func() bool {
		d := h.domains()
		for _, s := range sharers {
			if d[s.name].GPU == 0 {
				return false
			}
		}
		return true
	})
}

// measure returns each domain's part, in percent, of the time that all used in d.
func (h *host) measure(d time.Duration) map[string]float64 {
	h.t.Helper()
	before := h.domains()
	time.Sleep(d)
	after := h.domains()
	var sum float64
	used := make(map[string]float64)
	for name, a := range after {
		used[name] = float64(a.GPU - before[name].GPU)
		sum += used[name]
	}
	for name := range used {
		used[name] *= 100 / sum
	}
	return used
}

// measuring returns how long shares are measured: 12 s, or 6 s with -short.
func measuring() time.Duration {
	if testing.Short() {
		return 6 * time.Second
	}
	return 12 * time.Second
}

// over returns measure as a function, for checkShares.
func (h *host) over(d time.Duration) func() map[string]float64 {
	return func() map[string]float64 { return h.measure(d) }
}

// checkShares measures the parts and compares them with the expected parts.
func checkShares(t *testing.T, measure func() map[string]float64, want map[string]float64, tolerance float64) {
	t.Helper()
	steadily(t, func() error { return beside(t, measure(), want, tolerance) })
}

// beside returns an error with the parts outside the tolerance.
func beside(t *testing.T, got, want map[string]float64, tolerance float64) (wrong error) {
	t.Helper()
	for _, n := range slices.Sorted(maps.Keys(want)) {
		t.Logf("%-8s want %5.2f %%  got %5.2f %%", n, want[n], got[n])
		if math.Abs(got[n]-want[n]) > tolerance {
			wrong = errors.Join(wrong, fmt.Errorf("%s got %.2f %% of the accelerator, want %.2f ± %g", n, got[n], want[n], tolerance))
		}
	}
	return wrong
}

// steadily fails unless the measurement is right. Other load on the host may disturb a measurement: after a wrong one
// two others have to be right.
func steadily(t *testing.T, right func() error) {
	t.Helper()
	first := right()
	for i := 0; first != nil && i < 2; i++ {
		if err := right(); err != nil {
			t.Fatalf("%v; and before that %v", err, first)
		}
	}
}

func proportional(sharers []sharer) map[string]float64 {
	var sum float64
	for _, s := range sharers {
		sum += float64(s.credits)
	}
	want := make(map[string]float64)
	for _, s := range sharers {
		want[s.name] = 100 * float64(s.credits) / sum
	}
	return want
}

func equal(sharers []sharer) map[string]float64 {
	want := make(map[string]float64)
	for _, s := range sharers {
		want[s.name] = 100 / float64(len(sharers))
	}
	return want
}

// Backlogged domains get accelerator time in proportion to their credits,
// whatever the lengths of their kernels.
func TestShares(t *testing.T) {
	inParallel(t)
	alike := []sharer{{"d1", 256, 5}, {"d2", 512, 5}, {"d3", 1024, 5}}
	unlike := []sharer{{"d1", 256, 25}, {"d2", 512, 1}, {"d3", 1024, 5}}
	crossed := []sharer{{"d1", 256, 1}, {"d2", 512, 5}, {"d3", 1024, 25}}
	fraction := []sharer{{"d1", 256, 5}, {"d2", 384, 1}}
	for _, c := range []struct {
		policy  string
		sharers []sharer
		want    func([]sharer) map[string]float64
	}{
		{"accc", alike, proportional}, {"accc", unlike, proportional}, {"accc", crossed, proportional}, {"accc", fraction, proportional},
		{"rr", alike, equal}, {"rr", unlike, equal},
		{"lag", unlike, proportional}, {"lag", crossed, proportional},
	} {
		t.Run(fmt.Sprintf("%s/%v", c.policy, c.sharers), func(t *testing.T) {
			t.Parallel()
			h := startHost(t, shareConfig(c.policy, "production", c.sharers))
			for _, s := range c.sharers {
				h.run(s)
			}
			h.await(c.sharers)
			time.Sleep(2 * time.Second)
			checkShares(t, h.over(measuring()), c.want(c.sharers), 1)
		})
	}
}

// FIFO serves one request of each domain in turn: it equalises the number of requests, not their time.
func TestRotation(t *testing.T) {
	inParallel(t)
	sharers := []sharer{{"d1", 256, 5}, {"d2", 512, 5}, {"d3", 1024, 5}}
	h := startHost(t, shareConfig("fifo", "production", sharers))
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	time.Sleep(time.Second)
	checkShares(t, func() map[string]float64 {
		before := h.domains()
		time.Sleep(measuring() / 2)
		after := h.domains()
		var sum float64
		calls := make(map[string]float64)
		for _, s := range sharers {
			calls[s.name] = float64(after[s.name].Calls - before[s.name].Calls)
			sum += calls[s.name]
		}
		for name := range calls {
			calls[name] *= 100 / sum
		}
		return calls
	}, equal(sharers), 1)
}

// In paper mode windows are whole ticks and overruns are kept: with kernels
// much shorter than a tick the shares are those of the windows.
func TestPaperModeGivesItsWindows(t *testing.T) {
	inParallel(t)
	sharers := []sharer{{"d1", 256, 2}, {"d2", 640, 2}} // floor(640/256) = 2 ticks
	h := startHost(t, shareConfig("accc", "paper", sharers))
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	time.Sleep(2 * time.Second)
	checkShares(t, h.over(measuring()), map[string]float64{"d1": 100.0 / 3, "d2": 200.0 / 3}, 4)
}

// A change of credits takes effect within two seconds.
func TestSetCredits(t *testing.T) {
	inParallel(t)
	sharers := []sharer{{"d1", 256, 2}, {"d2", 256, 2}}
	h := startHost(t, shareConfig("accc", "production", sharers))
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	h.pegasus("set", "d1", "credits=768")
	time.Sleep(2 * time.Second)
	checkShares(t, h.over(measuring()/2), map[string]float64{"d1": 75, "d2": 25}, 1.5)
	if err := os.WriteFile(h.config, []byte(strings.Replace(shareConfig("accc", "production", sharers), "credits = 256", "credits = nine", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := h.try("reload"); err == nil || !strings.Contains(err.Error(), "nine") {
		t.Errorf("a bad configuration was taken: %v", err)
	}
	checkShares(t, h.over(3*time.Second), map[string]float64{"d1": 75, "d2": 25}, 3)
}

// Changes of policies and credits take effect at once while programs run, also between domains of several processes.
func TestSwitches(t *testing.T) {
	inParallel(t)
	sharers := []sharer{{"d1", 256, 1}, {"d2", 512, 1}, {"d3", 1024, 1}}
	h := startHost(t, shareConfig("none", "production", sharers))
	for _, s := range sharers {
		h.run(s)
		h.run(s)
	}
	h.await(sharers)
	expect := func(want map[string]float64) {
		t.Helper()
		time.Sleep(300 * time.Millisecond) // a turn takes 210 ms
		checkShares(t, h.over(4*time.Second), want, 6)
	}
	h.pegasus("policy", "accc", "--mode", "production")
	expect(proportional(sharers))
	h.pegasus("policy", "rr")
	expect(equal(sharers))
	h.pegasus("policy", "accc", "--mode", "paper")
	expect(proportional(sharers))
	h.pegasus("policy", "accc", "--mode", "production")
	h.pegasus("set", "d1", "credits=1024")
	sharers[0].credits = 1024
	expect(proportional(sharers))
}

// The time that an idle domain leaves goes to the others, in proportion.
func TestIdleTimeGoesToTheOthers(t *testing.T) {
	inParallel(t)
	sharers := []sharer{{"d1", 256, 3}, {"d2", 512, 3}, {"d3", 1024, 3}}
	h := startHost(t, shareConfig("accc", "production", sharers))
	for _, s := range sharers[:2] {
		h.run(s)
	}
	// d3 has a context and memory but launches only now and then.
	background(t, h.guest("d3", "sh", "-c", "while :; do "+built(t, "bench/vectoradd")+" --quiet --iterations 1 >/dev/null; sleep 3; done"))
	h.await(sharers)
	time.Sleep(2 * time.Second)
	want := map[string]float64{"d1": 100.0 / 3, "d2": 200.0 / 3}
	steadily(t, func() error {
		got := h.measure(measuring() / 2)
		both := got["d1"] + got["d2"]
		got["d1"], got["d2"] = 100*got["d1"]/both, 100*got["d2"]/both
		wrong := beside(t, got, want, 1.5)
		if got["d3"] > 5 {
			wrong = errors.Join(wrong, fmt.Errorf("the idle domain used %.1f %%", got["d3"]))
		}
		return wrong
	})
}

// A domain cannot get more than its share by queueing more than may be in flight: behind a callback that does not
// return, or in kernels so long that the limit is lifted for work that may depend on them.
func TestHoarding(t *testing.T) {
	inParallel(t)
	hoard := program(t, "hoard")
	for _, c := range []struct{ how, steps string }{{"callback", "1000000"}, {"long", "10000000"}} {
		t.Run(c.how, func(t *testing.T) {
			decent := sharer{"decent", 256, 2}
			h := startHost(t, shareConfig("accc", "production", []sharer{decent, {name: "greedy", credits: 256}}))
			h.run(decent)
			background(t, h.guest("greedy", hoard, c.how, c.steps))
			h.await([]sharer{decent, {name: "greedy"}})
			time.Sleep(3 * time.Second)
			steadily(t, func() error {
				got := h.measure(measuring() / 2)
				if got["decent"] < 42 {
					return fmt.Errorf("the other domain is left %.1f %%, want about 50", got["decent"])
				}
				t.Logf("the other domain has %.1f %%", got["decent"])
				return nil
			})
		})
	}
}
