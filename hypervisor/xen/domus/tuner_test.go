package domus

import (
	"encoding/binary"
	"strings"
	"syscall"
	"testing"

	"pegasus/hypervisor/xen/control"
)

var le = binary.LittleEndian

// A hypervisor of release 4.17 under Credit, with domain 3 of two vCPUs.
type hypercalls struct {
	mem         []byte
	weight, cap uint16
}

func (f *hypercalls) Memory() []byte  { return f.mem }
func (f *hypercalls) Address() uint64 { return 0x7f0000000000 }

func (f *hypercalls) Call(op uint64, _ ...uint64) (int64, error) {
	const version, sysctl, domctl = 17, 35, 36
	cmd, iface := le.Uint32(f.mem), le.Uint32(f.mem[4:])
	switch {
	case op == version:
		return 4<<16 | 17, nil
	case iface != 0x15:
		return 0, syscall.EACCES
	case op == sysctl && cmd == 4: // which scheduler
		le.PutUint32(f.mem[8:], uint32(control.Credit))
	case op == sysctl && cmd == 6: // which domains
		le.PutUint16(f.mem[4096:], 3)
		le.PutUint32(f.mem[4096+64:], 2)
		le.PutUint32(f.mem[8+16:], 1)
	case op == domctl && cmd == 16 && le.Uint32(f.mem[16+4:]) == 1: // how it is scheduled
		le.PutUint16(f.mem[16+8:], f.weight)
		le.PutUint16(f.mem[16+10:], f.cap)
	case op == domctl && cmd == 16:
		if w := le.Uint16(f.mem[16+8:]); w != 0 {
			f.weight = w
		}
		if c := le.Uint16(f.mem[16+10:]); c != 0xffff {
			f.cap = c
		}
	}
	return 0, nil
}

// What Xen takes without complaint, but no tool of its own lets through, is refused, and then nothing is set.
func TestTuner(t *testing.T) {
	f := &hypercalls{mem: make([]byte, 17*4096), weight: 256}
	x, err := control.New(f)
	if err != nil {
		t.Fatal(err)
	}
	tuner := NewTuner(x, func(name string) (uint16, bool) { return 3, name == "web" })
	n := func(n int) *int { return &n }
	for _, c := range []struct {
		name        string
		weight, cap *int
		want        string // of the error
		has         [2]int
	}{
		{"web", n(512), nil, "", [2]int{512, 0}},
		{"web", nil, n(150), "", [2]int{512, 150}},
		{"web", n(0), nil, "weight = 0: must be from 1 to 65535", [2]int{512, 150}},
		{"web", n(65536), nil, "weight = 65536", [2]int{512, 150}},
		{"web", n(300), n(201), "cap = 201: must be from 1 to 200", [2]int{512, 150}},
		{"web", n(300), n(-1), "cap = -1", [2]int{512, 150}},
		{"web", n(300), n(0), "", [2]int{300, 0}},
		{"db", n(300), nil, `there is no domU "db" now`, [2]int{300, 0}},
	} {
		err := tuner.Tune(c.name, c.weight, c.cap)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
		if w, err := tuner.Tuned("web"); err != nil || [2]int{int(w.Credits), w.Cap} != c.has {
			t.Errorf("%+v: it has %+v, %v", c, w, err)
		}
	}
	if _, err := tuner.Tuned("db"); err == nil {
		t.Error("who isn't there has a weight")
	}
}
