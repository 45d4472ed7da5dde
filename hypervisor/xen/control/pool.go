package control

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Pool is a part of the host's CPUs, with a scheduler and domains of its own. Nothing of it
// is shared with other pools.
type Pool struct {
	ID        uint32
	Scheduler Scheduler
	CPUs      []int
}

// maxCPUs is how many a host may have.
const maxCPUs = 4096

// Pools are all that there are, by number.
func (x *Xen) Pools() (all []Pool, err error) {
	const sysctlPool, poolInfo = 18, 3
	mem, at := x.behind()
	mem = mem[:maxCPUs/8]
	for next := uint32(0); ; {
		arg := x.argument()
		clear(mem)
		body := arg[sysctlBody:]
		le.PutUint32(body, poolInfo)
		le.PutUint32(body[4:], next)
		le.PutUint64(body[24:], at)
		le.PutUint32(body[32:], maxCPUs)
		err := x.sysctl(sysctlPool, arg)
		if errors.Is(err, syscall.ENOENT) { // there is none of that number or a higher one
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("ask Xen for CPU pool %d: %w", next, err)
		}
		p := Pool{ID: le.Uint32(body[4:]), Scheduler: Scheduler(le.Uint32(body[8:]))}
		if p.ID < next {
			return nil, fmt.Errorf("Xen says that CPU pool %d is the next one after %d", p.ID, next)
		}
		for i := range maxCPUs {
			if mem[i/8]>>(i%8)&1 != 0 {
				p.CPUs = append(p.CPUs, i)
			}
		}
		all = append(all, p)
		if next = p.ID + 1; next == 0 {
			return all, nil
		}
	}
}

// Slice is for how long a vCPU may run in the pool under Credit, and for how long it does at
// least under both schedulers.
func (x *Xen) Slice(p Pool) (slice, least time.Duration, err error) {
	const sysctlScheduler = 19
	arg := x.argument()
	body := arg[sysctlBody:]
	le.PutUint32(body, p.ID)
	le.PutUint32(body[4:], uint32(p.Scheduler))
	le.PutUint32(body[8:], schedulerGet)
	if err := x.sysctl(sysctlScheduler, arg); err != nil {
		return 0, 0, fmt.Errorf("ask Xen for the slice of %v in CPU pool %d: %w", p.Scheduler, p.ID, err)
	}
	if p.Scheduler == Credit2 { // which has the least time alone
		return 0, time.Duration(le.Uint32(body[16:])) * time.Microsecond, nil
	}
	return time.Duration(le.Uint32(body[16:])) * time.Millisecond, time.Duration(le.Uint32(body[20:])) * time.Microsecond, nil
}
