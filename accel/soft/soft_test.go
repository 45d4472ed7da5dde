package soft

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/soft/memory"
	"pegasus/cuda"
	"pegasus/test/seeds"
)

// addresses reserves a range for n slabs of device memory.

func addresses(t testing.TB, n uint64) (base, size uint64) {
	t.Helper()
	size = n * memory.SlabSize
	mem, err := unix.Mmap(-1, 0, int(size+memory.SlabSize), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	base = (uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) + memory.SlabSize - 1) &^ (memory.SlabSize - 1)
	return base, size
}

// open opens a device and a context on it, with 256 MiB unless change changes that.

func open(t testing.TB, change func(*Config)) (*Device, *Context) {
	t.Helper()
	c := Config{Name: "A0", Cores: 2, Memory: 256 << 20}
	c.DeviceBase, c.DeviceBytes = addresses(t, 8)
	c.Reserved = true
	if change != nil {
		change(&c)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, context(t, d)
}

func context(t testing.TB, d *Device) *Context {
	t.Helper()
	c, r := d.NewContext(0)
	want(t, r, cuda.Success)
	return c.(*Context)
}

func want(t testing.TB, got, want cuda.Result) {
	t.Helper()
	if got != want {
		t.Fatalf("%s (%d), want %s", got.Name(), got, want.Name())
	}
}

// waiter collects results that come from any goroutine.

type waiter chan cuda.Result

func newWaiter() waiter { return make(waiter, 64) }

func (w waiter) result(r cuda.Result) { w <- r }

func (w waiter) done(r cuda.Result, _ accel.Usage) { w <- r }

func (w waiter) wait(t testing.TB) cuda.Result {
	t.Helper()
	select {
	case r := <-w:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("nobody called back for 30 s")
		return 0
	}
}

func synchronize(t testing.TB, c *Context) cuda.Result {
	t.Helper()
	w := newWaiter()
	c.Synchronize(w.result)
	return w.wait(t)
}

func alloc(t testing.TB, c *Context, n uint64) uint64 {
	t.Helper()
	a, r := c.Alloc(n)
	want(t, r, cuda.Success)
	return a
}

func stream(t testing.TB, c *Context, flags uint32) accel.Stream {
	t.Helper()
	s, r := c.NewStream(flags, 0)
	want(t, r, cuda.Success)
	return s
}

func event(t testing.TB, c *Context) accel.Event {
	t.Helper()
	e, r := c.NewEvent(0)
	want(t, r, cuda.Success)
	return e
}

func submit(t testing.TB, c *Context, s accel.Stream, w accel.Work) {
	t.Helper()
	want(t, c.Submit(s, w, nil), cuda.Success)
}

// upload and download are synchronous copies.

func upload(t testing.TB, c *Context, addr uint64, b []byte) {
	t.Helper()
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), accel.Copy{Dst: accel.End{Address: addr}, Src: accel.End{Host: b}, Width: uint64(len(b)), Height: 1, Depth: 1}, w.done), cuda.Success)
	want(t, w.wait(t), cuda.Success)
}

func download(t testing.TB, c *Context, addr uint64, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), accel.Copy{Dst: accel.End{Host: b}, Src: accel.End{Address: addr}, Width: uint64(n), Height: 1, Depth: 1}, w.done), cuda.Success)
	want(t, w.wait(t), cuda.Success)
	return b
}

// goCode is a kernel written in Go.

type goCode func(*run) *fault

func (f goCode) prepare() error   { return nil }
func (f goCode) prepared() bool   { return true }
func (f goCode) mostThreads() int { return maxBlockThreads }

func (f goCode) run(r *run) *fault { return f(r) }
func (f goCode) independent() bool { return false }

// goModule is a module with one kernel written in Go, with paramBytes of parameters.

func goModule(c *Context, paramBytes uint32, f goCode) *Module {
	m := &Module{ctx: c}
	m.layout.Functions = []cuda.FunctionLayout{{Name: "kernel", ParamBytes: paramBytes, MaxThreads: 1024}}
	m.functions = []function{{layout: &m.layout.Functions[0], declared: maxBlockThreads, code: f}}
	return m
}

func launchOf(m *Module, params ...byte) accel.Launch {
	return accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: params}
}

func seed(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(seeds.Fixed(t), 0))
}

// Two devices of one domain on one accelerator are one accelerator: their work never overlaps.

func TestSnapshot(t *testing.T) {
	d, _ := open(t, nil)
	s := d.Snapshot()
	if s != Describe("A0", 2, 256<<20, false) || s.UUID == Describe("A1", 2, 256<<20, false).UUID {
		t.Fatal("the description does not follow from the name")
	}
	for n, v := range map[int]int32{10: 32, 14: 512, 1: 1024, 75: 7, 76: 5, 83: 0, 88: 0, 89: 0, 100: 0, 101: 0, 102: 1, 103: 1, 92: 1, 122: 1, 115: 0, 119: 0, 41: 0, 16: 2, 31: 1} {
		if s.Attributes[n] != v {
			t.Errorf("attribute %d is %d, want %d", n, s.Attributes[n], v)
		}
	}
	if a := Describe("A0", 1, 1, false).Attributes; a[31] != 0 {
		t.Error("kernels at the same time on one core")
	}
	if a := Describe("A0", 2, 1, true).Attributes; a[41] != 1 || a[83] != 1 {
		t.Error("no unified addressing with an arena, or no managed memory")
	}
}

// Memory of another context may be freed under queued work. That ends the work's context, not the process.

// A guest may end while an allocation of its waits for a free.
