package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/hypervisor/xen/trace"
)

// record writes the hypervisor's scheduling records of some seconds to a directory:
// `trace` in xentrace's format, and `dumps`, the hypervisor's own prints now and then. Each dump has the
// times before and behind it, by the trace's clock. Then record prints the cost of recording.
func record(dir, seconds string) error {
	n, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	calls, err := privcmd.Open()
	if err != nil {
		return err
	}
	defer calls.Close()
	x, err := control.New(calls)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, "trace"))
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	dumps, err := os.Create(filepath.Join(dir, "dumps"))
	if err != nil {
		return err
	}
	defer dumps.Close()
	b, err := trace.Open(x, calls, trace.AllSchedule, 64)
	if err != nil {
		return err
	}
	defer b.Close()
	printer := dump.NewPrinter(x)
	began := time.Now()
	var bytes, lost, reads int
	for next := began; time.Since(began).Seconds() < n; time.Sleep(10 * time.Millisecond) {
		if now := time.Now(); now.After(next) {
			next = now.Add(200 * time.Millisecond)
			before := trace.Now()
			text, err := printer.Take()
			if err != nil {
				return err
			}
			fmt.Fprintf(dumps, "dump %d %d\n%s", before.Ticks, trace.Now().Ticks, text)
		}
		reads++
		b.Read(func(cpu int, records []byte, missed bool) {
			bytes += len(records)
			if missed {
				lost++
			}
			if werr := trace.WriteTo(out, cpu, known(cpu, records)); werr != nil {
				err = werr
			}
		})
		if err != nil {
			return err
		}
	}
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	fmt.Printf("recorded %d bytes in %d reads, %d lost; existed %v shared %v; %.1f %% of a CPU\n", bytes, reads, lost, b.Existed(), b.Shared(),
		float64(used.Utime.Nano()+used.Stime.Nano())/float64(time.Since(began))*100)
	return out.Flush()
}

// known returns the records of the kinds that the project evaluates, which keeps the recording
// small.
func known(cpu int, records []byte) (b []byte) {
	trace.Decode(cpu, 0, records, func(r *trace.Record) {
		switch r.Kind() {
		case trace.Lost, trace.Running, trace.Continues, trace.SwitchPrev, trace.SwitchNext,
			trace.AccountStart, trace.AccountStop, trace.Stolen, trace.PickedCPU, trace.BoostStart, trace.BoostEnd,
			trace.CreditBurn, trace.CreditReset, trace.QueueWeight:
			b = trace.Append(b, r)
		}
	})
	return b
}

// silence switches the hypervisor's tracing off, as a reader of the trace does at its end.
func silence() error {
	calls, err := privcmd.Open()
	if err != nil {
		return err
	}
	defer calls.Close()
	x, err := control.New(calls)
	if err != nil {
		return err
	}
	return x.Trace(false)
}
