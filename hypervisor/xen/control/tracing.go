package control

import "fmt"

// Tracing is the state of the hypervisor's trace buffers, of which it has one for each CPU once a program has
// requested them.
type Tracing struct {
	Events    uint32 // the enabled classes of events
	Frame     uint64 // first frame of the table of buffers; 0: there are none
	InfoBytes int    // size of that table
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

// Tracing returns the current state.
func (x *Xen) Tracing() (Tracing, error) {
	arg := x.argument()
	if err := x.tracing(tracingInfo, arg); err != nil {
		return Tracing{}, fmt.Errorf("query Xen's trace buffers: %w", err)
	}
	body := arg[sysctlBody:]
	return Tracing{Events: le.Uint32(body[24:]), Frame: le.Uint64(body[32:]), InfoBytes: int(le.Uint32(body[40:]))}, nil
}

// TraceEvents sets the enabled classes of events.
func (x *Xen) TraceEvents(mask uint32) error {
	arg := x.argument()
	le.PutUint32(arg[sysctlBody+24:], mask)
	if err := x.tracing(tracingSetEvents, arg); err != nil {
		return fmt.Errorf("set Xen's trace events to %#x: %w", mask, err)
	}
	return nil
}

// TraceCPUs enables tracing on all CPUs.
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

// TraceSize creates trace buffers of so many pages for each CPU, and starts tracing. It works once until the host
// boots again.
func (x *Xen) TraceSize(pages int) error {
	arg := x.argument()
	le.PutUint32(arg[sysctlBody+40:], uint32(pages))
	if err := x.tracing(tracingSetSize, arg); err != nil {
		return fmt.Errorf("have Xen make trace buffers of %d pages: %w", pages, err)
	}
	return nil
}

// Trace starts or stops tracing. The buffers have to exist.
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
