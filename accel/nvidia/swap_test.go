//go:build cgo

package nvidia

import (
	"bytes"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/acceltest"
	"pegasus/accel/nvidia/driver"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// sit registers a test in a page.
func sit(t testing.TB, page accelerator, domain string) *Swap {
	worker, err := page.Register(page.engines, clock)
	if err != nil {
		t.Fatal(err)
	}
	worker.SetShare(engine.DomainNumber(domain), 0, 0)
	ledger, err := engine.NewLedger(worker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close(); worker.Close() })
	return &Swap{Ledger: ledger}
}

// accelerator has the pages of an accelerator and of its only domain.
type accelerator struct {
	*engine.Memory
	engines *engine.Engines
}

func newPage(t testing.TB, memory, swap uint64) accelerator {
	if os.Getenv(realDriver)+os.Getenv(capable) == "" {
		t.Skip("this driver's memory doesn't move: see TestCapable")
	}
	shared, err := engine.Create(engine.Options{Memory: memory, Swap: swap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shared.Close() }) // after the devices
	engines, err := engine.CreateEngines()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engines.Close() })
	return accelerator{shared, engines}
}

// swapped opens devices that share a page whose memory is less than that of all devices together.
func swapped(t testing.TB, n int, memory, swap uint64) (accelerator, []*Device) {
	page := newPage(t, memory, swap)
	var all []*Device
	for i := range n {
		seat := sit(t, page, string(rune('a'+i)))
		all = append(all, openDevice(t, func(c *Config) {
			c.DeviceBase += uint64(i) << 32
			reserve(t, c.DeviceBase, c.DeviceBytes)
			c.Memory = page.Capacity()
			c.Swap = seat
		}))
	}
	return page, all
}

func TestSwapping(t *testing.T) {
	acceltest.RunSwapping(t, func(t testing.TB, n int, memory, swap uint64) acceltest.Crowd {
		page, devices := swapped(t, n, memory, swap)
		return acceltest.CrowdOf(devices, page)
	})
}

// A device with eviction behaves as any other, and leaves nothing behind.
func TestSwappingConformance(t *testing.T) {
	memory := uint64(256 << 20)
	if os.Getenv(realDriver) != "" {
		memory = 8 << 30 // stacks of as many threads as a GPU runs at once
	}
	acceltest.Run(t, func(t testing.TB, o acceltest.Options) accel.Device {
		page := newPage(t, memory, memory)
		t.Cleanup(func() {
			if used, had := page.Used(), page.Reserved(); used != 0 || had != 0 {
				t.Errorf("%d bytes are in use at the end, of %d that somebody has", used, had)
			}
		})
		seat := sit(t, page, "a")
		return openDevice(t, func(c *Config) {
			c.Swap = seat
			c.Shared, c.Quota, c.KernelTimeout, c.OnTimeout = o.Shared, o.Quota, o.KernelTimeout.Nanoseconds(), o.OnTimeout
		})
	}, shared(t), traits())
}

// fault makes calls of the driver fail until the function that it returns is called.
func fault(t *testing.T, what string) (over func()) {
	t.Helper()
	path := filepath.Join(os.Getenv("PEGASUS_TEST_FAULTS"), what)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return func() { os.Remove(path) }
}

// tried submits work and waits for it.
func tried(t *testing.T, c *Context, w accel.Work) cuda.Result {
	t.Helper()
	over := make(chan cuda.Result, 1)
	if r := c.Submit(c.DefaultStream(), w, func(r cuda.Result, _ accel.Usage) { over <- r }); r != cuda.Success {
		return r
	}
	select {
	case r := <-over:
		return r
	case <-time.After(time.Minute):
		t.Fatal("nobody called back")
		return 0
	}
}

