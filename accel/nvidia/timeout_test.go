//go:build cgo

package nvidia

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
	"pegasus/internal/testkit"
)

const endless = `.version 6.0
.target sm_50
.address_size 64
.visible .entry endless(.param .u64 word)
{
	.reg .b32 %r;
	.reg .b64 %d;
	.reg .pred %p;
	ld.param.u64 %d, [word];
again:
	ld.volatile.global.u32 %r, [%d];
	setp.eq.u32 %p, %r, 0;
	@%p bra again;
	ret;
}
`

// books are the charges of a device: the time charged, and since when work runs that is charged at its end or at the
// process's.
type books struct {
	mu          sync.Mutex
	used, since int64
}

func (b *books) read() (used, since int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.since
}

func (b *books) keep(c *Config) {
	c.Used = func(class accel.Class, ns int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if class == accel.Compute {
			b.used += ns
		}
	}
	c.Executes = func(_ accel.Class, since int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.since = since
	}
}

// spinning starts a kernel that runs until release is called, from another context. It returns the time before.
func spinning(t *testing.T, d *Device) (began int64, release func()) {
	t.Helper()
	c := contextOf(t, d)
	m, log, r := c.LoadModule([]byte(endless))
	if r != cuda.Success {
		t.Fatal(r, log)
	}
	at, r := c.Alloc(8)
	if r != cuda.Success {
		t.Fatal(r)
	}
	if r := tried(t, c, accel.Copy{Dst: accel.End{Address: at}, Src: accel.End{Host: make([]byte, 8)}, Width: 8, Height: 1, Depth: 1}); r != cuda.Success {
		t.Fatal(r)
	}
	began = clock()
	l := accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, at)}
	if r := c.Submit(c.DefaultStream(), l, nil); r != cuda.Success {
		t.Fatal(r)
	}
	return began, func() {
		t.Helper()
		if r := tried(t, contextOf(t, d), accel.Copy{Dst: accel.End{Address: at}, Src: accel.End{Host: []byte{1, 0, 0, 0}}, Width: 4, Height: 1, Depth: 1}); r != cuda.Success {
			t.Fatal(r)
		}
	}
}

// A kernel that exceeds its time limit runs until its process ends, and is charged until then: the time so far at the
// timeout, and the rest by the process that finds this one dead.
func TestTimeoutIsCharged(t *testing.T) {
	var b books
	late := make(chan struct{}, 8)
	d := openDevice(t, func(c *Config) {
		b.keep(c)
		c.KernelTimeout, c.OnTimeout = int64(200*time.Millisecond), func() { late <- struct{}{} }
	})
	began, release := spinning(t, d)
	<-late
	now := clock()
	used, since := b.read()
	if since-used < began || since > now || used < int64(200*time.Millisecond) {
		t.Errorf("a kernel launched at 0 exceeded its limit before %d: %d ns are charged, and the time since %d, want all of its time", now-began, used, since-began)
	}
	release()
	testkit.Eventually(t, "the kernel ends", func() bool { return d.Queued() == 0 })
	// The end may show that the kernel began somewhat earlier than the clocks' offset let it seem at the timeout.
	if u, s := b.read(); s != since || u < used || u > since-began {
		t.Errorf("a kernel launched at 0 is charged %d ns at its end and the time since %d, want %d to %d and %d: none is charged twice",
			u, s-began, used, since-began, since-began)
	}
}

// A kernel that runs while the session of its process ends is charged once, whether it ends before its process or not.
func TestAbortIsCharged(t *testing.T) {
	var b books
	d := openDevice(t, b.keep)
	began, release := spinning(t, d)
	testkit.Eventually(t, "the kernel runs", func() bool {
		for _, p := range d.watchdog.kernels() {
			if p.runs() {
				return true
			}
		}
		return false
	})
	d.Abort()
	now := clock()
	used, since := b.read()
	if since-used < began || since > now {
		t.Errorf("a kernel launched at 0 ran at %d: %d ns are charged, and the time since %d, want all of its time", now-began, used, since-began)
	}
	d.aborted.Store(false) // so that a copy ends the kernel
	release()
	testkit.Eventually(t, "the kernel ends", func() bool { return d.Queued() == 0 })
	if u, s := b.read(); s != 0 || u <= used || u > clock()-began {
		t.Errorf("%d ns are charged, and the time since %d, want more than %d, at most %d, and 0", u, s, used, clock()-began)
	}
}
