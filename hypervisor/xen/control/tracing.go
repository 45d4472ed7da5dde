package control

import "fmt"

// Tracing is what the hypervisor says of its trace buffers, which it has one of for each CPU
// once somebody has asked for them.
type Tracing struct {
	Events    uint32 // the classes of events that are noted
	Frame     uint64 // where the table of buffers begins, a page's number; 0: there are none
	InfoBytes int    // of that table
}

const (
	tracingInfo = iota
	tracingSetCPUs
	tracingSetEvents
	tracingSetSize
	tracingOn
	tracingOff
)

func (x *Xen) tracing(cmd uint32, arg []byte) error {
	const sysctlTraceBuffers = 2
	le.PutUint32(arg[sysctlBody:], cmd)
	return x.sysctl(sysctlTraceBuffers, arg)
}

// Tracing asks what there is.
func (x *Xen) Tracing() (Tracing, error) {
	arg := x.argument()
	if err := x.tracing(tracingInfo, arg); err != nil {
		return Tracing{}, fmt.Errorf("ask Xen for its trace buffers: %w", err)
	}
	body := arg[sysctlBody:]
	return Tracing{Events: le.Uint32(body[24:]), Frame: le.Uint64(body[32:]), InfoBytes: int(le.Uint32(body[40:]))}, nil
}

// TraceEvents sets which classes of events are noted.
func (x *Xen) TraceEvents(mask uint32) error {
	arg := x.argument()
	le.PutUint32(arg[sysctlBody+24:], mask)
	if err := x.tracing(tracingSetEvents, arg); err != nil {
		return fmt.Errorf("set Xen's trace events to %#x: %w", mask, err)
	}
	return nil
}

// TraceCPUs has the events of all CPUs noted.
func (x *Xen) TraceCPUs() error {
	const cpus = 4096
	mem, at := x.behind()
	for i := range mem[:cpus/8] {
		mem[i] = 0xff
	}
	arg := x.argument()
	le.PutUint64(arg[sysctlBody+8:], at)
	le.PutUint32(arg[sysctlBody+16:], cpus)
	if err := x.tracing(tracingSetCPUs, arg); err != nil {
		return fmt.Errorf("have Xen trace all CPUs: %w", err)
	}
	return nil
}

// TraceSize makes trace buffers of so many pages for each CPU, and begins to note events.
// It can be done once until the host boots again.
func (x *Xen) TraceSize(pages int) error {
	arg := x.argument()
	le.PutUint32(arg[sysctlBody+40:], uint32(pages))
	if err := x.tracing(tracingSetSize, arg); err != nil {
		return fmt.Errorf("have Xen make trace buffers of %d pages: %w", pages, err)
	}
	return nil
}

// Trace begins or ends that events are noted. There have to be buffers.
func (x *Xen) Trace(on bool) error {
	cmd := uint32(tracingOff)
	if on {
		cmd = tracingOn
	}
	if err := x.tracing(cmd, x.argument()); err != nil {
		return fmt.Errorf("switch Xen's tracing to %v: %w", on, err)
	}
	return nil
}
