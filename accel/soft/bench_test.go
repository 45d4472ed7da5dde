package soft

import (
	"bytes"
	"fmt"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

func BenchmarkQueueKernel(b *testing.B) {
	_, c := open(b, nil)
	m := goModule(c, 24, func(*run) *fault { return nil })
	l := launchOf(m, make([]byte, 24)...)
	done := func(cuda.Result, accel.Usage) {}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Submit(c.DefaultStream(), &l, done)
		if i%1024 == 1023 {
			b.StopTimer()
			synchronize(b, c)
			b.StartTimer()
		}
	}
	synchronize(b, c)
}

func BenchmarkKernelRoundTrip(b *testing.B) {
	_, c := open(b, nil)
	m := goModule(c, 0, func(*run) *fault { return nil })
	l := launchOf(m)
	w := newWaiter()
	b.ReportAllocs()
	for b.Loop() {
		c.Submit(c.DefaultStream(), &l, w.done)
		<-w
	}
}

func BenchmarkSmallCopy(b *testing.B) {
	_, c := open(b, nil)
	a := alloc(b, c, 4096)
	cp := accel.Copy{Dst: accel.End{Address: a}, Src: accel.End{Host: make([]byte, 64)}, Width: 64, Height: 1, Depth: 1}
	b.ReportAllocs()
	for b.Loop() {
		c.Submit(c.DefaultStream(), &cp, nil)
	}
}

func BenchmarkCopy(b *testing.B) {
	_, c := open(b, nil)
	for _, n := range []uint64{1 << 20, 64 << 20} {
		a := alloc(b, c, n)
		host, other := bytes.Repeat([]byte{1}, int(n)), bytes.Repeat([]byte{2}, int(n))
		upload(b, c, a, other)
		b.Run(fmt.Sprintf("memcpy/%dMiB", n>>20), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(other, host)
			}
		})
		in := accel.Copy{Dst: accel.End{Address: a}, Src: accel.End{Host: host}, Width: n, Height: 1, Depth: 1}
		out := accel.Copy{Dst: in.Src, Src: in.Dst, Width: n, Height: 1, Depth: 1}
		for name, cp := range map[string]*accel.Copy{"in": &in, "out": &out} {
			b.Run(fmt.Sprintf("%s/%dMiB", name, n>>20), func(b *testing.B) {
				b.SetBytes(int64(n))
				w := newWaiter()
				for b.Loop() {
					c.Submit(c.DefaultStream(), cp, w.done)
					<-w
				}
			})
		}
	}
}
