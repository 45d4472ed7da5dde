package soft

import (
	"bytes"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// Memory that stays on the device leaves room for all that any process has: one with much of it can't keep the others'
// kernels out.
func TestMappedMemoryLeavesRoom(t *testing.T) {
	const mib = 1 << 20
	page, devices := swapped(t, 2, 12*mib, 24*mib)
	d := devices[0]
	other := context(t, devices[1])
	context(t, d)
	run := func() {
		t.Helper()
		submit(t, other, other.DefaultStream(), launchOf(goModule(other, 0, func(*run) *fault { return nil })))
		want(t, synchronize(t, other), cuda.Success)
	}
	theirs := []uint64{alloc(t, other, 5*mib)}
	var mine []accel.Memory
	for {
		m, r := d.CreateMemory(2 * mib)
		if r == cuda.ErrorOutOfMemory {
			break
		}
		want(t, r, cuda.Success)
		mine = append(mine, m)
	}
	if len(mine) != 2 {
		t.Errorf("%d MiB stay on the device, where %d of 12 belong to another process", 2*len(mine), 5)
	}
	run()
	if _, r := other.Alloc(2 * mib); r != cuda.ErrorOutOfMemory {
		t.Errorf("more than a kernel could use: %s", r.Name())
	}
	theirs = append(theirs, alloc(t, other, mib))
	run()
	for _, m := range mine {
		m.Release()
	}
	theirs = append(theirs, alloc(t, other, 4*mib))
	run()
	for _, at := range theirs {
		want(t, other.Free(at, nil), cuda.Success)
	}
	if page.Used() != 0 || page.Reserved() != 0 {
		t.Errorf("%d bytes on the device are left, %d in all", page.Used(), page.Reserved())
	}
}

// Memory that the guest maps itself stays on the device while others swap: they make room for each other, and all find
// the bytes that they wrote.
func TestMappedMemoryStays(t *testing.T) {
	const mib = 1 << 20
	page, devices := swapped(t, 2, 12*mib, 24*mib)
	fill := func(c *Context, at, n uint64, v byte) {
		t.Helper()
		done := make(chan cuda.Result, 1)
		want(t, c.Submit(c.DefaultStream(), accel.Fill{Address: at, Width: n, Height: 1, Value: uint32(v), ElementSize: 1},
			func(r cuda.Result, _ accel.Usage) { done <- r }), cuda.Success)
		want(t, <-done, cuda.Success)
	}
	check := func(c *Context, at, n uint64, v byte) {
		t.Helper()
		out, done := make([]byte, n), make(chan cuda.Result, 1)
		want(t, c.Submit(c.DefaultStream(), accel.Copy{Dst: accel.End{Host: out}, Src: accel.End{Address: at}, Width: n, Height: 1, Depth: 1},
			func(r cuda.Result, _ accel.Usage) { done <- r }), cuda.Success)
		want(t, <-done, cuda.Success)
		if !bytes.Equal(out, bytes.Repeat([]byte{v}, int(n))) {
			t.Errorf("%d bytes at %#x are not all %d", n, at, v)
		}
	}
	run := func(c *Context) {
		t.Helper()
		done := make(chan cuda.Result, 1)
		m := goModule(c, 0, func(*run) *fault { return nil })
		want(t, c.Submit(c.DefaultStream(), launchOf(m), func(r cuda.Result, _ accel.Usage) { done <- r }), cuda.Success)
		want(t, <-done, cuda.Success)
	}
	d := devices[0]
	c, other := context(t, d), context(t, devices[1])
	base, r := d.ReserveRange(8*mib, 0, 0)
	want(t, r, cuda.Success)
	mem, r := d.CreateMemory(4 * mib)
	want(t, r, cuda.Success)
	want(t, d.Map(base, 4*mib, 0, mem), cuda.Success)
	want(t, d.SetAccess(base, 4*mib, accel.ReadWrite), cuda.Success)
	fill(c, base, 4*mib, 5)
	mine, r := c.Alloc(4 * mib)
	want(t, r, cuda.Success)
	fill(c, mine, 4*mib, 6)
	theirs, r := other.Alloc(5 * mib)
	want(t, r, cuda.Success)
	fill(other, theirs, 5*mib, 7)
	for range 3 {
		run(c)
		run(other)
		if used := page.Used(); used > 12*mib {
			t.Errorf("%d bytes are on a device of %d", used, 12*mib)
		}
	}
	check(c, base, 4*mib, 5)
	check(c, mine, 4*mib, 6)
	check(other, theirs, 5*mib, 7)
	mem.Release()
	want(t, d.Unmap(base, 4*mib), cuda.Success)
	want(t, c.Free(mine, nil), cuda.Success)
	want(t, other.Free(theirs, nil), cuda.Success)
	if page.Used() != 0 || page.Reserved() != 0 {
		t.Errorf("%d bytes on the device are left, %d in all", page.Used(), page.Reserved())
	}
}
