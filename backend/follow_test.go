package backend

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/hypervisor"
	"pegasus/policies"
	"pegasus/vcpu"
)

// weights are a Raiser whose machines have 100 each, in one group.
type weights struct {
	mu     sync.Mutex
	has    map[string]int64
	had    []int64 // weights written for "one", since the last match of written
	writes int
	broken bool
}

func (w *weights) Groups(of []hypervisor.Guests) (all []hypervisor.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range of {
		has, raised := w.has[g.Domain]
		if !raised {
			has = 100
		}
		all = append(all, hypervisor.Group{Domain: g.Domain, Parent: "p", Weight: 100, Has: has, Least: 1, Most: 10000})
	}
	return all
}

func (w *weights) Raise(domain string, weight int64) (changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	if w.broken {
		return false, errors.New("it is broken")
	}
	w.has[domain] = weight
	if domain == "one" {
		w.had = append(w.had, weight)
	}
	return false, nil
}

func (w *weights) Restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.has)
}

func (w *weights) is(want map[string]int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.has, want)
}

// asSet reports whether a domain has its configured weight.
func (w *weights) asSet(domain string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	has, written := w.has[domain]
	return !written || has == 100
}

// written reports whether these weights were written for "one", in this order, and clears the record if so.
func (w *weights) written(want ...int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, had := range w.had {
		if len(want) > 0 && had == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		return false
	}
	w.had = nil
	return true
}

// A machine's weight rises with its window and returns to its configured value after it, on an accelerator that enables
// this, and not on another.
func TestCPUFollowsAccelerator(t *testing.T) {
	d := coordinated(t, "rr", nil, map[string]int{"one": 0, "two": 0, "plain": 100})
	d.machines["one"] = hypervisor.Machine{Domain: "one", PID: 7}
	d.machines["two"] = hypervisor.Machine{Domain: "two", PID: 17}
	w := &weights{has: map[string]int64{}}
	d.opt.Raiser = w
	if len(d.followers()) != 0 {
		t.Fatal("an accelerator wants that without being asked")
	}
	a := d.accelerators[0]
	follow := func(yes bool) {
		s := a.current()
		s.CPUFollows = yes
		p, err := newPolicies(s)
		if err != nil {
			t.Fatal(err)
		}
		a.configure(s, p)
	}
	follow(true)
	if f := d.followers(); len(f) != 2 || f[0].Domain != "one" || !f[0].VM {
		t.Fatalf("followers are %+v", f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	defer func() { cancel(); tasks.Wait() }()
	tasks.Go(func() { d.followWindows(ctx) })
	window := func() {
		end := vcpu.Time(gate.Now()).Add(30 * time.Millisecond)
		d.follower.window("one", end)
		d.follower.window("plain", end)
	}
	// A brief value may not be observable: the record of writes is. "two" may owe "one" a boost after that, and be
	// lowered in turn.
	eventually(t, "a window raises, its end lowers, and then it is as set", func() bool {
		window()
		for began := time.Now(); time.Since(began) < 100*time.Millisecond || !w.asSet("one") && time.Since(began) < 20*time.Second; {
			time.Sleep(time.Millisecond) // the boost runs its course
		}
		return w.written(400, 25, 100)
	})
	eventually(t, "another raises", func() bool { window(); return w.written(400) })
	follow(false)
	eventually(t, "the operator gives up", func() bool { return w.asSet("one") && w.asSet("two") })
	follow(true)
	w.written()
	eventually(t, "the next raises", func() bool { window(); return w.written(400) })
	cancel()
	tasks.Wait()
	if !w.is(map[string]int64{}) {
		t.Errorf("in the end: %v", w.has)
	}
}

// A weight that cannot be written is not retried continuously.
func TestBrokenRaiser(t *testing.T) {
	d := coordinated(t, "rr", nil, map[string]int{"one": 0, "two": 0})
	d.machines["one"] = hypervisor.Machine{Domain: "one", PID: 7}
	d.machines["two"] = hypervisor.Machine{Domain: "two", PID: 17}
	w := &weights{broken: true}
	d.opt.Raiser, d.accelerators[0].settings.CPUFollows = w, true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tasks sync.WaitGroup
	tasks.Go(func() { d.followWindows(ctx) })
	tried := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.writes
	}
	windows := func() {
		d.follower.window("one", vcpu.Time(gate.Now()).Add(20*time.Millisecond))
		time.Sleep(time.Millisecond)
	}
	eventually(t, "it is tried", func() bool { windows(); return tried() > 0 })
	began := time.Now()
	for time.Since(began) < 500*time.Millisecond {
		windows()
	}
	cancel()
	tasks.Wait()
	if most := 3 + 2*int(time.Since(began)/time.Second); tried() > most { // once a second for each of both
		t.Errorf("it was tried %d times", w.writes)
	}
}

// The follower uses only windows and budgets that last for a while, and not without end.
func TestLeasesThatCPUsFollow(t *testing.T) {
	now := int64(time.Second)
	in := func(d time.Duration) vcpu.Time { return vcpu.Time(now).Add(d) }
	for _, c := range []struct {
		lease policies.Lease
		want  vcpu.Time
	}{
		{policies.Lease{Kind: policies.Window, Until: in(30 * time.Millisecond)}, in(30 * time.Millisecond)},
		{policies.Lease{Kind: policies.Window, Until: in(3 * time.Millisecond)}, 0},
		{policies.Lease{Kind: policies.Window, Until: vcpu.Forever}, 0},
		{policies.Lease{Kind: policies.Budget, Amount: int64(8 * time.Millisecond), Until: vcpu.Forever}, in(8 * time.Millisecond)},
		{policies.Lease{Kind: policies.Budget, Amount: int64(time.Millisecond), Until: vcpu.Forever}, 0},
		{policies.Lease{Kind: policies.Requests, Amount: 8, Until: vcpu.Forever}, 0},
	} {
		f := newFollower()
		m := &avcpu{domain: "x", window: 1}
		m.tell(now, f, policies.Action{Open: true, Lease: c.lease})
		if got, told := f.news["x"]; !told || got != c.want {
			t.Errorf("%+v: %v, %v, not %v", c.lease, got, told, c.want)
		}
		clear(f.news)
		m.tell(now, f, policies.Action{Open: true, Lease: c.lease})
		m.tell(now, f, policies.Action{})
		if got, told := f.news["x"]; told != (c.want != 0) || got != 0 {
			t.Errorf("%+v: when it is over it tells %v, %v", c.lease, got, told)
		}
	}
}

// The scheduler loop reports its windows.
func TestWindowsAreTold(t *testing.T) {
	d := coordinated(t, "rr", nil, map[string]int{"one": 0, "two": 0})
	a := d.accelerators[0]
	a.follower, a.settings.CPUFollows = d.follower, true
	names := []string{}
	for _, m := range a.members {
		bell := a.bell
		member := gate.Join(m.page, bell, mustSlot(t, m.page))
		go acquire(t, member, gate.Compute, make(chan gate.Ticket, 1))
		for !m.page.Look().Busy() {
			time.Sleep(time.Millisecond)
		}
	}
	eventually(t, "both had a window", func() bool {
		a.turn()
		d.follower.mu.Lock()
		defer d.follower.mu.Unlock()
		for name, until := range d.follower.news {
			if until != 0 && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return len(names) == 2
	})
}
