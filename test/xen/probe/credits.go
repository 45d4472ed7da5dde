package main

import (
	"fmt"
	"syscall"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/cpus"
	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/hypervisor/xen/trace"
	"pegasus/vcpu"
)

// traceSource opens the hypervisor's trace buffers.
func traceSource(events uint32) func() (trace.Source, error) {
	return func() (trace.Source, error) {
		calls, err := privcmd.Open()
		if err != nil {
			return nil, err
		}
		x, err := control.New(calls)
		if err != nil {
			return nil, err
		}
		return trace.Open(x, calls, events, 64)
	}
}

// compareCredits samples the CPUs every 30 ms as the daemon does. Behind every sixth sample it prints each domain's
// credits in the sample beside the hypervisor's own print: the most of the domain's vCPUs, in units of 100 µs.
// For each other sample it prints a domain's first vCPU's predicted part and its measured part of the time since
// the sample before, in ‰; at the end, the number of predictions of the next vCPU, and the cost of sampling.
func compareCredits(x *control.Xen, c *cpus.CPUs, times int, of []hypervisor.Guests) error {
	const period, often = 30 * time.Millisecond, 6
	printer := dump.NewPrinter(x)
	var seen, next []vcpu.Schedule
	var before []hypervisor.Spent
	var at time.Time
	began, used := time.Now(), usage()
	var printing time.Duration
	for n := range times {
		for k := range often {
			time.Sleep(period)
			next = seen
			spent, now := c.Spent(of), time.Now()
			seen, _ = c.Look(monotonic(), period, of)
			for i := range next {
				if k > 0 && len(next[i].VCPUs) > 0 { // not while it was printed
					fmt.Printf("ran %d %s %d %d\n", n, of[i].Domain, next[i].VCPUs[0].Next, 1000*(spent[i].Ran-before[i].Ran)/now.Sub(at))
				}
			}
			before, at = spent, now
		}
		from := time.Now()
		text, err := printer.Take()
		if err != nil {
			return err
		}
		took := time.Since(from)
		printing += took
		middle := int64(monotonic()) - int64(took/2)
		d, err := dump.Parse(text)
		if err != nil {
			return err
		}
		// The first samples have too little history, and a print that took long can't be dated well enough.
		if n > 4 && took < 5*time.Millisecond {
			c.Compare(d, middle)
		}
		for i, s := range seen {
			if most, ok := remaining(d, of[i].Xen); ok {
				fmt.Printf("credit %d %s %d %d\n", n, of[i].Domain, s.Remaining, most)
			}
		}
	}
	c.Look(monotonic(), period, of)
	agreed := c.Compare(&dump.Dump{}, 0)
	fmt.Printf("agreed %d %d %d\n", agreed.VCPUs, agreed.Signs, agreed.Off.Microseconds())
	asked, right, asNow := c.Foretold()
	fmt.Printf("foretold %d %d %d\n", asked, right, asNow)
	all := time.Since(began)
	fmt.Printf("cost %.2f %v\n", 100*float64(usage()-used-printing)/float64(all), printing/time.Duration(times))
	return nil
}

// remaining returns a domain's credits in the hypervisor's print: the most of its vCPUs', in units of 100 µs.
func remaining(d *dump.Dump, domain uint16) (most int64, ok bool) {
	for _, v := range d.VCPUs {
		if v.ID.Domain == domain && (!ok || v.Credit > most) {
			most, ok = v.Credit, true
		}
	}
	if len(d.Queues) > 0 { // Credit2 has ns
		most /= 100000
	}
	return most, ok
}

// usage is the CPU time that this process has used.
func usage() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
