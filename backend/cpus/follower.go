package cpus

import (
	"context"
	"slices"
	"sync"
	"time"

	"pegasus/backend/sched"
	"pegasus/hypervisor"
	"pegasus/policies/boost"
	"pegasus/vcpu"
)

// Follower makes the CPU weights of machines follow the windows of the accelerators that enable it. Scheduler loops
// report windows to it and never wait for it.
type Follower struct {
	raiser   hypervisor.Raiser
	machines func() []hypervisor.Guests
	now      sched.Clock
	changed  chan struct{} // has an element when windows has

	mu      sync.Mutex
	windows map[string]vcpu.Time // changes since Run last applied them, by domain: when its window ends; 0: it has ended
}

// NewFollower returns a follower that changes weights by raiser; nil: no weight is changed. machines returns the
// machines on accelerators that enable following, by name.
func NewFollower(raiser hypervisor.Raiser, machines func() []hypervisor.Guests, now sched.Clock) *Follower {
	return &Follower{raiser: raiser, machines: machines, now: now, changed: make(chan struct{}, 1), windows: make(map[string]vcpu.Time)}
}

// Window records that a domain has its accelerator until then; 0: no longer.
func (f *Follower) Window(domain string, until vcpu.Time) {
	f.mu.Lock()
	f.windows[domain] = until
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// apply passes the recorded windows to b.
func (f *Follower) apply(now vcpu.Time, b *boost.Boosts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for domain, until := range f.windows { // in any order: each belongs to another machine
		if until > now {
			b.Open(now, domain, until.Sub(now))
		} else {
			b.Close(now, domain)
		}
	}
	clear(f.windows)
}

// Run raises and lowers CPU weights until ctx ends; then it restores all.
func (f *Follower) Run(ctx context.Context) {
	if f.raiser == nil {
		return
	}
	defer f.raiser.Restore()
	var b boost.Boosts
	var read time.Time // when the groups were last read
	for {
		now := vcpu.Time(f.now())
		if time.Since(read) >= weighEvery {
			read = time.Now()
			b.Set(now, poolsOf(f.raiser.Groups(f.machines())))
		}
		f.apply(now, &b)
		for _, w := range b.Writes(now) {
			if changed, err := f.raiser.Raise(w.Domain, w.Weight); err != nil || changed {
				read = time.Time{} // a weight has changed: all groups are read again
			}
		}
		wait := min(max(b.Next().Sub(vcpu.Time(f.now())), 0), weighEvery)
		if read.IsZero() {
			wait = min(wait, boost.MinWindow)
		}
		select {
		case <-time.After(wait):
		case <-f.changed:
		case <-ctx.Done():
			return
		}
	}
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
