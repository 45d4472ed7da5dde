package test

import (
	"fmt"
	"math"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"pegasus/backend/client"
)

// theft is an attempt of one domain to get more of an accelerator than its share, beside a domain of the same credits
// that always has kernels queued.
type theft struct {
	attack    string
	args      []string // of programs/thief.c
	processes int      // that run it at once, each repeatedly
	policy    string
	accounts  string // empty: the default
	restart   bool   // the daemon is restarted in the middle
	grouped   bool   // victim and thief each have a cgroup for their programs, as machines, containers and users have
	two       bool   // the accelerator has two cores instead of one, so that kernels overlap
}

func (a theft) String() string {
	s := fmt.Sprintf("%s/%s", a.attack, a.policy)
	if a.accounts != "" {
		s += "/" + a.accounts
	}
	if a.restart {
		s += "/restart"
	}
	return s
}

// The attacks. Some lengths are those of uninterrupted work on a core of about 3 GHz; the verdict doesn't depend on
// them.
var (
	ghost  = theft{attack: "dies while holding the engine", args: []string{"ghost", "20", "0.7"}, processes: 2}
	outrun = theft{attack: "is ended by the kernel timeout", args: []string{"outrun", "40"}, processes: 1}
	quit   = theft{attack: "leaves after a long kernel", args: []string{"quit", "3000000"}, processes: 1}
	pile   = theft{attack: "runs long what is predicted short", args: []string{"pile", "5000000", "3"}, processes: 8}
	fill   = theft{attack: "fills rows of a byte", args: []string{"fill", "128", "2"}, processes: 1}
	copied = theft{attack: "copies rows of a byte", args: []string{"copy", "128", "2"}, processes: 1}
	text   = theft{attack: "launches large kernels for the first time", args: []string{"text", "4", "60000"}, processes: 2}
	bytes8 = theft{attack: "fills bytes", args: []string{"bytes", "128", "50"}, processes: 2}
	polls  = theft{attack: "waits for words in many processes", args: []string{"poll", "1000", "20"}, processes: 32}
	clocks = theft{attack: "watches a clock in kernels on 16 streams", args: []string{"wait", "200", "16"}, processes: 2, two: true}
)

func (a theft) under(policy, accounts string) theft {
	a.policy, a.accounts = policy, accounts
	return a
}

func (a theft) restarted() theft {
	a.restart = true
	return a
}

// Whatever a domain does to get more than its share, its victim keeps its own, and the thief is charged for all the
// time for which it held an engine.
func TestTheft(t *testing.T) {
	for _, a := range []theft{
		ghost.under("accc", ""),
		outrun.under("lag", ""),
		quit.under("rr", ""),
		quit.under("accc", "").restarted(),
		pile.under("accc", ""),
		fill.under("lag", ""),
		copied.under("xc", ""),
		text.under("credit", ""),
		bytes8.under("accc", "mrq"),
		clocks.under("drr", ""),
		polls.under("accc", ""),
	} {
		t.Run(a.String(), func(t *testing.T) { a.try(t, 3*time.Second) })
	}
}

const theftConfig = `
[[accelerator]]
name = "a0"
type = "soft"
cores = %d
memory = "1GiB"
kernel_timeout = "2s"
policy = %q
%s
[[domain]]
name = "victim"
credits = %d
[[domain]]
name = "thief"
credits = %d
`

const severalConfig = `
[[accelerator]]
name = "a0"
type = "soft"
cores = 1
memory = "1GiB"
kernel_timeout = "2s"
policy = %q
[[accelerator]]
name = "a1"
type = "soft"
cores = 1
memory = "1GiB"
kernel_timeout = "2s"
policy = %[1]q
[[domain]]
name = "victim0"
accelerator = "a0"
[[domain]]
name = "victim1"
accelerator = "a1"
[[domain]]
name = "thief"
`

// A thief that alternates between accelerators takes no more of either than its share.
func TestTheftOnSeveral(t *testing.T) {
	for _, a := range []theft{quit.under("accc", ""), pile.under("lag", "")} {
		t.Run(a.String(), func(t *testing.T) { a.onSeveral(t, 3*time.Second) })
	}
}

