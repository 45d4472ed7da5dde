package backend

import (
	"context"
	"fmt"
	"strconv"

	"pegasus/accel"
	"pegasus/backend/control"
	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// maxDomains bounds what callers of the control socket can make the daemon hold.
const maxDomains = 16384

// domain is a VM or a named group of processes. All of it but name and
// trickle is guarded by the daemon's mu; door changes only while the domain is made.
type domain struct {
	name     string
	settings configs.Domain    // in force
	set      map[string]string // laid over the configuration by `pegasus set`
	declared bool
	door     hypervisor.Door
	uid      int // that its workers run as; 0: the daemon's

	settling int          // guests that wait for a place or a seat
	on       *accelerator // where it is placed; nil while it has no guests
	avcpu    *avcpu
	guests   map[*guest]struct{}
	past     totals // of workers that have ended
	share    meter  // of the accelerator time that it used
	trickle  *trickle
}

// totals is what workers used.
type totals struct {
	Used  [accel.NumClasses]int64 `json:"used"`
	Calls uint64                  `json:"calls"`
	Waits waits                   `json:"waits"`
}

func (t *totals) add(s *gate.Statistics) {
	for c, ns := range s.Used {
		t.Used[c] += ns
	}
	t.Calls += s.Calls
	w := waits(s.Waits)
	t.Waits.add(&w)
}

func (t *totals) gpu() (sum int64) {
	for _, ns := range t.Used {
		sum += ns
	}
	return sum
}

// totals is what all its workers used, those that live included.
func (dom *domain) totals() (t totals, memory uint64) {
	t = dom.past
	for g := range dom.guests {
		if st, ok := dom.avcpu.page.Statistics(g.slot); ok {
			t.add(&st)
			memory += st.Memory
		}
	}
	return t, memory
}

// hostMemory is what the arenas of its guest processes come to.
func (dom *domain) hostMemory() (sum uint64) {
	for g := range dom.guests {
		sum += g.arena
	}
	return sum
}

// domain returns the domain of that name, made from the configuration if it
// isn't there yet. d.mu is held.
func (d *Daemon) domain(name string) (*domain, error) {
	if dom := d.domains[name]; dom != nil {
		return dom, nil
	}
	settings, err := d.config.Domain(name)
	if err != nil {
		return nil, control.Errorf(control.CodeInvalid, "domain %q: %v", name, err)
	}
	if len(d.domains) >= maxDomains {
		return nil, control.Errorf(control.CodeConflict, "domain %q: there are %d domains already, the most there can be", name, maxDomains)
	}
	dom := &domain{name: name, settings: settings, set: map[string]string{}, guests: map[*guest]struct{}{}, trickle: newTrickle()}
	dom.declared = d.declares(name)
	if err := d.openDoor(dom); err != nil {
		return nil, err
	}
	d.domains[name] = dom
	return dom, nil
}

func (d *Daemon) declares(name string) bool {
	for i := range d.config.Domains {
		if d.config.Domains[i].Name == name {
			return true
		}
	}
	return false
}

func (d *Daemon) openDoor(dom *domain) error {
	s := dom.settings
	door, err := d.opt.Adapter.Open(d.ctx, hypervisor.Domain{
		Name: dom.name, Owner: s.SocketOwner, Group: s.SocketGroup, Mode: s.SocketMode,
	}, func(ctx context.Context, n hypervisor.Newcomer) { d.receive(ctx, dom, n) },
		func(err error) { d.noteOf(dom, "refused", "%v", err) })
	if err != nil {
		return fmt.Errorf("domain %q: %w", dom.name, err)
	}
	dom.door = door
	return nil
}

// setLocked lays settings over a domain's configuration. d.mu is held.
func (d *Daemon) setLocked(dom *domain, settings map[string]string) error {
	next, err := override(d.config, dom.settings, settings)
	if err != nil {
		return err
	}
	for k, v := range settings {
		dom.set[k] = v
	}
	d.changed = true
	d.apply(dom, next)
	return nil
}

// apply puts settings into force. d.mu is held.
func (d *Daemon) apply(dom *domain, s configs.Domain) {
	dom.settings = s
	if dom.on == nil {
		return
	}
	setQuotas(dom.avcpu.page, s)
	dom.on.setCredits(dom.avcpu, s.Credits)
}

func setQuotas(p *gate.Page, s configs.Domain) {
	p.SetQuota(gate.DeviceMemory, unlimited(s.Memory))
	p.SetQuota(gate.HostMemory, unlimited(s.HostMemory))
}

func unlimited(s configs.Size) uint64 {
	if s == 0 {
		return 1<<64 - 1
	}
	return uint64(s)
}

func itoa(n int) string { return strconv.Itoa(n) }
