package soft

import (
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

func TestFaultIsSticky(t *testing.T) {
	d, c := open(t, nil)
	other := context(t, d)
	bad := goModule(c, 0, func(*run) *fault { return &fault{result: cuda.ErrorIllegalAddress, message: "test"} })
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), launchOf(bad), w.done), cuda.Success)
	r := c.Submit(c.DefaultStream(), accel.HostFunc{Due: func(r cuda.Result, f func()) { w <- r; f() }}, w.done)
	want(t, w.wait(t), cuda.ErrorIllegalAddress)
	if r == cuda.Success { // it was submitted before the fault
		want(t, w.wait(t), cuda.ErrorIllegalAddress)
		want(t, w.wait(t), cuda.ErrorIllegalAddress)
	}
	want(t, synchronize(t, c), cuda.ErrorIllegalAddress)
	_, r = c.Alloc(1)
	want(t, r, cuda.ErrorIllegalAddress)
	want(t, c.Submit(c.DefaultStream(), launchOf(bad), nil), cuda.ErrorIllegalAddress)
	want(t, synchronize(t, other), cuda.Success)
	alloc(t, other, 100)
}

const endlessKernel = header + `
.visible .entry endless()
{
again:
	bra again;
}
`

func TestKernelTimeout(t *testing.T) {
	reports := make(chan struct{}, 1)
	const limit = 2 * time.Second // a quick kernel has to end within it on a busy machine too
	_, c := open(t, func(c *Config) {
		c.KernelTimeout = limit.Nanoseconds()
		c.OnTimeout = func() { reports <- struct{}{} }
	})
	quick := goModule(c, 0, func(*run) *fault { return nil })
	endless := load(t, c, endlessKernel)
	for start := time.Now(); time.Since(start) < limit*3/2; { // none takes so long, all together do
		for range 100 {
			submit(t, c, c.DefaultStream(), launchOf(quick))
		}
		want(t, synchronize(t, c), cuda.Success)
	}
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), launchOf(endless), w.done), cuda.Success)
	want(t, w.wait(t), cuda.ErrorLaunchTimeout)
	<-reports
	want(t, c.Err(), cuda.ErrorLaunchTimeout)
}

// watches reports whether the watchdog has a running kernel, and computed returns for how long one has computed.
func watches(d *Device) bool { _, any := d.watchdog.measure(); return any }

func computed(d *Device) (most int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.executors[engine.Compute].members {
		most = max(most, m.watched.meter.Computed())
	}
	return most
}

// A changed limit applies to the running kernel.
func TestLimitKernels(t *testing.T) {
	d, c := open(t, func(c *Config) { c.KernelTimeout = 3600e9 })
	endless := load(t, c, endlessKernel)
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), launchOf(endless), w.done), cuda.Success)
	for !watches(d) {
		runtime.Gosched()
	}
	d.LimitKernels(time.Millisecond)
	want(t, w.wait(t), cuda.ErrorLaunchTimeout)
}

func TestDestroyCancels(t *testing.T) {
	d, c := open(t, nil)
	running := make(chan struct{})
	endless := goModule(c, 0, func(r *run) *fault {
		close(running)
		for !r.Cancel.Load() {
		}
		return &fault{result: cuda.ErrorLaunchFailed}
	})
	alloc(t, c, 1<<20)
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), launchOf(endless), w.done), cuda.Success)
	for range 5 {
		want(t, c.Submit(c.DefaultStream(), launchOf(endless), w.done), cuda.Success)
	}
	held := stream(t, c, 1)
	want(t, c.Submit(held, accel.HostFunc{Due: func(_ cuda.Result, f func()) {}}, w.done), cuda.Success)
	want(t, c.Submit(held, launchOf(endless), w.done), cuda.Success)
	<-running
	gone := newWaiter()
	c.Destroy(func() { gone <- 0 })
	gone.wait(t)
	for range 8 {
		want(t, w.wait(t), cuda.ErrorContextIsDestroyed)
	}
	c.Destroy(func() { gone <- 0 })
	gone.wait(t)
	if n := d.MemoryUsed(); n != 0 {
		t.Fatalf("%d bytes left", n)
	}
}

func TestMemoryGoneUnderWork(t *testing.T) {
	d, c := open(t, nil)
	other := context(t, d)
	gate := make(chan struct{})
	m := goModule(c, 0, func(*run) *fault { <-gate; return nil })
	a := alloc(t, other, 100<<20)
	submit(t, c, c.DefaultStream(), launchOf(m))
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), accel.Copy{Dst: accel.End{Address: a}, Src: accel.End{Host: make([]byte, 1<<20)}, Width: 1 << 20, Height: 1, Depth: 1}, w.done), cuda.Success)
	want(t, other.Free(a, nil), cuda.Success)
	close(gate)
	want(t, w.wait(t), cuda.ErrorIllegalAddress)
	want(t, c.Err(), cuda.ErrorIllegalAddress)
	want(t, synchronize(t, other), cuda.Success)
}

