package main

import (
	"fmt"

	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/privcmd"
)

// sched prints the hypervisor's state of all vCPUs, and each domain's scheduling parameters.
func sched() error {
	calls, err := privcmd.Open()
	if err != nil {
		return err
	}
	defer calls.Close()
	x, err := control.New(calls)
	if err != nil {
		return err
	}
	s, err := x.Scheduler()
	if err != nil {
		return err
	}
	slice, least, err := x.Slice(control.Pool{Scheduler: s})
	if err != nil {
		return err
	}
	fmt.Printf("Xen %d.%d %v slice %v least %v\n", x.Major, x.Minor, s, slice, least)
	all, err := x.Domains()
	if err != nil {
		return err
	}
	for _, d := range all {
		p, err := x.Params(s, d.ID)
		if err != nil {
			return err
		}
		fmt.Printf("domain %d weight %d cap %d\n", d.ID, p.Weight, p.Cap)
		for n := 0; n <= d.MaxVCPU; n++ {
			v, err := x.VCPU(d.ID, uint32(n))
			if err != nil {
				return err
			}
			fmt.Printf("vcpu %d.%d cpu %d running %v blocked %v time %.1f\n", d.ID, n, v.CPU, v.Running, v.Blocked, v.CPUTime.Seconds())
		}
	}
	return nil
}

// weigh sets a domain's weight, and reads it back.
func weigh(domain, weight uint16) error {
	calls, err := privcmd.Open()
	if err != nil {
		return err
	}
	defer calls.Close()
	x, err := control.New(calls)
	if err != nil {
		return err
	}
	s, err := x.Scheduler()
	if err != nil {
		return err
	}
	return x.SetWeight(s, domain, weight)
}
