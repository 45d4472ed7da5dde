package schedule

import (
	"slices"
	"testing"

	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
)

func id(domain uint16) trace.VCPU { return trace.VCPU{Domain: domain} }

// state adds a transition of a domain's vCPU.
func state(h *History, at int64, cpu int, domain uint16, from, to trace.Runstate) {
	r := trace.Record{CPU: cpu, Event: trace.Running | uint32(from)<<8 | uint32(to)<<4, N: 1}
	r.Words[0] = uint32(domain) << 16
	h.Take(at, &r)
}

func grant(h *History, at int64, cpu int, domain uint16, slice int64) {
	h.Take(at, &trace.Record{CPU: cpu, Event: trace.SwitchNext, N: 4, Words: [7]uint32{uint32(domain), 0, 0, uint32(slice)}})
}

// A CPU's queue is in order: vCPUs with credit before those without, then by waiting time.
func TestQueue(t *testing.T) {
	h := NewHistory(nil)
	for d := uint16(1); d <= 3; d++ {
		state(h, int64(d), 0, d, trace.Runs, trace.Waits)
	}
	grant(h, 10*ms, 0, 4, 30*ms)
	state(h, 10*ms, 0, 4, trace.Waits, trace.Runs)
	h.now = 30 * ms // 10 ms of 4's slice are left
	rules := Rules{Slice: 30 * ms, Least: ms, Priority: func(v trace.VCPU) int {
		if v.Domain == 1 {
			return dump.Over
		}
		return dump.Under
	}}
	p := h.Predict(rules, 100*ms)
	if p.Middle[0] != id(3) {
		t.Errorf("at 50 ms %v runs", p.Middle)
	}
	for d, want := range map[uint16]int64{4: 40 * ms, 2: 30 * ms, 3: 30 * ms, 1: 0} {
		if p.Runs[id(d)] != want {
			t.Errorf("domain %d runs %d ns, not %d", d, p.Runs[id(d)], want)
		}
	}
}

// A slice is recorded just before the vCPU runs.
func TestSliceLeft(t *testing.T) {
	h := NewHistory(nil)
	grant(h, 10*ms, 0, 4, 30*ms)
	state(h, 10*ms+1000, 0, 4, trace.Waits, trace.Runs)
	if left, ok := h.CPUs()[0].SliceLeft(20 * ms); !ok || left != 20*ms {
		t.Errorf("%d ns are left, %v", left, ok)
	}
	state(h, 30*ms, 0, 5, trace.Waits, trace.Runs)
	if left, ok := h.CPUs()[0].SliceLeft(30 * ms); ok {
		t.Errorf("another has %d ns", left)
	}
}

// Under Credit2, without a recorded slice, a vCPU runs until it has no more credit than the waiting one.
func TestCreditExpires(t *testing.T) {
	h := NewHistory(nil)
	burn := func(at int64, domain uint16, credit int32) {
		h.Take(at, &trace.Record{Event: trace.CreditBurn, N: 4, Words: [7]uint32{uint32(domain) << 16, uint32(credit)}})
	}
	state(h, 0, 0, 2, trace.Runs, trace.Waits)
	state(h, 1, 0, 1, trace.Waits, trace.Runs)
	burn(1, 1, 7*ms)
	burn(1, 2, 4*ms)
	p := h.Predict(Rules{Credit2: true, Slice: 10 * ms, Least: ms}, 10*ms)
	if p.Runs[id(1)] < 3*ms || p.Middle[0] != id(2) {
		t.Errorf("%+v", p)
	}
}

// An idle CPU takes a vCPU that waits for another.
func TestStealing(t *testing.T) {
	h := NewHistory(nil)
	state(h, 0, 1, trace.Idle, trace.Waits, trace.Runs)
	state(h, 0, 0, 1, trace.Waits, trace.Runs)
	state(h, 0, 0, 2, trace.Runs, trace.Waits)
	if p := h.Predict(Rules{Slice: 30 * ms}, 30*ms); p.Middle[0] != id(1) || p.Middle[1] != id(2) {
		t.Errorf("%v run", p.Middle)
	}
	if p := AsNow(h, 30*ms); p.Middle[0] != id(1) || p.Middle[1] != (trace.VCPU{Domain: trace.Idle}) {
		t.Errorf("%v run now", p.Middle)
	}
}

