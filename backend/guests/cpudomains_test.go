package guests

import (
	"slices"
	"testing"

	"pegasus/backend/gate"
	"pegasus/backend/hardware/hardwaretest"
	"pegasus/backend/sched"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// wall is an endpoint to which no process connects.
type wall struct{}

func (wall) Address() string { return "" }
func (wall) Close() error    { return nil }
func (wall) Leave() error    { return nil }
func (wall) Wait()           {}

func (wall) Guard(hypervisor.Domain) error { return nil }

// attachedDaemon returns a daemon with domains on one accelerator, each with one guest; the guest of a domain without a
// PID is in a machine.
func attachedDaemon(t *testing.T, policy string, pids map[string]int) *Registry {
	t.Helper()
	bell, err := gate.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	config := configs.Default().Accelerators[0]
	config.Policy = policy
	a, err := sched.New(sched.Options{Settings: config, Bell: bell})
	if err != nil {
		t.Fatal(err)
	}
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	d.accelerators = []*accelerator{{Accelerator: a, switched: map[string]setting{}}}
	for name, pid := range pids {
		page, err := gate.New()
		if err != nil {
			t.Fatal(err)
		}
		dom := newDomain(d, configs.Domain{Name: name, Credits: 256}, true)
		dom.endpoint = wall{}
		dom.account = new(hardwaretest.Account)
		dom.on, dom.attachment = d.accelerators[0], a.Attach(dom.settings, 0, page, nil, dom.account)
		d.domains[name] = dom
		d.guests[uint64(len(d.guests))] = &guest{dom: dom, pid: pid}
	}
	return d
}

// The CPU side of a virtual machine is its emulator's vCPUs, as its hypervisor reports them, whichever of its processes
// computes, and whether or not a process of the host is in its domain, too.
func TestGuestsByDomain(t *testing.T) {
	d := attachedDaemon(t, "cosched", map[string]int{"a": 100, "vm": 0, "off": 0, "unknown": 0, "xen": 0})
	d.guests[99] = &guest{dom: d.domains["vm"], pid: 101}
	d.machines["vm"] = hypervisor.Machine{Domain: "vm", State: hypervisor.MachineRunning, PID: 7, VCPUs: []int{8, 9}}
	d.machines["off"] = hypervisor.Machine{Domain: "off", State: hypervisor.MachineOff}
	d.machines["idle"] = hypervisor.Machine{Domain: "idle", PID: 17}
	d.machines["xen"] = hypervisor.Machine{Domain: "xen", State: hypervisor.MachineRunning, Xen: 3}
	all := cpuDomains{d}.Guests()
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
	all = cpuDomains{d}.drawn()
	if len(all) != 5 || all[1].Domain != "idle" || all[2].Xen != 4 || all[3].Domain != "vm" || all[4].Domain != "xen" {
		t.Errorf("drawn are %+v", all)
	}
}

// A domain's recent time is divided among the accelerator, the wait for its turn, the wait for the host's CPUs, and the
// rest, without counting any of it twice.
func TestSpent(t *testing.T) {
	const steal, began = 0.1, int64(5)
	dom := newDomain(nil, configs.Domain{Name: "vm"}, true)
	dom.share.Sample(began, 0)
	dom.share.Sample(began+100, 20)
	dom.stood.Sample(began, 0)
	dom.stood.Sample(began+100, 30)
	if s := dom.spent(steal, 80); s.Accelerator != 0.2 || s.Turn != 0.3 || s.VCPU != 0.1 || s.VCPU+s.Idle < 0.499 || s.VCPU+s.Idle > 0.501 {
		t.Errorf("its time went to %+v", s)
	}
	// It had work for 70 of the 100 ns: the other 20 were spent behind other domains' work, but for what these didn't use.
	dom.engaged.Sample(began, 0)
	dom.engaged.Sample(began+100, 70)
	if s := dom.spent(steal, 80); s.Turn != 0.5 {
		t.Errorf("of work in flight behind other domains': %+v", s)
	}
	if s := dom.spent(steal, 30); s.Turn != 0.4 {
		t.Errorf("of work in flight beside 10 ns of other domains': %+v", s)
	}
	dom.stood.Sample(began+200, 230)
	dom.share.Sample(began+200, 20)
	if s := dom.spent(steal, 80); s.VCPU != 0 || s.Idle != 0 {
		t.Errorf("of a domain that always waited for its turn: %+v", s)
	}
}

// The CPU weights of machines follow the accelerators that enable this, and no others.
func TestFollowers(t *testing.T) {
	d := attachedDaemon(t, "rr", map[string]int{"one": 0, "two": 0, "plain": 100})
	d.machines["one"] = hypervisor.Machine{Domain: "one", PID: 7}
	d.machines["two"] = hypervisor.Machine{Domain: "two", PID: 17}
	if len((cpuDomains{d}).followers()) != 0 {
		t.Fatal("an accelerator wants that without being requested")
	}
	a := d.accelerators[0]
	s := a.Settings()
	s.CPUFollows = true
	p, err := sched.NewPolicies(s)
	if err != nil {
		t.Fatal(err)
	}
	a.Configure(s, p)
	if f := (cpuDomains{d}).followers(); len(f) != 2 || f[0].Domain != "one" || !f[0].VM {
		t.Fatalf("followers are %+v", f)
	}
}
