package soft

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
	"pegasus/test/seeds"
)

// swapped opens devices on one accelerator that has less memory than all devices together.
func swapped(t testing.TB, n int, memory, swap uint64) (accelerator, []*Device) {
	page := newPage(t, engine.Options{Memory: memory, Swap: swap})
	var all []*Device
	for i := range n {
		d, _ := open(t, func(c *Config) {
			page.share(c)
			c.Memory = memory
			c.Domain = string(rune('a' + i))
		})
		all = append(all, d)
	}
	return page, all
}

// Devices with allocations that come to three times the memory of the accelerator copy,
// fill, launch and free at random, and find the bytes that they wrote, at the same
// addresses, in linear memory and in arrays. Kernels find all of it on the device.
func TestSwap(t *testing.T) {
	const memory = 2 << 20
	page, devices := swapped(t, 4, memory, 2*memory)
	seed := seeds.Fixed(t)
	var all sync.WaitGroup
	for i, d := range devices {
		all.Go(func() { programs(t, d, rand.New(rand.NewPCG(seed, uint64(i))), memory/4*3) })
	}
	all.Wait()
	if page.Used() != 0 || page.Reserved() != 0 {
		t.Errorf("%d bytes on the device are left, %d in all", page.Used(), page.Reserved())
	}
}

type allocation struct {
	addr  uint64
	array *Array // nil: linear
	want  []byte
}

func (a *allocation) end() accel.End {
	if a.array != nil {
		return accel.End{Array: a.array}
	}
	return accel.End{Address: a.addr}
}

// stride is the distance of the bytes that a kernel changes: not all of them, so that it is quick.
const stride = 501

func programs(t *testing.T, d *Device, r *rand.Rand, most int) {
	c := context(t, d)
	var live []*allocation
	total := 0
	bump := goModule(c, 0, func(*run) *fault {
		if n := d.Evicted(); n != 0 {
			t.Errorf("a kernel runs while %d bytes are away", n)
		}
		for _, a := range live { // no other goroutine reads it: launches are waited for
			mem := d.space.Raw(a.addr, uint64(len(a.want)))
			for i := 0; i < len(mem); i += stride {
				mem[i]++
			}
		}
		return nil
	})
	s := stream(t, c, 0)
	do := func(w accel.Work) {
		done := newWaiter()
		if res := c.Submit(s, w, done.done); res != cuda.Success {
			t.Errorf("submit: %s", res.Name())
		} else if res := done.wait(t); res != cuda.Success {
			t.Errorf("%s", res.Name())
		}
	}
	copied := func(dst, src accel.End, n int) {
		do(accel.Copy{Dst: dst, Src: src, Width: uint64(n), Height: 1, Depth: 1})
	}
	for range 150 {
		switch k := r.IntN(10); {
		case k < 3:
			n := 4 * (1 + r.IntN(80_000))
			if r.IntN(3) == 0 {
				n = 4 * (1 + r.IntN(200))
			}
			if total+n+4096*len(live) > most {
				continue
			}
			a := &allocation{want: make([]byte, n)}
			if n < 1<<16 && r.IntN(3) == 0 {
				arr, res := c.NewArray(accel.ArrayDesc{Width: uint64(n), Format: formatU8, Channels: 1})
				if res != cuda.Success {
					t.Errorf("array of %d bytes: %s", n, res.Name())
					continue
				}
				a.array = arr.(*Array)
				a.addr = a.array.address
			} else {
				var res cuda.Result
				if a.addr, res = c.Alloc(uint64(n)); res != cuda.Success {
					t.Errorf("%d bytes: %s", n, res.Name())
					continue
				}
			}
			live, total = append(live, a), total+n
		case len(live) == 0:
		case k < 4:
			i := r.IntN(len(live))
			a := live[i]
			live, total = append(live[:i:i], live[i+1:]...), total-len(a.want)
			if a.array != nil {
				a.array.Destroy()
			} else {
				want(t, c.Free(a.addr, nil), cuda.Success)
			}
		case k < 6:
			a := live[r.IntN(len(live))]
			for i := 0; i < len(a.want); i += stride / 3 {
				a.want[i] = byte(r.Uint32())
			}
			copied(a.end(), accel.End{Host: a.want}, len(a.want))
		case k < 7:
			a := live[r.IntN(len(live))]
			if a.array == nil {
				do(accel.Fill{Address: a.addr, Width: uint64(len(a.want)), Height: 1, Value: 7, ElementSize: 1})
				copy(a.want, bytes.Repeat([]byte{7}, len(a.want)))
			}
		case k < 8:
			a, b := live[r.IntN(len(live))], live[r.IntN(len(live))]
			if n := min(len(a.want), len(b.want)); a != b {
				copied(a.end(), b.end(), n)
				copy(a.want, b.want[:n])
			}
		default:
			do(launchOf(bump))
			for _, a := range live {
				for i := 0; i < len(a.want); i += stride {
					a.want[i]++
				}
			}
		}
		if len(live) > 0 {
			a := live[r.IntN(len(live))]
			got := make([]byte, len(a.want))
			copied(accel.End{Host: got}, a.end(), len(got))
			if !bytes.Equal(got, a.want) {
				t.Errorf("%d bytes at %#x are not what was written", len(got), a.addr)
				return
			}
		}
	}
	gone := make(chan struct{})
	c.Destroy(func() { close(gone) })
	<-gone
}

