package backend

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/internal/testkit"
	"pegasus/vcpu"
)

// cpus is a CPU side on which each vCPU has waited as long as it ran.
type cpus struct {
	mu     sync.Mutex
	asked  []hypervisor.Guests // at the last sample
	looks  int
	closed bool
	ran    time.Duration
}

func (c *cpus) Weights(of []hypervisor.Guests) []hypervisor.Weight {
	return make([]hypervisor.Weight, len(of))
}

func (c *cpus) Look(_ vcpu.Time, _ time.Duration, of []hypervisor.Guests) ([]vcpu.Schedule, vcpu.Quality) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.closed = of, false
	c.looks++
	return make([]vcpu.Schedule, len(of)), vcpu.Shadow
}

func (c *cpus) Spent(of []hypervisor.Guests) []hypervisor.Spent {
	all := make([]hypervisor.Spent, len(of))
	for i := range of {
		all[i] = hypervisor.Spent{VCPUs: len(of[i].VCPUs), Ran: c.ran, Waited: c.ran}
	}
	return all
}

func (c *cpus) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *cpus) is(ok func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ok()
}

// someMachines holds the machines at the start; later changes are sent.
type someMachines chan []hypervisor.Machine

func (m someMachines) Watch(ctx context.Context, tell func([]hypervisor.Machine)) {
	for {
		select {
		case all := <-m:
			tell(all)
		case <-ctx.Done():
			return
		}
	}
}

// wall is a door to which no process connects.
type wall struct{}

func (wall) Address() string { return "" }
func (wall) Close() error    { return nil }
func (wall) Leave() error    { return nil }
func (wall) Wait()           {}

func (wall) Guard(hypervisor.Domain) error { return nil }

