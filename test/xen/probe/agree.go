package main

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/hypervisor/xen/runs"
	"pegasus/hypervisor/xen/trace"
)

// agree prints the time that each domU's vCPU ran in some seconds, by the hypervisor's trace
// and by the hypervisor's counters, and the cost of reading the trace.
func agree(seconds string) error {
	n, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	var both [2]*control.Xen
	var calls [2]*privcmd.Hypercalls
	for i := range both {
		if calls[i], err = privcmd.Open(); err != nil {
			return err
		}
		if both[i], err = control.New(calls[i]); err != nil {
			return err
		}
	}
	all, err := both[0].Domains()
	if err != nil {
		return err
	}
	var of []hypervisor.Guests
	for _, d := range all {
		of = append(of, hypervisor.Guests{Domain: fmt.Sprint(d.ID), Xen: d.ID})
	}
	r := runs.New(slog.New(slog.NewTextHandler(os.Stderr, nil)), trace.Now, func() (trace.Source, error) {
		return trace.Open(both[1], calls[1], trace.AllSchedule, 64)
	})
	defer r.Close()
	var gotRuns []hypervisor.Run
	watch := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			r.Look(of, func(run hypervisor.Run) { gotRuns = append(gotRuns, run) })
		}
	}
	watch(300 * time.Millisecond) // a vCPU that runs all the time appears in the trace at its next slice
	from, began, err := count(both[0], all)
	if err != nil {
		return err
	}
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	watch(time.Duration(n) * time.Second)
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	to, ended, err := count(both[0], all)
	if err != nil {
		return err
	}
	watch(300 * time.Millisecond)
	ran := make(map[string]int64)
	for _, run := range gotRuns {
		ran[fmt.Sprintf("%s.%d", run.Domain, run.VCPU)] += max(min(run.To, ended)-max(run.From, began), 0)
	}
	for name, was := range from {
		fmt.Printf("vcpu %s ran %d by the trace, %d by Xen\n", name, ran[name]/1e6, (to[name]-was)/1e6)
	}
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	fmt.Printf("%d runs in %d ms, %.1f %% of a CPU\n", len(gotRuns), (ended-began)/1e6, 100*float64(used)/float64(ended-began))
	return nil
}

// count returns the time that the vCPUs of domUs have run, and the time of that reading.
func count(x *control.Xen, all []control.Domain) (ran map[string]int64, at int64, err error) {
	ran = make(map[string]int64)
	for _, d := range all {
		for n := 0; d.ID != 0 && n <= d.MaxVCPU; n++ {
			v, err := x.VCPU(d.ID, uint32(n))
			if err != nil {
				return nil, 0, err
			}
			ran[fmt.Sprintf("%d.%d", d.ID, n)] = int64(v.CPUTime)
		}
	}
	return ran, trace.Now().Nanos, nil
}