// A device may have as much as it can compute with; beyond that, and beyond the memory of all together, an allocation
// fails at once.
func TestSwapLimits(t *testing.T) {
	const memory = 10 << 20
	_, devices := swapped(t, 2, memory, 4<<20)
	a, b := context(t, devices[0]), context(t, devices[1])
	if n := devices[0].Snapshot().TotalMem; n != 9<<20 {
		t.Errorf("the device has %d bytes", n)
	}
	alloc(t, a, 8<<20)
	if _, r := a.Alloc(1<<20 + 1); r != cuda.ErrorOutOfMemory {
		t.Errorf("more than a kernel could use: %s", r.Name())
	}
	if n := devices[1].MemoryFree(); n != 6<<20 {
		t.Errorf("%d bytes are free for the other", n)
	}
	at := alloc(t, b, 6<<20)
	if _, r := b.Alloc(1); r != cuda.ErrorOutOfMemory {
		t.Errorf("more than there is: %s", r.Name())
	}
	submit(t, b, b.DefaultStream(), launchOf(goModule(b, 0, func(*run) *fault { devices[1].space.Raw(at, 1)[0] = 9; return nil })))
	if r := synchronize(t, b); r != cuda.Success || devices[1].Evicted() != 0 || devices[0].Evicted() != 8<<20 {
		t.Errorf("%s, %d and %d bytes are away", r.Name(), devices[0].Evicted(), devices[1].Evicted())
	}
	if got := download(t, b, at, 1); got[0] != 9 {
		t.Errorf("a kernel wrote %d", got[0])
	}
}

