package control

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Pool is a part of the host's CPUs, with a scheduler and domains of its own. It shares nothing with other pools.
type Pool struct {
	ID        uint32
	Scheduler Scheduler
	CPUs      []int
}

// maxCPUs is the supported number of a host's CPUs.
const maxCPUs = 4096

// Pools returns all pools, by number.
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
		if errors.Is(err, syscall.ENOENT) { // no pool has that number or a higher one
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("query CPU pool %d: %w", next, err)
		}
		p := Pool{ID: le.Uint32(body[4:]), Scheduler: Scheduler(le.Uint32(body[8:]))}
		if p.ID < next {
			return nil, fmt.Errorf("Xen reports CPU pool %d as the next one after %d", p.ID, next)
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

const (
	sysctlScheduler = 19
	// MaxSlice is Credit's longest slice; the shortest is a millisecond.
	MaxSlice = time.Second
)

// Slice returns the time slice of the pool's vCPUs under Credit, and their least running time under both schedulers.
func (x *Xen) Slice(p Pool) (slice, least time.Duration, err error) {
	arg, err := x.scheduling(p)
	if err != nil {
		return 0, 0, err
	}
	body := arg[sysctlBody:]
	if p.Scheduler == Credit2 { // Credit2 has only the least time
		return 0, time.Duration(le.Uint32(body[16:])) * time.Microsecond, nil
	}
	return time.Duration(le.Uint32(body[16:])) * time.Millisecond, time.Duration(le.Uint32(body[20:])) * time.Microsecond, nil
}

// SetSlice sets the pool's time slice, in whole milliseconds, and keeps its other parameters. Only Credit has one.
func (x *Xen) SetSlice(p Pool, slice time.Duration) error {
	if p.Scheduler != Credit {
		return fmt.Errorf("CPU pool %d is of %v, which has no slice: it lets vCPUs run as it sees fit", p.ID, p.Scheduler)
	}
	_, least, err := x.Slice(p)
	switch {
	case err != nil:
		return err
	case slice%time.Millisecond != 0 || slice < max(least, time.Millisecond) || slice > MaxSlice:
		return fmt.Errorf("slice %v of CPU pool %d: want whole milliseconds from %v, for which a vCPU runs at least, to %v", slice, p.ID, max(least, time.Millisecond), MaxSlice)
	}
	arg, err := x.scheduling(p)
	if err != nil {
		return err
	}
	body := arg[sysctlBody:]
	le.PutUint32(body[8:], schedulerPut)
	le.PutUint32(body[16:], uint32(slice/time.Millisecond))
	if err := x.sysctl(sysctlScheduler, arg); err != nil {
		return fmt.Errorf("set the slice of CPU pool %d to %v: %w", p.ID, slice, err)
	}
	return nil
}

// scheduling reads the parameters of a pool's scheduler, which are in its argument's body from byte 16 on.
func (x *Xen) scheduling(p Pool) (arg []byte, err error) {
	arg = x.argument()
	body := arg[sysctlBody:]
	le.PutUint32(body, p.ID)
	le.PutUint32(body[4:], uint32(p.Scheduler))
	le.PutUint32(body[8:], schedulerGet)
	if err := x.sysctl(sysctlScheduler, arg); err != nil {
		return nil, fmt.Errorf("query the slice of %v in CPU pool %d: %w", p.Scheduler, p.ID, err)
	}
	return arg, nil
}
