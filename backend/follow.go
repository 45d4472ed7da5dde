package backend

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"pegasus/backend/gate"
	"pegasus/hypervisor"
	"pegasus/policies"
	"pegasus/policies/boost"
	"pegasus/vcpu"
)

// follower makes the CPU weights of virtual machines follow the windows of the accelerators that enable it. Their
// scheduler loops report windows to it and never wait for it.
type follower struct {
	mu   sync.Mutex
	news map[string]vcpu.Time // by domain: when its window ends; 0: it has ended
	poke chan struct{}
}

func newFollower() *follower {
	return &follower{news: make(map[string]vcpu.Time), poke: make(chan struct{}, 1)}
}

// window records that a domain has its accelerator until then; 0: no longer.
func (f *follower) window(domain string, until vcpu.Time) {
	f.mu.Lock()
	f.news[domain] = until
	f.mu.Unlock()
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// hear passes the recorded windows to b.
func (f *follower) hear(now vcpu.Time, b *boost.Boosts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for domain, until := range f.news { // in any order: each belongs to another machine
		if until > now {
			b.Open(now, domain, until.Sub(now))
		} else {
			b.Close(now, domain)
		}
	}
	clear(f.news)
}

// tell reports to the follower a decision's effect on a machine's CPUs.
func (m *avcpu) tell(now int64, f *follower, act policies.Action) {
	if until := boost.Window(vcpu.Time(now), &act); until != m.window {
		m.window = until
		f.window(m.domain, until)
	}
}

// followWindows raises and lowers CPU weights until ctx ends; then it restores all.
func (d *Daemon) followWindows(ctx context.Context) {
	if d.opt.Raiser == nil {
		return
	}
	defer d.opt.Raiser.Restore()
	var b boost.Boosts
	var looked time.Time
	for {
		now := vcpu.Time(gate.Now())
		if time.Since(looked) >= weighEvery {
			looked = time.Now()
			b.Set(now, poolsOf(d.opt.Raiser.Groups(d.followers())))
		}
		d.follower.hear(now, &b)
		for _, w := range b.Writes(now) {
			if changed, err := d.opt.Raiser.Raise(w.Domain, w.Weight); err != nil || changed {
				looked = time.Time{} // a weight has changed: all groups are read again
			}
		}
		wait := min(max(b.Next().Sub(vcpu.Time(gate.Now())), 0), weighEvery)
		if looked.IsZero() {
			wait = min(wait, boost.MinWindow)
		}
		select {
		case <-time.After(wait):
		case <-d.follower.poke:
		case <-ctx.Done():
			return
		}
	}
}

// followers returns the machines on accelerators that enable following, by name.
func (d *Daemon) followers() []hypervisor.Guests {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []hypervisor.Guests
	for name, dom := range d.domains {
		if of, ok := d.machineGuests(name); ok && dom.on != nil && dom.on.current().CPUFollows {
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b hypervisor.Guests) int { return cmp.Compare(a.Domain, b.Domain) })
	return all
}

// poolsOf returns the groups by the parent in which they share the CPUs.
func poolsOf(groups []hypervisor.Group) (all []boost.Pool) {
	for _, g := range groups {
		i := slices.IndexFunc(all, func(p boost.Pool) bool { return p.Name == g.Parent })
		if i < 0 {
			i = len(all)
			all = append(all, boost.Pool{Name: g.Parent, Others: g.Others})
		}
		all[i].Machines = append(all[i].Machines, boost.Machine{Domain: g.Domain, Weight: g.Weight, Has: g.Has, Least: g.Least, Most: g.Most})
	}
	return all
}
