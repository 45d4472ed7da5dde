package lane

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// xorshift has each thread of a grid go through n steps of a generator; the steps of a block depend on a barrier.
const xorshift = `
	mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x; mad.lo.u32 %r1, %r5, %r6, %t; mul.wide.u32 %a1, %r1, 4; add.u64 %a0, %o, %a1;
	add.u32 %r1, %r1, 1; ld.param.u32 %r2, [n];
again:	shl.b32 %r3, %r1, 13; xor.b32 %r1, %r1, %r3; shr.u32 %r3, %r1, 17; xor.b32 %r1, %r1, %r3; shl.b32 %r3, %r1, 5; xor.b32 %r1, %r1, %r3;
	and.b32 %r4, %r2, 63; setp.ne.u32 %p1, %r4, 0; @%p1 bra.uni on; bar.sync 0;
on:	sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra again;
	st.global.u32 [%a0], %r1;`

func steps(v uint32, n int) uint32 {
	for range n {
		v ^= v << 13
		v ^= v >> 17
		v ^= v << 5
	}
	return v
}

// A launch stops on all cores at any point, changes nothing until it continues, and has the same results.
func TestYield(t *testing.T) {
	const blocks, threads, n = 64, 96, 3000
	for _, cores := range []int{1, 2, 5} {
		d := newDevice(t)
		k, out := d.kernel(d.load(entry(xorshift)), "k"), d.buffer(4*blocks*threads)
		l := d.launch(k, x(blocks), x(threads), out, n)
		l.Cores = cores
		var looks, pauses atomic.Int32
		l.Yield = func() bool { return looks.Add(1)%7 == 0 }
		l.Resume = func() {
			pauses.Add(1)
			before := bytes.Clone(out.mem)
			if begun := looks.Load(); pauses.Load()%16 == 0 { // long enough for a core that goes on to be seen
				time.Sleep(time.Millisecond)
				if looks.Load() != begun {
					t.Error("a core computes while the launch is paused")
				}
			}
			if !bytes.Equal(before, out.mem) {
				t.Error("memory changes while the launch is paused")
			}
		}
		if f := k.Run(l); f != nil {
			t.Fatal(f)
		}
		for i := range blocks * threads {
			if got, want := out.word(i), steps(uint32(i+1), n); got != want {
				t.Fatalf("%d cores, thread %d: %#x, want %#x", cores, i, got, want)
			}
		}
		if pauses.Load() < 8 {
			t.Errorf("%d cores: %d pauses in %d looks", cores, pauses.Load(), looks.Load())
		}
	}
}

// A launch that is cancelled while it is paused ends.
func TestCancelPaused(t *testing.T) {
	d := newDevice(t)
	k := d.kernel(d.load(entry("loop: bra loop;")), "k")
	l := d.launch(k, x(8), x(64), d.buffer(4096), 0)
	l.Cores, l.Cancel = 3, new(atomic.Bool)
	l.Yield = func() bool { return true }
	l.Resume = func() { l.Cancel.Store(true) }
	if f := k.Run(l); f == nil || f.Result != ptx.ErrLaunchTimeout {
		t.Error(f)
	}
}

// However long instructions and blocks of code are, a launch frequently checks whether it is to yield.
func TestLooksOften(t *testing.T) {
	bulk := func(n int, instruction string) string { return strings.Repeat(instruction+"\n", n) }
	for _, c := range []struct {
		name, body string
		least      int32
	}{
		{"straight", bulk(100_000, "add.u32 %r1, %r1, %t;"), 100_000 / ir.WatchEvery / 2},
		{"dear", ".reg .f64 %d<4>; cvt.rn.f64.u32 %d1, %t;" + bulk(100, "div.rp.f64 %d2, %d1, 0d7fe123456789abcd;"), 30},
		{"reductions", bulk(4, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%o], [s], 4096;"), 4 * 256 * 4096 / ir.BulkUnit / ir.WatchEvery / 2},
		{"bulk copies", bulk(100, "cp.async.bulk.global.shared::cta.bulk_group [%o], [s], 4096;"), 100 * 256 * 4096 / bytesPerInstruction / ir.WatchEvery / 2},
		{"bulk stores", bulk(100, "st.bulk.weak.shared::cta [s], 4096, 0;"), 100 * 256 * 4096 / bytesPerInstruction / ir.WatchEvery / 2},
	} {
		d := newDevice(t)
		src := strings.Replace(string(entry(c.body)), ".version 7.0\n.target sm_75", ".version 8.6\n.target sm_100", 1)
		k := d.kernel(d.load([]byte(src)), "k")
		l := d.launch(k, x(1), x(256), d.buffer(4096), 0)
		var looks int32
		l.Yield = func() bool { looks++; return false }
		if f := k.Run(l); f != nil {
			t.Errorf("%s: %v", c.name, f)
		} else if looks < c.least {
			t.Errorf("%s: %d looks, want %d at least", c.name, looks, c.least)
		}
	}
}

// A meter measures processor time: no more than the threads have taken, and nothing before it was started or while the launch is paused.
func TestMeter(t *testing.T) {
	d := newDevice(t)
	k := d.kernel(d.load(entry("loop: bra loop;")), "k")
	l := d.launch(k, x(4), x(64), d.buffer(4096), 0)
	l.Cores, l.Cancel, l.Meter = 2, new(atomic.Bool), new(Meter)
	paused := false
	l.Yield = func() bool {
		if l.Meter.Computed() > int64(20*time.Millisecond) {
			l.Cancel.Store(true)
		}
		return !paused && l.Meter.Computed() > int64(10*time.Millisecond)
	}
	var slept time.Duration
	l.Resume = func() {
		paused = true
		began := time.Now()
		time.Sleep(200 * time.Millisecond)
		slept = time.Since(began)
	}
	looks := time.Now()
	l.Meter.Start()
	k.Run(l)
	took := time.Since(looks)
	if got := time.Duration(l.Meter.Computed()); got < 20*time.Millisecond || got > took-slept {
		t.Errorf("%v were measured, of a launch that took %v and slept %v of that", got, took, slept)
	}
	l.Meter.Reset()
	if l.Meter.On() || l.Meter.Computed() != 0 {
		t.Error("a meter that was reset goes on")
	}
}

// bytesPerInstruction is the number of bytes that are copied or cleared in the time of a common instruction.
const bytesPerInstruction = 512
