package control

import (
	"strings"
	"syscall"
	"testing"
)

// console is a fake hypervisor with a console and trace buffers.
type console struct {
	*fake
	text    string
	begins  uint32 // the index of the remaining text
	pressed string
	says    uint32 // the number of bytes that it claims to have written, if not 0
	tracing Tracing
	cpus    uint32
	on      bool
}

func (c *console) Call(op uint64, args ...uint64) (int64, error) {
	if op != opSysctl || le.Uint32(c.mem[4:]) != c.sysctl {
		return c.fake.Call(op, args...)
	}
	b := c.mem[sysctlBody:]
	at := func(i int) []byte { return c.mem[le.Uint64(b[i:])-fakeAddress:] }
	switch le.Uint32(c.mem) {
	case 1:
		from := max(le.Uint32(b[4:]), c.begins)
		n := copy(at(8)[:min(le.Uint32(b[16:]), 10)], c.text[from-c.begins:])
		le.PutUint32(b[4:], from+uint32(n))
		le.PutUint32(b[16:], uint32(n)+c.says)
	case 7:
		c.pressed += string(at(0)[:le.Uint32(b[8:])])
	case 2:
		switch le.Uint32(b) {
		case tracingInfo:
			le.PutUint32(b[24:], c.tracing.Events)
			le.PutUint64(b[32:], c.tracing.Frame)
			le.PutUint32(b[40:], uint32(c.tracing.InfoBytes))
		case tracingSetCPUs:
			c.cpus = le.Uint32(b[16:])
			if le.Uint64(at(8)) != 1<<64-1 {
				return 0, syscall.EINVAL
			}
		case tracingSetEvents:
			c.tracing.Events = le.Uint32(b[24:])
		case tracingSetSize:
			if c.tracing.Frame != 0 {
				return 0, syscall.EINVAL
			}
			c.tracing.Frame, c.tracing.InfoBytes = 77, int(le.Uint32(b[40:]))*8
		case tracingOn:
			c.on = true
		case tracingOff:
			c.on = false
		}
	default:
		return c.fake.Call(op, args...)
	}
	return 0, nil
}

func TestConsole(t *testing.T) {
	c := &console{fake: newFake(layouts[4], 1), text: "(XEN) more than fits at once", begins: 1000}
	x, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var all string
	for next := uint32(0); ; {
		part, to, err := x.Console(next)
		if err != nil {
			t.Fatal(err)
		}
		if next = to; len(part) == 0 {
			break
		}
		all += string(part)
	}
	if all != c.text {
		t.Errorf("it has printed %q", all)
	}
	if err := x.Press("r"); err != nil || c.pressed != "r" {
		t.Errorf("%q is pressed, %v", c.pressed, err)
	}
	c.says = 1 << 30
	if _, _, err := x.Console(0); err == nil || !strings.Contains(err.Error(), "written to a buffer of") {
		t.Errorf("%v", err)
	}
}

func TestTracing(t *testing.T) {
	c := &console{fake: newFake(layouts[0], 1)}
	x, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{x.TraceEvents(0x2f000), x.TraceCPUs(), x.TraceSize(32), x.Trace(true)} {
		if err != nil {
			t.Error(err)
		}
	}
	if now, err := x.Tracing(); err != nil || now != (Tracing{Events: 0x2f000, Frame: 77, InfoBytes: 256}) || !c.on || c.cpus == 0 {
		t.Errorf("%+v, on %v, %v", now, c.on, err)
	}
	if err := x.TraceSize(64); err == nil || !strings.Contains(err.Error(), "64 pages") {
		t.Errorf("another size: %v", err)
	}
	if err := x.Trace(false); err != nil || c.on {
		t.Errorf("on %v, %v", c.on, err)
	}
}
