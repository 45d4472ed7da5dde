//go:build cgo

package nvidia

import (
	"os"
	"sync/atomic"
	"testing"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// counted opens a device with a quota, which returns the bytes that are taken.
func counted(t *testing.T, most int64) (*Device, *atomic.Int64) {
	if os.Getenv(capable) == "" {
		t.Skip("this driver makes no mistakes to order")
	}
	used := new(atomic.Int64)
	return openDevice(t, func(c *Config) {
		c.Quota = func(delta int64) bool {
			if delta > 0 && used.Load()+delta > most {
				return false
			}
			used.Add(delta)
			return true
		}
	}), used
}

func contextOf(t *testing.T, d *Device) *Context {
	t.Helper()
	c, r := d.NewContext(0)
	if r != cuda.Success {
		t.Fatal(r)
	}
	return c.(*Context)
}

// A module that doesn't fit takes no memory, though its context is busy for as long as a program likes.
func TestStuckModules(t *testing.T) {
	d, used := counted(t, 64<<20)
	c, other := contextOf(t, d), contextOf(t, d)
	reached := make(chan func(), 1)
	if r := c.Submit(c.DefaultStream(), accel.HostFunc{Due: func(_ cuda.Result, f func()) { reached <- f }}, nil); r != cuda.Success {
		t.Fatal(r)
	}
	defer (<-reached)()
	before, r := driver.Unused(other.ctx)
	if r != cuda.Success {
		t.Fatal(r)
	}
	base := used.Load()
	for _, variables := range []string{".b8 big[100000000];", ".b8 a[8], big[100000000];", ".v4 .f32 big<10000>, b[100000000];"} {
		const head, rest = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .global .align 16 ", "\n.visible .entry e()\n{\nret;\n}\n"
		if _, _, r := c.LoadModule([]byte(head + variables + rest)); r == cuda.Success {
			t.Errorf("%s: it is loaded", variables)
		}
		if now, _ := driver.Unused(other.ctx); now != before || used.Load() != base {
			t.Errorf("%s: %d bytes are taken, of which %d count", variables, before-now, used.Load()-base)
		}
	}
}

// An array that the driver doesn't free counts until its context ends.
func TestStuckArrays(t *testing.T) {
	d, used := counted(t, 64<<20)
	c := contextOf(t, d)
	base := used.Load()
	a, r := c.NewArray(accel.ArrayDesc{Width: 4096, Height: 2048, Format: 0x20, Channels: 1})
	if r != cuda.Success {
		t.Fatal(r)
	}
	array := a.(*Array)
	array.h, array.freed = nil, true // as good as in a context that has failed: the driver refuses
	array.free()
	if n := used.Load() - base; n != 32<<20 {
		t.Errorf("%d bytes count", n)
	}
	gone := make(chan struct{})
	c.Destroy(func() { close(gone) })
	<-gone
	if n := used.Load() - base; n != 0 {
		t.Errorf("when its context has ended %d bytes count", n)
	}
}

// Memory that can't be unmapped after it was cleared keeps its addresses: no other memory gets them.
func TestStuckClearing(t *testing.T) {
	const n = 4 << 20
	d, used := counted(t, 64<<20)
	c := contextOf(t, d)
	base := used.Load()
	m := d.mapper()
	over := fault(t, "unmap")
	_, r := d.CreateMemory(n)
	over()
	if r == cuda.Success || used.Load()-base != n {
		t.Errorf("%v, %d bytes count", r, used.Load()-base)
	}
	at, r := c.Alloc(n)
	if r != cuda.Success || at != m.base+n {
		t.Errorf("what comes next: %v, at %#x of %#x", r, at, m.base)
	}
	if r := driver.UnmapMemory(nil, m.base, n); r != cuda.Success { // so that the device can be closed
		t.Error(r)
	}
}

// Freed memory is exported no more.
func TestPlacesForgotten(t *testing.T) {
	d, _ := counted(t, 64<<20)
	c := contextOf(t, d)
	for _, size := range []uint64{4 << 20, 512} {
		at, r := c.Alloc(size)
		if r != cuda.Success {
			t.Fatal(r)
		}
		ticket, _, r := d.ExportIPC(at)
		if r != cuda.Success {
			t.Fatal(r)
		}
		if r := c.Free(at, nil); r != cuda.Success {
			t.Fatal(r)
		}
		if _, _, r := d.take(ticket); r == cuda.Success {
			t.Errorf("%d bytes that were freed are still given", size)
		}
	}
}