// coordinated returns a daemon with domains on one accelerator, each with one guest; the guest of a domain without a
// PID is in a machine.
func coordinated(t *testing.T, policy string, c *cpus, pids map[string]int) *Daemon {
	t.Helper()
	bell, err := gate.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	config := configs.Default().Accelerators[0]
	config.Policy = policy
	a, err := newAccelerator(config, nil, bell, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Config: configs.Default(), RuntimeDir: t.TempDir(), CPUs: c, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d.accelerators = []*accelerator{a}
	for name, pid := range pids {
		page, err := gate.New()
		if err != nil {
			t.Fatal(err)
		}
		dom := newDomain(configs.Domain{Name: name, Credits: 256}, true)
		dom.door = wall{}
		dom.on, dom.avcpu = a, a.attach(dom.settings, 0, page, nil, new(fakeAccount))
		dom.avcpu.busy = true
		d.domains[name] = dom
		d.guests[uint64(len(d.guests))] = &guest{dom: dom, pid: pid}
	}
	return d
}

// The CPU side of a virtual machine is its emulator's vCPUs, as its hypervisor reports them, whichever of its processes
// computes, and whether or not a process of the host is in its domain, too.
func TestGuestsByDomain(t *testing.T) {
	d := coordinated(t, "cosched", &cpus{}, map[string]int{"a": 100, "vm": 0, "off": 0, "unknown": 0, "xen": 0})
	d.guests[99] = &guest{dom: d.domains["vm"], pid: 101}
	d.machines["vm"] = hypervisor.Machine{Domain: "vm", State: hypervisor.MachineRunning, PID: 7, VCPUs: []int{8, 9}}
	d.machines["off"] = hypervisor.Machine{Domain: "off", State: hypervisor.MachineOff}
	d.machines["idle"] = hypervisor.Machine{Domain: "idle", PID: 17}
	d.machines["xen"] = hypervisor.Machine{Domain: "xen", State: hypervisor.MachineRunning, Xen: 3}
	all := d.guestsByDomain()
	if len(all) != 3 || all[0].Domain != "a" || all[0].VM || !slices.Equal(all[0].Processes, []int{100}) {
		t.Fatalf("%+v", all)
	}
	if vm := all[1]; vm.Domain != "vm" || !vm.VM || !slices.Equal(vm.Processes, []int{7}) || !slices.Equal(vm.VCPUs, []int{8, 9}) {
		t.Errorf("%+v", vm)
	}
	if xen := all[2]; xen.Domain != "xen" || !xen.VM || xen.Xen != 3 || len(xen.Processes) != 0 {
		t.Errorf("%+v", xen)
	}
	// A timeline also shows a machine in which no process computes.
	d.machines["spins"] = hypervisor.Machine{Domain: "spins", State: hypervisor.MachineRunning, Xen: 4}
	if all = d.guestsToDraw(); len(all) != 5 || all[1].Domain != "idle" || all[2].Xen != 4 || all[3].Domain != "vm" || all[4].Domain != "xen" {
		t.Errorf("drawn are %+v", all)
	}
}

// The schedule is sampled as long as a policy uses it; then the sampler's resources are released.
func TestLooksWhileFollowed(t *testing.T) {
	c := &cpus{}
	d := coordinated(t, "cosched", c, map[string]int{"one": 0, "two": 0})
	machines := make(someMachines)
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	defer func() { cancel(); tasks.Wait() }()
	tasks.Go(func() { machines.Watch(ctx, d.learn) })
	tasks.Go(func() { d.coordinate(ctx) })
	machines <- []hypervisor.Machine{{Domain: "one", PID: 7, VCPUs: []int{8}}, {Domain: "two", PID: 17, VCPUs: []int{18}}}
	eventually(t, "both are seen", func() bool { return c.is(func() bool { return len(c.asked) == 2 && c.asked[1].VCPUs[0] == 18 }) })
	machines <- []hypervisor.Machine{{Domain: "one", PID: 7, VCPUs: []int{8}}, {Domain: "two"}}
	eventually(t, "one is off", func() bool { return c.is(func() bool { return len(c.asked) == 1 }) })
	s := d.accelerators[0].current()
	s.Policy = "xc"
	p, err := newPolicies(s)
	if err != nil {
		t.Fatal(err)
	}
	d.accelerators[0].configure(s, p)
	eventually(t, "nobody follows", func() bool { return c.is(func() bool { return c.closed }) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, what, ok)
}

// Steal time of a machine's vCPUs is reported as in its guest, and restarts with the machine.
func TestSteal(t *testing.T) {
	c := &cpus{}
	d := coordinated(t, "accc", c, map[string]int{"vm": 0, "plain": 100})
	d.machines["vm"] = hypervisor.Machine{Domain: "vm", PID: 7, VCPUs: []int{8, 9}}
	dom := d.domains["vm"]
	began := gate.Now()
	d.steal()
	if dom.stealing() != 0 {
		t.Errorf("at first: %v", dom.stealing())
	}
	for time.Duration(gate.Now()-began) < 20*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	c.ran = 10 * time.Millisecond // of two vCPUs, in at least 20 ms
	d.steal()
	if s := dom.stealing(); s <= 0 || s > 0.25 || dom.vcpus.VCPUs != 2 || dom.vcpus.Waited != c.ran {
		t.Errorf("%v of %+v", s, dom.vcpus)
	}
	dom.share.sample(began, 0)
	dom.share.sample(began+100, 20)
	dom.stood.sample(began, 0)
	dom.stood.sample(began+100, 30)
	if s := dom.spent(); s.Accelerator != 0.2 || s.Turn != 0.3 || s.VCPU != float64(int64(100*dom.stealing()))/100 || s.VCPU+s.Idle < 0.499 || s.VCPU+s.Idle > 0.501 {
		t.Errorf("its time went to %+v", s)
	}
	dom.stood.sample(began+200, 230)
	dom.share.sample(began+200, 20)
	if s := dom.spent(); s.VCPU != 0 || s.Idle != 0 {
		t.Errorf("of a domain that always waited for its turn: %+v", s)
	}
	if d.domains["plain"].vcpus.VCPUs != 0 {
		t.Errorf("of processes: %+v", d.domains["plain"].vcpus)
	}
	c.ran = time.Millisecond
	d.steal()
	if s := dom.stealing(); s != 0 {
		t.Errorf("after a reboot: %v", s)
	}
	d.machines["vm"] = hypervisor.Machine{Domain: "vm"}
	d.steal()
	if dom.vcpus.VCPUs != 0 {
		t.Errorf("of one that is off: %+v", dom.vcpus)
	}
}