func TestDestroyDuringAlloc(t *testing.T) {
	d, c := open(t, func(c *Config) { c.Memory = 10 << 20 })
	m := goModule(c, 0, func(r *run) *fault {
		for !r.Cancel.Load() {
		}
		return &fault{result: cuda.ErrorLaunchFailed}
	})
	a := alloc(t, c, 8<<20)
	submit(t, c, c.DefaultStream(), launchOf(m))
	want(t, c.Free(a, nil), cuda.Success)
	w := newWaiter()
	go func() {
		_, r := c.Alloc(8 << 20)
		w <- r
	}()
	gone := newWaiter()
	c.Destroy(func() { gone <- 0 })
	gone.wait(t)
	if r := w.wait(t); r == cuda.Success {
		t.Fatal("memory in a context that is gone")
	}
	if n := d.MemoryUsed(); n != 0 {
		t.Fatalf("%d bytes left", n)
	}
}

const faultyKernels = header + `
.file 1 "vec.cu"
.file 2 "other.cu"
.visible .entry null()
{
	.reg .u64 %a;
	.loc 1 7 3
	mov.u64 %a, 16;
	.loc 1 8 5
	st.global.u32 [%a], 1;
	ret;
}
.func (.reg .u32 %r) inner(.reg .u64 %a)
{
	.loc	2 31 1
	ld.global.u32 %r, [%a];
	ret;
}
.visible .entry called()
{
	.reg .u32 %r;
	.loc 1 12 1
	call (%r), inner, (24);
	ret;
}
.visible .entry endless()
{
	.reg .u32 %r;
	.loc 1 20 1
	mov.u32 %r, 0;
again:
	.loc 1 21 9
	add.u32 %r, %r, 1;
	bra again;
}
.visible .entry bare()
{
	trap;
}
`

// A fault is reported with the kernel, the result, the line of the PTX and, where .loc gives it, of the source.
func TestFaultSaysWhere(t *testing.T) {
	for kernel, want := range map[string]string{
		"null":    `^kernel null: CUDA_ERROR_ILLEGAL_ADDRESS at block 0,0,0, thread 0,0,0, PTX line \d+ \(vec\.cu:8\): .*, address 0x10$`,
		"called":  `^kernel called: CUDA_ERROR_ILLEGAL_ADDRESS at block 0,0,0, thread 0,0,0, PTX line \d+ \(other\.cu:31\): .*, address 0x18$`,
		"endless": `^kernel endless: CUDA_ERROR_LAUNCH_TIMEOUT at block 0,0,0, thread 0,0,0, PTX line \d+ \(vec\.cu:2[01]\): it computed for longer`,
		"bare":    `^kernel bare: CUDA_ERROR_LAUNCH_FAILED at block 0,0,0, thread 0,0,0, PTX line \d+: trap$`,
	} {
		reports := make(chan string, 2)
		_, c := open(t, func(c *Config) {
			c.KernelTimeout = (500 * time.Millisecond).Nanoseconds()
			c.OnTimeout = func() { reports <- "timeout" }
			c.OnFault = func(_ cuda.Result, text string) { reports <- text }
		})
		w := newWaiter()
		l := launchOf(load(t, c, faultyKernels))
		l.Function = slices.IndexFunc(l.Module.Layout().Functions, func(f cuda.FunctionLayout) bool { return f.Name == kernel })
		c.Submit(c.DefaultStream(), l, w.done)
		if r := w.wait(t); !r.Sticky() {
			t.Errorf("%s: %v", kernel, r)
		}
		got := <-reports
		if got == "timeout" { // a busy host ends the kernel late
			got = <-reports
		}
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q, not %s", kernel, got, want)
		}
	}
}

// A context is gone only after the guest has been notified of its host functions that were due, and their nodes stay as
// they are until then.
func TestDestroyDuringNotice(t *testing.T) {
	d, c := open(t, nil)
	entered, leave := make(chan struct{}), make(chan struct{})
	w := newWaiter()
	go func() {
		c.Submit(c.DefaultStream(), accel.HostFunc{Due: func(cuda.Result, func()) {
			close(entered)
			<-leave
		}}, w.done)
	}()
	<-entered
	gone := make(chan struct{})
	c.Destroy(func() { close(gone) })
	synchronize(t, context(t, d))
	select {
	case <-gone:
		t.Error("the context is gone while the guest is being notified")
	default:
	}
	close(leave)
	want(t, w.wait(t), cuda.ErrorContextIsDestroyed)
	<-gone
}