// Two devices attach a part of a file at addresses of their own; each reads the other's writes; it counts once, and
// outlives neither a detach nor a context.
func TestAttach(t *testing.T) {
	page, devices := swapped(t, 2, 64<<20, 0)
	fd, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "shared")
	defer f.Close()
	if err := f.Truncate(256 << 20); err != nil {
		t.Fatal(err)
	}
	if devices[0].ReserveSegments(65 << 20) {
		t.Error("more than there is")
	}
	if !devices[0].ReserveSegments(5000) || page.Reserved() != 5000 {
		t.Errorf("%d bytes count", page.Reserved())
	}
	a, b := context(t, devices[0]), context(t, devices[1])
	x, r := a.Attach(f, 64<<20, 5000)
	want(t, r, cuda.Success)
	again, r := a.Attach(f, 64<<20, 5000)
	want(t, r, cuda.Success)
	y, r := b.Attach(f, 64<<20, 5000)
	want(t, r, cuda.Success)
	text := bytes.Repeat([]byte("shared"), 800)
	upload(t, a, x, text)
	for c, at := range map[*Context]uint64{a: again, b: y} {
		if got := download(t, c, at, len(text)); !bytes.Equal(got, text) {
			t.Errorf("at %#x is something else", at)
		}
	}
	if r := a.Free(x, nil); r != cuda.ErrorInvalidValue {
		t.Errorf("freed: %s", r.Name())
	}
	if r := b.Detach(x, func() {}); r != cuda.ErrorInvalidValue {
		t.Errorf("detached by another: %s", r.Name())
	}
	done := make(chan struct{})
	want(t, a.Detach(x, func() { close(done) }), cuda.Success)
	<-done
	if devices[0].space.Slice(x, 1) != nil {
		t.Error("it is still there")
	}
	if got := download(t, a, again, len(text)); !bytes.Equal(got, text) {
		t.Error("another attachment went, too")
	}
	gone := make(chan struct{})
	a.Destroy(func() { close(gone) })
	<-gone
	if devices[0].space.Slice(again, 1) != nil {
		t.Error("it outlived its context")
	}
	if got := download(t, b, y, len(text)); !bytes.Equal(got, text) {
		t.Error("it went with another's context")
	}
	if !devices[0].ReserveSegments(0) || page.Reserved() != 0 {
		t.Errorf("%d bytes count", page.Reserved())
	}
}

const walkKernel = header + `
.visible .entry walk(.param .u64 at, .param .u32 n)
{
	.reg .pred %p;
	.reg .b32 %r<6>;
	.reg .b64 %a<3>;
	ld.param.u64 %a1, [at];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %a2, %r2, 4;
	add.u64 %a1, %a1, %a2;
again:
	ld.global.u32 %r3, [%a1];
	add.u32 %r3, %r3, %r2;
	add.u32 %r3, %r3, 1;
	st.global.u32 [%a1], %r3;
	sub.u32 %r1, %r1, 1;
	setp.ne.u32 %p, %r1, 0;
	@%p bra again;
	ret;
}
`

// The memory of kernels that are paused for their turn is evicted for that of others, and is resident again when the
// kernels, which share the device, continue.
func TestPausedKernelIsSwapped(t *testing.T) {
	const memory = 4 << 20
	n := 2_000_000
	if testing.Short() { // as with the race detector, under which the kernel takes many times as long
		n /= 10
	}
	page, devices := swapped(t, 1, memory, 2*memory)
	turn := newTurns(true)
	d, c := open(t, func(c *Config) {
		page.share(c)
		c.Memory, c.Turn = memory, turn
		c.Domain = "paused"
	})
	at := []uint64{alloc(t, c, 3<<20), alloc(t, c, 4096)}
	m, w := load(t, c, walkKernel), newWaiter()
	for _, a := range at {
		launch := launchOf(m, binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, a), uint32(n))...)
		launch.Block = [3]uint32{256, 1, 1}
		want(t, c.Submit(stream(t, c, 1), launch, w.done), cuda.Success)
	}
	for page.Holder(engine.Compute) == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	turn.give(false)
	turn.awaited(t)
	other := context(t, devices[0])
	alloc(t, other, 3<<20)
	submit(t, other, other.DefaultStream(), launchOf(goModule(other, 0, func(*run) *fault {
		if d.Evicted() < 3<<20 {
			t.Errorf("%d bytes of the paused kernel's memory have left the device", d.Evicted())
		}
		return nil
	})))
	want(t, synchronize(t, other), cuda.Success)
	turn.give(true)
	for range at {
		want(t, w.wait(t), cuda.Success)
	}
	for _, a := range at {
		got := download(t, c, a, 4*256)
		for i := range 256 {
			if v := binary.LittleEndian.Uint32(got[4*i:]); v != uint32(n*(i+1)) {
				t.Fatalf("thread %d came to %d, want %d", i, v, uint32(n*(i+1)))
			}
		}
	}
}