// onSeveral runs the thief for so long beside a victim on each of two accelerators.
func (a theft) onSeveral(t *testing.T, long time.Duration) {
	h := startSystemHost(t, fmt.Sprintf(severalConfig, a.policy))
	victims := []sharer{{"victim0", 256, 1}, {"victim1", 256, 1}}
	for _, v := range victims {
		h.run(v)
	}
	h.await(victims)
	thief := program(t, "thief")
	defer h.again("thief", a.processes, thief, a.args...)()
	eventually(t, soon, "the thief computes", func() bool { return h.domains()["thief"].Calls > 0 })
	type state struct{ held, got [2]int64 }
	look := func() (s state) {
		all, domains := h.accelerators(), h.domains()
		for i, v := range victims {
			s.held[i], s.got[i] = all[i].GPU, domains[v.name].GPU
		}
		return s
	}
	before := look()
	time.Sleep(long)
	after := look()
	for i, v := range victims {
		held, got := time.Duration(after.held[i]-before.held[i]), time.Duration(after.got[i]-before.got[i])
		t.Logf("%s got %v of %v", v.name, got, held)
		if got < held*95/200-rotation-longest {
			t.Errorf("%s got %.1f %% of the %v for which its accelerator was held, want 47.5 %%", v.name, 100*float64(got)/float64(held), held)
		}
	}
}

// thieves starts a daemon for a theft.
func thieves(t *testing.T, cores int, policy, accounts string, victim, thief int) *host {
	t.Helper()
	if accounts != "" {
		accounts = fmt.Sprintf("accounts = %q", accounts)
	}
	return startSystemHost(t, fmt.Sprintf(theftConfig, cores, policy, accounts, victim, thief))
}

// The largest tolerated excess of a thief: one rotation and the longest piece of work that isn't interrupted.
const (
	rotation = 100 * time.Millisecond
	longest  = 50 * time.Millisecond
)

// try runs the thief for so long. It returns the longest time for which the victim computed nothing, and the victim's
// part of the time.
func (a theft) try(t *testing.T, long time.Duration) (gap time.Duration, part float64) {
	cores := 1
	if a.two {
		cores = 2
	}
	h := thieves(t, cores, a.policy, a.accounts, 256, 256)
	thief := program(t, "thief")
	if a.grouped {
		h.groups = testCgroups(t, "victim", "thief")
	}
	victim := sharer{"victim", 256, 1}
	h.run(victim)
	h.await([]sharer{victim})
	end := h.again("thief", a.processes, thief, a.args...)
	defer end()
	eventually(t, soon, "the thief computes", func() bool { return h.domains()["thief"].Processes > 0 && h.domains()["thief"].Calls > 0 })
	before, began := h.accounts(), time.Now()
	progress := h.progressOf("victim")
	time.Sleep(long / 2)
	if a.restart {
		h.stop()
		h.start()
	}
	time.Sleep(long / 2)
	gap = progress()
	part = float64(h.accounts().victim-before.victim) / float64(time.Since(began))
	end()
	eventually(t, soon, "the thief's processes end", func() bool { return h.domains()["thief"].Processes == 0 })
	after := h.accounts() // its holding time is complete only after the thief has released all engines
	held, got := after.held-before.held, after.victim-before.victim
	t.Logf("engines were held for %v: by the victim %v, by the thief %v as charged; the victim's longest gap was %v",
		held, got, after.thief-before.thief, gap)
	if want := held*95/200 - rotation - longest; got < want {
		t.Errorf("the victim got %.1f %% of the %v for which engines were held, want 47.5 %% (within %v)", 100*float64(got)/float64(held), held, rotation+longest)
	}
	h.conserves()
	return gap, part
}

// balance is the time that the domains were charged for, and the time for which engines were held.
type balance struct{ victim, thief, held time.Duration }

func (h *host) accounts() balance {
	h.t.Helper()
	held := h.accelerators()[0].GPU // first: time held meanwhile may be charged already
	d := h.domains()
	return balance{time.Duration(d["victim"].GPU), time.Duration(d["thief"].GPU), time.Duration(held)}
}

// conserves ends the victim's program and checks that the sum of the charges equals the time for which engines were
// held, to the nanosecond.
func (h *host) conserves() {
	h.t.Helper()
	eventually(h.t, soon, "the victim's program ends", func() bool {
		d := h.domains()["victim"]
		for _, pid := range d.PIDs {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return d.Processes == 0
	})
	if b := h.accounts(); b.held != b.victim+b.thief {
		h.t.Errorf("engines were held for %v, but %v are charged: %v to the victim, %v to the thief", b.held, b.victim+b.thief, b.victim, b.thief)
	}
}

// again runs a program repeatedly in so many processes of a domain, until the returned function is called.
func (h *host) again(domain string, processes int, program string, args ...string) (end func()) {
	var running sync.WaitGroup
	stop := make(chan struct{})
	for range processes {
		running.Go(func() {
			for {
				cmd := h.guest(domain, program, args...)
				select {
				case <-stop:
					return
				default:
				}
				runUntil(cmd, stop)
			}
		})
	}
	return sync.OnceFunc(func() {
		close(stop)
		running.Wait()
	})
}

// runUntil runs a command to its end, or kills it when stop is closed. Its result doesn't matter.
func runUntil(cmd *exec.Cmd, stop <-chan struct{}) {
	if cmd.Start() != nil {
		return
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-stop:
		cmd.Process.Kill()
		<-ended
	}
}

// progressOf follows the account of a domain on an accelerator of one core. The returned function returns the longest
// time for which the domain computed nothing.
func (h *host) progressOf(domain string) (gap func() time.Duration) {
	stop, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		var seen []reading
		began := time.Now()
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				result <- max(most, longestGap(seen))
				return
			case <-tick.C:
			}
			charged, err := h.used(domain)
			if err != nil { // the daemon is being restarted
				most, seen = max(most, longestGap(seen)), nil
				continue
			}
			seen = append(seen, reading{time.Since(began), time.Duration(charged)})
		}
	}()
	return func() time.Duration { close(stop); return <-result }
}