// Memory that can't be moved stays unchanged, in its place, and no byte of it is lost, or counts twice; a later move
// may succeed.
func TestSwappingFaults(t *testing.T) {
	const n = 12 << 20
	page, devices := swapped(t, 2, 20<<20, 40<<20)
	if os.Getenv(capable) == "" {
		t.Skip("this driver makes no mistakes to order")
	}
	var all [2]*Context
	var at [2]uint64
	var want [2][]byte
	same := func(i int) {
		t.Helper()
		got := make([]byte, n)
		if r := tried(t, all[i], accel.Copy{Dst: accel.End{Host: got}, Src: accel.End{Address: at[i]}, Width: n, Height: 1, Depth: 1}); r != cuda.Success || !bytes.Equal(got, want[i]) {
			t.Errorf("device %d: its memory is something else, or %v", i, r)
		}
	}
	use := func(i int) cuda.Result {
		return tried(t, all[i], accel.Fill{Address: at[i], Width: 1, Height: 1, Value: uint32(want[i][0]), ElementSize: 1})
	}
	for i, d := range devices {
		c, r := d.NewContext(0)
		if r != cuda.Success {
			t.Fatal(r)
		}
		all[i] = c.(*Context)
		if at[i], r = c.Alloc(n); r != cuda.Success {
			t.Fatal(r)
		}
		want[i] = bytes.Repeat([]byte{byte(i + 1), 2, 3, 5, 7, 11}, n/6)
		if r := tried(t, all[i], accel.Copy{Dst: accel.End{Address: at[i]}, Src: accel.End{Host: want[i]}, Width: n, Height: 1, Depth: 1}); r != cuda.Success {
			t.Fatal(r)
		}
	}
	if devices[0].Evicted() != n || devices[1].Evicted() != 0 { // the second one's copy needed the room
		t.Fatalf("%d and %d bytes are away", devices[0].Evicted(), devices[1].Evicted())
	}
	for _, what := range []string{"copy-out", "unmap"} { // no other goroutine uses it meanwhile
		over := fault(t, what)
		if err := devices[1].swap.Evict(at[1], n); err == nil {
			t.Errorf("%s: it was moved", what)
		}
		over()
		if b := devices[1].swap.store.blocks[at[1]]; b.away || b.copy != nil {
			t.Errorf("%s: it is thought to be away", what)
		}
		same(1)
	}
	for _, what := range []string{"create", "copy-in"} {
		over := fault(t, what)
		if r := use(0); r != cuda.ErrorOutOfMemory {
			t.Errorf("%s: %v", what, r)
		}
		over()
		if devices[0].Evicted() != n || page.Used() > 20<<20 {
			t.Errorf("%s: %d bytes are away, %d are in use", what, devices[0].Evicted(), page.Used())
		}
	}
	for range 2 {
		for i := range all {
			if r := use(i); r != cuda.Success {
				t.Errorf("device %d: %v", i, r)
			}
			same(i)
		}
	}
	if _, _, r := devices[1].ExportIPC(at[1]); r != cuda.ErrorNotSupported {
		t.Errorf("what may leave is given to others: %v", r)
	}
	over := fault(t, "create") // another process has the free memory
	if _, r := all[0].Alloc(1 << 20); r != cuda.ErrorOutOfMemory && r != cuda.Success {
		t.Error(r)
	}
	over()
	for _, c := range all {
		gone := make(chan struct{})
		c.Destroy(func() { close(gone) })
		<-gone
	}
	if page.Used() != 0 || page.Reserved() != 0 {
		t.Errorf("%d bytes are in use at the end, of %d that somebody has", page.Used(), page.Reserved())
	}
	if r := all[0].Err(); r != cuda.ErrorContextIsDestroyed {
		t.Errorf("a context has failed: %v", r)
	}
}

// Memory that the driver doesn't take back stays accounted, though the context that had it is gone.
func TestStuckMemory(t *testing.T) {
	const n = 4 << 20
	for _, swapping := range []bool{false, true} {
		page := newPage(t, 64<<20, 64<<20)
		if os.Getenv(capable) == "" {
			t.Skip("this driver makes no mistakes to order")
		}
		var used atomic.Int64
		d := openDevice(t, func(c *Config) {
			c.Quota = func(delta int64) bool { used.Add(delta); return true }
			if swapping {
				c.Swap = sit(t, page, "a")
			}
		})
		before := used.Load()
		made, r := d.NewContext(0)
		if r != cuda.Success {
			t.Fatal(r)
		}
		c := made.(*Context)
		at, r := c.Alloc(n)
		if r != cuda.Success {
			t.Fatal(r)
		}
		over := fault(t, "unmap")
		gone := make(chan struct{})
		c.Destroy(func() { close(gone) })
		<-gone
		over()
		if got := used.Load() - before; got != n {
			t.Errorf("swapping %v: %d bytes are accounted, want %d", swapping, got, n)
		}
		m := d.store.(*mapped) // so that the device can be closed
		if r := m.unmapBlock(m.blocks[at]); r != cuda.Success {
			t.Error(r)
		}
	}
}

// Other processes make room for a device segment: its memory is accounted for already.
func TestSwappingMakesRoomForSegments(t *testing.T) {
	const n = 4 << 20
	page, devices := swapped(t, 2, 20<<20, 40<<20)
	if os.Getenv(capable) == "" {
		t.Skip("this driver makes no mistakes to order")
	}
	c, r := devices[0].NewContext(0)
	if r != cuda.Success {
		t.Fatal(r)
	}
	for range 3 {
		if _, r := c.Alloc(n); r != cuda.Success {
			t.Fatal(r)
		}
	}
	for _, m := range []struct{ commons, away uint64 }{{n, 0}, {2 * n, n}} { // 18 MiB are for allocations
		page.SetCommons(engine.DomainNumber("b"), m.commons)
		time.AfterFunc(200*time.Millisecond, fault(t, "create"))
		h, r := devices[1].createCounted(n)
		if r != cuda.Success {
			t.Fatal(r)
		}
		if r := driver.ReleaseMemory(nil, h); r != cuda.Success {
			t.Error(r)
		}
		if got := devices[0].Evicted(); got != m.away {
			t.Errorf("%d bytes left the device for a segment of %d, want %d", got, n, m.away)
		}
	}
	page.SetCommons(engine.DomainNumber("b"), 0)
}

