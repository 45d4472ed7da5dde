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

// record writes what the hypervisor notes of its scheduling for some seconds to a directory:
// `trace`, as xentrace would, and `dumps`, what it prints of it now and then. A dump has the
// times before and behind it, by the trace's clock. Then it prints what that cost.
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
	began := time.Now()
	var bytes, lost, reads int
	for next := began; time.Since(began).Seconds() < n; time.Sleep(10 * time.Millisecond) {
		if now := time.Now(); now.After(next) {
			next = now.Add(400 * time.Millisecond)
			before := trace.Now()
			text, err := dump.Take(x)
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

// known are those of the records that somebody here makes something of, which keeps what is
// recorded small. Any but a scheduler's own are.
func known(cpu int, records []byte) (b []byte) {
	trace.Decode(cpu, 0, records, func(r *trace.Record) {
		switch r.Event {
		case trace.AccountStart, trace.AccountStop, trace.Stolen, trace.PickedCPU, trace.BoostStart, trace.BoostEnd,
			trace.CreditBurn, trace.CreditReset, trace.QueueWeight:
		default:
			if r.Event&0xf000 == 0x2000 {
				return
			}
		}
		b = trace.Append(b, r)
	})
	return b
}