// reading is a domain's charge at a time, or later than the charge: the daemon charges at its ticks, and a busy host
// wakes the daemon and the test late.
type reading struct{ at, charged time.Duration }

// longestGap returns the longest time for which a domain was charged nothing. A domain's waiting time never falls, so
// its value at a reading is at most that of any later reading.
func longestGap(seen []reading) (most time.Duration) {
	waited := time.Duration(math.MaxInt64)
	for i, r := range slices.Backward(seen) {
		waited = min(waited, r.at-r.charged)
		seen[i].charged = r.at - waited
	}
	for i, last := 1, 0; i < len(seen); i++ {
		if used := seen[i].charged - seen[last].charged; used != 0 || i == len(seen)-1 {
			most = max(most, seen[i].at-seen[last].at-used)
			last = i
		}
	}
	return most
}

// A domain's waiting time is right also where its charge, or the test, is late.
func TestLongestGap(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		seen []reading
		want time.Duration
	}{
		{"computes all the time", []reading{{0, 0}, {10 * ms, 10 * ms}, {20 * ms, 20 * ms}}, 0},
		{"waits in the middle", []reading{{0, 0}, {10 * ms, 10 * ms}, {20 * ms, 10 * ms}, {30 * ms, 10 * ms}, {40 * ms, 15 * ms}}, 25 * ms},
		{"waits at the end", []reading{{0, 0}, {10 * ms, 10 * ms}, {50 * ms, 10 * ms}}, 40 * ms},
		{"waits twice", []reading{{0, 0}, {20 * ms, 0}, {21 * ms, 1 * ms}, {51 * ms, 1 * ms}, {52 * ms, 2 * ms}}, 30 * ms},
		{"is charged late", []reading{{0, 0}, {10 * ms, 0}, {20 * ms, 0}, {30 * ms, 30 * ms}, {40 * ms, 40 * ms}}, 0},
		{"is read late", []reading{{0, 0}, {30 * ms, 10 * ms}, {31 * ms, 31 * ms}}, 0},
		{"is never read", nil, 0},
	} {
		if got := longestGap(c.seen); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// used returns a domain's charge from the daemon.
func (h *host) used(domain string) (int64, error) {
	c, err := client.Dial(h.controlSocket())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	all, err := c.Domains(h.t.Context())
	if err != nil {
		return 0, err
	}
	for _, d := range all {
		if d.Name == domain {
			return d.GPU, nil
		}
	}
	return 0, nil
}

// Two domains that each run short jobs in a loop, as pods do, get the shares of their credits.
func TestShortJobsKeepTheirShares(t *testing.T) { shortJobs(t, "accc", 8*time.Second, 3) }

func shortJobs(t *testing.T, policy string, long time.Duration, points float64) {
	h := thieves(t, 1, policy, "", 256, 768)
	job := program(t, "thief")
	steps := int(10_000 * stepsPerMs(t)) // some 150 ms with one thread
	began := time.Now()
	succeed(t, h.guest("victim", job, "quit", fmt.Sprint(steps)))
	took := time.Since(began)
	engine, err := h.used("victim")
	if err != nil || engine <= 0 {
		t.Fatalf("the first job used the accelerator for %v, %v", time.Duration(engine), err)
	}
	// Starts and ends take much less time than a core has beside the jobs, so that the next job is always there.
	if others := took - time.Duration(engine); 4*others > time.Duration(engine) {
		steps = int(float64(steps) * 4 * float64(others) / float64(engine))
	}
	t.Logf("the first job took %v, of which %v on the accelerator; the others have %d steps", took, time.Duration(engine), steps)
	for _, domain := range []string{"victim", "thief"} {
		end := h.again(domain, 4, job, "quit", fmt.Sprint(steps))
		defer end()
	}
	h.await([]sharer{{name: "victim"}, {name: "thief"}})
	want := map[string]float64{"victim": 25, "thief": 75}
	switch policy {
	case "rr", "xc", "slaf": // their shares don't follow the accelerator's credits
		want = map[string]float64{"victim": 50, "thief": 50}
	}
	checkShares(t, h.over(long), want, points)
}