// A wait for memory that another process uses ends when the device is aborted.
func TestSwappingAllocationAborted(t *testing.T) {
	const n = 8 << 20
	_, devices := swapped(t, 2, 20<<20, 40<<20)
	var all [2]accel.Context
	for i, d := range devices {
		var r cuda.Result
		if all[i], r = d.NewContext(0); r != cuda.Success {
			t.Fatal(r)
		}
		if _, r := all[i].Alloc(n); r != cuda.Success {
			t.Fatal(r)
		}
		if !d.swap.set.TryBegin(true) { // as if a kernel ran
			t.Fatal("its memory is away")
		}
		defer d.swap.set.End(true)
	}
	got := make(chan cuda.Result, 1)
	go func() {
		_, r := all[0].Alloc(n)
		got <- r
	}()
	for end := time.Now().Add(20 * time.Second); !devices[1].swap.set.Wanted(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody is asked")
		}
	}
	began := time.Now()
	devices[0].Abort()
	if r := <-got; r == cuda.Success || time.Since(began) > 2*time.Second {
		t.Errorf("%v after %v", r, time.Since(began))
	}
}

// Memory of a process whose contexts have all failed is evicted as any other, and its contents are lost.
func TestSwappingAfterFailure(t *testing.T) {
	const n = 12 << 20
	page, devices := swapped(t, 2, 20<<20, 40<<20)
	if os.Getenv(capable) == "" {
		t.Skip("this driver makes no mistakes to order")
	}
	begin := func(d *Device) *Context {
		c, r := d.NewContext(0)
		if r != cuda.Success {
			t.Fatal(r)
		}
		return c.(*Context)
	}
	fill := func(c *Context, at uint64) cuda.Result {
		return tried(t, c, accel.Fill{Address: at, Width: n, Height: 1, Value: 1, ElementSize: 1})
	}
	failed, other := begin(devices[0]), begin(devices[1])
	m, log, r := failed.LoadModule([]byte(peek))
	if r != cuda.Success {
		t.Fatal(r, log)
	}
	lost, r := failed.Alloc(n)
	if r != cuda.Success {
		t.Fatal(r)
	}
	if r := fill(failed, lost); r != cuda.Success {
		t.Fatal(r)
	}
	at, r := other.Alloc(n)
	if r != cuda.Success || devices[1].Evicted() != n {
		t.Fatalf("%v, %d bytes are away", r, devices[1].Evicted())
	}
	if r := tried(t, failed, accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: bytes.Repeat([]byte{8, 0, 0, 0, 0, 0, 0, 0}, 2)}); r != cuda.ErrorIllegalAddress {
		t.Fatal(r)
	}
	over := fault(t, "unmap")
	if err := devices[0].swap.Evict(lost, n); err == nil {
		t.Error("it was moved")
	}
	over()
	began := time.Now()
	if r := fill(other, at); r != cuda.Success || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %v", r, time.Since(began))
	}
	if got := devices[0].Evicted(); got != n || page.Used() > 20<<20 {
		t.Errorf("%d bytes are away, %d are in use", got, page.Used())
	}
	if r := failed.withAll(func() cuda.Result { return cuda.Success }); r != cuda.ErrorIllegalAddress || devices[0].Evicted() != n || devices[1].Evicted() != 0 {
		t.Errorf("in a context that has failed: %v, %d and %d bytes are away", r, devices[0].Evicted(), devices[1].Evicted())
	}
	if err := devices[0].swap.Retrieve(lost, n); err == nil {
		t.Error("there was something to move it by")
	}
	next := begin(devices[0])
	got := bytes.Repeat([]byte{7}, n)
	if r := tried(t, next, accel.Copy{Dst: accel.End{Host: got}, Src: accel.End{Address: lost}, Width: n, Height: 1, Depth: 1}); r != cuda.Success || !bytes.Equal(got, bytes.Repeat([]byte{0}, n)) {
		t.Errorf("a context after that: %v, or it finds something", r)
	}
	for _, c := range []*Context{failed, other, next} {
		gone := make(chan struct{})
		c.Destroy(func() { close(gone) })
		<-gone
	}
	if page.Used() != 0 || page.Reserved() != 0 {
		t.Errorf("%d bytes are in use at the end, of %d that somebody has", page.Used(), page.Reserved())
	}
}
