package main

import (
	"log/slog"

	"pegasus/hypervisor"
	"pegasus/hypervisor/linux"
	"pegasus/hypervisor/linux/switches"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/hypervisor/xen/runs"
	"pegasus/hypervisor/xen/trace"
)

// tracePages is the size of Xen's trace buffer for each CPU, in pages: at 100,000 switches a second it is
// full after 40 ms, and it is read every 2 ms.
const tracePages = 64

// tracedRuns returns the runs of domUs, by the hypervisor's trace, and of Dom0's own programs.
func tracedRuns(readers *trace.SharedReaders, log *slog.Logger) hypervisor.Runs {
	return runs.Both{
		DomUs: runs.New(log, trace.Now, func() (trace.Source, error) { return openTrace(readers, trace.AllSchedule, log) }),
		Dom0:  linux.NewRuns(log, switches.Load),
	}
}

// traced is the trace buffers, with the connection by which they are mapped.
type traced struct {
	*trace.Buffers
	calls *privcmd.Hypercalls
}

func openTrace(readers *trace.SharedReaders, events uint32, log *slog.Logger) (trace.Source, error) {
	calls, err := privcmd.Open()
	if err != nil {
		return nil, err
	}
	x, err := control.New(calls)
	if err != nil {
		calls.Close()
		return nil, err
	}
	b, err := readers.Open(x, calls, events, tracePages)
	if err != nil {
		calls.Close()
		return nil, err
	}
	if b.Existed() {
		log.Info("Xen's trace buffers exist already, with their own size; a running xentrace keeps its records")
	}
	return traced{b, calls}, nil
}

func (t traced) Close() error {
	err := t.Buffers.Close()
	t.calls.Close()
	return err
}
