package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
	"pegasus/hypervisor/weightjournal"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/cpus"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/hypervisor/xen/trace"
	"pegasus/vcpu"
)

// cpuSide handles domUs' CPUs and weights as the daemon does: `look TIMES EVERY ID…` prints samples of
// the CPUs; `credits TIMES ID…` prints the modelled credits of domUs beside the hypervisor's credits,
// and `accounts` does so without the trace; `raise DIR NAME ID WEIGHT` changes a weight, and lives on; `guard DIR NAME`
// restores the weight when that process has died.
func cpuSide(args []string) error {
	calls, err := privcmd.Open()
	if err != nil {
		return err
	}
	defer calls.Close()
	x, err := control.New(calls)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	switch {
	case len(args) > 3 && args[0] == "look":
		times, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		every, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		of, err := guests(args[3:])
		if err != nil {
			return err
		}
		c := cpus.NewCPUs(x, log)
		c.Trace(trace.Follow(trace.Now, traceSource(cpus.TraceEvents)))
		defer c.Close()
		look(c, times, every, of)
	case len(args) > 2 && (args[0] == "credits" || args[0] == "accounts"):
		times, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		of, err := guests(args[2:])
		if err != nil {
			return err
		}
		c := cpus.NewCPUs(x, log)
		if args[0] == "credits" {
			c.Trace(trace.Follow(trace.Now, traceSource(cpus.TraceEvents)))
			c.Print(x)
		}
		defer c.Close()
		return compareCredits(x, c, times, of)
	case len(args) == 5 && args[0] == "raise":
		of, err := guests(args[3:4])
		if err != nil {
			return err
		}
		of[0].Domain = args[2]
		weight, err := strconv.ParseInt(args[4], 10, 64)
		if err != nil {
			return err
		}
		r := cpus.NewCPUs(x, log).Raiser(args[1])
		fmt.Printf("it is %+v\n", r.Groups(of))
		if _, err := r.Raise(args[2], weight); err != nil {
			return err
		}
		fmt.Printf("it is %+v, as %d says\n", r.Groups(of), os.Getpid())
		time.Sleep(time.Hour)
	case len(args) == 3 && args[0] == "guard":
		weightjournal.Guard(context.Background(), args[1], args[2], log, func(r weightjournal.Record) (bool, error) { return cpus.PutBack(x, r) })
	default:
		return fmt.Errorf("usage: probe cpus look TIMES EVERY ID… | credits TIMES ID… | raise DIR NAME ID WEIGHT | guard DIR NAME")
	}
	return nil
}

// guests returns machines by their domain IDs.
func guests(ids []string) (all []hypervisor.Guests, err error) {
	for _, text := range ids {
		id, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		all = append(all, hypervisor.Guests{Domain: text, VM: true, Xen: uint16(id)})
	}
	return all, nil
}

func monotonic() vcpu.Time {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // which can't fail
	return vcpu.Time(now.Nano())
}

// look prints how often vCPUs were sampled in each state, and their last sample.
func look(c *cpus.CPUs, times int, every time.Duration, of []hypervisor.Guests) {
	var seen []vcpu.Schedule
	var quality vcpu.Quality
	var took time.Duration
	states := make(map[[2]int][4]int)
	before := c.Spent(of)
	for range times {
		time.Sleep(every)
		began := time.Now()
		seen, quality = c.Look(monotonic(), every, of)
		took += time.Since(began)
		for i, s := range seen {
			for n, v := range s.VCPUs {
				count := states[[2]int{i, n}]
				count[v.State]++
				states[[2]int{i, n}] = count
			}
		}
	}
	fmt.Printf("quality %d, %v a look\n", quality, took/time.Duration(times))
	spent := c.Spent(of)
	for i, s := range seen {
		fmt.Printf("domain %s weight %d cap %d left %d ran %v waited %v\n", of[i].Domain, s.Weight, s.Cap, s.Remaining, spent[i].Ran-before[i].Ran, spent[i].Waited-before[i].Waited)
		for n, v := range s.VCPUs {
			count := states[[2]int{i, n}]
			fmt.Printf("vcpu %s.%d cpu %d running %d runnable %d blocked %d next %d\n", of[i].Domain, v.ID, v.PCPU, count[vcpu.Running], count[vcpu.Runnable], count[vcpu.Blocked], v.Next)
		}
	}
}