// Lost runs aren't invented: the running vCPU is unknown from then on, until the next record.
func TestLost(t *testing.T) {
	var runs []Run
	h := NewHistory(func(r Run) { runs = append(runs, r) })
	state(h, 10, 0, 1, trace.Waits, trace.Runs)
	h.Take(50, &trace.Record{Event: trace.Lost, N: 4})
	state(h, 90, 0, 1, trace.Runs, trace.Blocked)
	h.Take(100, &trace.Record{Event: trace.Continues, N: 1, Words: [7]uint32{2 << 16}})
	h.Take(130, &trace.Record{Event: trace.Wake, N: 2})
	h.Flush()
	if len(runs) != 2 || runs[0] != (Run{VCPU: id(1), From: 10, To: 50}) || runs[1] != (Run{VCPU: id(2), From: 100, To: 130}) {
		t.Errorf("%+v", runs)
	}
	if ran, waited, slept := h.VCPU(id(1)).Did(130); ran != 0 || waited != 0 || slept != 40 {
		t.Errorf("it ran %d, waited %d, slept %d", ran, waited, slept)
	}
	h.Forget(1)
	if h.VCPU(id(1)) != nil || len(h.VCPUs()) != 1 {
		t.Error("it isn't forgotten")
	}
}

// For any records: runs don't overlap, no vCPU's time exceeds the total, and predictions end.
func FuzzHistory(f *testing.F) {
	f.Add(unpack(f, "credit2.trace")[:4000])
	f.Add(unpack(f, "credit.trace")[:4000])
	f.Fuzz(func(t *testing.T, b []byte) {
		ends := make(map[int]int64)
		h := NewHistory(func(r Run) {
			if r.From < ends[r.CPU] || r.To <= r.From {
				t.Fatalf("%+v begins before %d", r, ends[r.CPU])
			}
			ends[r.CPU] = r.To
		})
		s := NewCreditModel(2, 30*ms)
		for d := range uint16(4) {
			s.Share(d, Share{Cap: int(d) * 20})
		}
		trace.Decode(0, 0, b, func(r *trace.Record) {
			r.CPU = int(r.Words[1] % 4)
			h.Take(int64(r.At%(1000*ms)), r)
			s.Take(h.Now(), r)
		})
		h.Flush()
		for _, v := range h.VCPUs() {
			if ran, waited, slept := v.Did(h.Now()); ran < 0 || waited < 0 || slept < 0 || ran+waited+slept > h.Now() {
				t.Fatalf("%+v at %d", v, h.Now())
			}
			v.Left(h.Now())
		}
		for _, f := range s.active {
			for _, u := range f.earn {
				if u.credit > s.most() {
					t.Fatalf("%v has %d", u.id, u.credit)
				}
			}
		}
		for _, r := range []Rules{{Slice: 30 * ms, Least: ms}, {Credit2: true, Slice: 10 * ms, Least: ms}} {
			for _, ran := range h.Predict(r, 30*ms).Runs {
				if ran < 0 || ran > 30*ms {
					t.Fatalf("one runs %d ns", ran)
				}
			}
		}
	})
}

// A vCPU that continues on another CPU, without a record of its move, has ended where it was.
func TestGoesOnElsewhere(t *testing.T) {
	var runs []Run
	h := NewHistory(func(r Run) { runs = append(runs, r) })
	state(h, 10, 0, 1, trace.Waits, trace.Runs)
	h.Take(50, &trace.Record{CPU: 1, Event: trace.Continues, N: 1, Words: [7]uint32{1 << 16}})
	h.Take(80, &trace.Record{CPU: 2, Event: trace.Lost, N: 4})
	state(h, 90, 3, 1, trace.Waits, trace.Runs)
	h.Take(100, &trace.Record{Event: trace.Wake, N: 2})
	h.Flush()
	want := []Run{{VCPU: id(1), CPU: 0, From: 10, To: 50}, {VCPU: id(1), CPU: 1, From: 50, To: 90}, {VCPU: id(1), CPU: 3, From: 90, To: 100}}
	if !slices.Equal(runs, want) {
		t.Errorf("%+v", runs)
	}
}

// Runs of vCPUs beyond the bound are reported as well.
func TestManyDomains(t *testing.T) {
	var last Run
	h := NewHistory(func(r Run) { last = r })
	at := int64(0)
	runs := func(d, vcpu uint32) {
		h.Take(at, &trace.Record{CPU: 3, Event: trace.Continues, N: 1, Words: [7]uint32{d<<16 | vcpu}})
		at += 10
		h.Take(at, &trace.Record{CPU: 3, Event: trace.Running | uint32(trace.Offline)<<4, N: 1, Words: [7]uint32{d<<16 | vcpu}})
	}
	for d := range uint32(0x7ff0) {
		for vcpu := range uint32(3) {
			runs(d, vcpu)
			if want := (Run{VCPU: trace.VCPU{Domain: uint16(d), Number: uint16(vcpu)}, CPU: 3, From: at - 10, To: at}); last != want {
				t.Fatalf("of %d vCPUs: %+v, not %+v", len(h.VCPUs()), last, want)
			}
		}
	}
	h.Take(at, &trace.Record{CPU: 3, Event: trace.Continues, N: 1, Words: [7]uint32{9 << 16}})
	if h.Trim(func(d uint16) bool { return d == 5 }); len(h.VCPUs()) != 4 || h.VCPU(trace.VCPU{Domain: 9}) == nil {
		t.Errorf("%d are known of domain 5, and of who runs", len(h.VCPUs()))
	}
}
