package cpus

import (
	"errors"
	"slices"
	"syscall"

	"pegasus/hypervisor/weightjournal"
	"pegasus/hypervisor/xen/control"
)

// PutBack restores a domain's configured weight, if it still has a weight that a dead daemon wrote.
func PutBack(x Xen, r weightjournal.Record) (put bool, err error) {
	if r.Set > control.MaxWeight {
		return false, nil
	}
	s, err := schedulerOf(x, r.Xen)
	if err != nil {
		return false, err
	}
	p, err := x.Params(s, r.Xen)
	switch {
	case errors.Is(err, syscall.ESRCH): // the domain is off
		return false, nil
	case err != nil:
		return false, err
	case !slices.Contains(r.Ours, int64(p.Weight)):
		return false, nil
	}
	return true, x.SetWeight(s, r.Xen, uint16(r.Set))
}

// schedulerOf returns the scheduler of a domain's pool; for a domain that has ended, any pool's.
func schedulerOf(x Xen, id uint16) (control.Scheduler, error) {
	all, err := x.Domains()
	if err != nil {
		return 0, err
	}
	pools, err := x.Pools()
	if err != nil {
		return 0, err
	}
	at := slices.IndexFunc(all, func(d control.Domain) bool { return d.ID == id })
	for _, p := range pools {
		if at < 0 || p.ID == all[at].Pool {
			return p.Scheduler, nil
		}
	}
	return 0, errors.New("Xen has no CPU pool")
}
