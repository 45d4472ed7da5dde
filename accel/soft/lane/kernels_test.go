package lane

import (
	"math"
	"testing"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/internal/lanetest"
	"pegasus/guest/bench/kernels"
)

func TestVectorAdd(t *testing.T) {
	const n = 100_003
	d := newDevice(t)
	k := d.kernel(d.load(kernels.PTX("vectoradd")), "vectorAdd")
	a, b, c := d.buffer(4*n), d.buffer(4*n), d.buffer(4*n)
	r := lanetest.Random(1)
	for i := range n {
		a.setFloat(i, r.Float32())
		b.setFloat(i, r.Float32())
	}
	d.run(k, x((n+255)/256), x(256), a, b, c, n)
	for i := range n {
		if c.float(i) != a.float(i)+b.float(i) {
			t.Fatalf("element %d: %v + %v = %v", i, a.float(i), b.float(i), c.float(i))
		}
	}
}

// The order of a dot product is fixed, so the result is exact.
func TestMatmul(t *testing.T) {
	const n = 64
	d := newDevice(t)
	k := d.kernel(d.load(kernels.PTX("matmul")), "matmul")
	a, b, c := d.buffer(4*n*n), d.buffer(4*n*n), d.buffer(4*n*n)
	r := lanetest.Random(2)
	for i := range n * n {
		a.setFloat(i, r.Float32()-0.5)
		b.setFloat(i, r.Float32()-0.5)
	}
	d.run(k, xy(n/16, n/16), xy(16, 16), a, b, c, n)
	for i := range n {
		for j := range n {
			var sum float32
			for m := range n {
				sum = arith.FMA32(a.float(i*n+m), b.float(m*n+j), sum)
			}
			if got := c.float(i*n + j); got != sum {
				t.Fatalf("c[%d][%d] = %v, want %v", i, j, got, sum)
			}
		}
	}
}

// blackScholes fills a call's arguments and runs it.
func blackScholes(d *device, n int) (k *Kernel, grid, block [3]uint32, args []any) {
	k = d.kernel(d.load(kernels.PTX("blackscholes")), "blackScholes")
	call, put, price, strike, years := d.buffer(4*n), d.buffer(4*n), d.buffer(4*n), d.buffer(4*n), d.buffer(4*n)
	r := lanetest.Random(3)
	for i := range n {
		price.setFloat(i, 5+25*r.Float32())
		strike.setFloat(i, 1+99*r.Float32())
		years.setFloat(i, 0.25+9.75*r.Float32())
	}
	return k, x(480), x(128), []any{call, put, price, strike, years, float32(0.02), float32(0.3), n}
}

func TestBlackScholes(t *testing.T) {
	const n = 100_000
	d := newDevice(t)
	k, grid, block, args := blackScholes(d, n)
	d.run(k, grid, block, args...)
	call, put, price, strike, years := args[0].(buffer), args[1].(buffer), args[2].(buffer), args[3].(buffer), args[4].(buffer)
	normal := func(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }
	for i := range n {
		S, X, T := float64(price.float(i)), float64(strike.float(i)), float64(years.float(i))
		spread := 0.3 * math.Sqrt(T)
		d1 := (math.Log(S/X) + (0.02+0.045)*T) / spread
		d2 := d1 - spread
		c := S*normal(d1) - X*math.Exp(-0.02*T)*normal(d2)
		p := X*math.Exp(-0.02*T)*normal(-d2) - S*normal(-d1)
		if math.Abs(float64(call.float(i))-c) > 1e-4 || math.Abs(float64(put.float(i))-p) > 1e-4 {
			t.Fatalf("option %d: call %v put %v, want %v %v", i, call.float(i), put.float(i), c, p)
		}
	}
}

func TestReduction(t *testing.T) {
	const n = 1 << 17
	d := newDevice(t)
	k := d.kernel(d.load(kernels.PTX("reduction")), "sum")
	in, sums, total := d.buffer(4*n), d.buffer(4*64), d.buffer(4)
	want := 0
	for i := range n {
		in.setFloat(i, float32(i%7))
		want += i % 7
	}
	d.run(k, x(64), x(256), in, sums, n)
	d.run(k, x(1), x(256), sums, total, 64)
	if got := total.float(0); got != float32(want) {
		t.Fatalf("sum %v, want %d", got, want)
	}
}

func TestHistogram(t *testing.T) {
	const n = 50_000
	d := newDevice(t)
	k := d.kernel(d.load(kernels.PTX("histogram")), "histogram")
	words, bins := d.buffer(4*n), d.buffer(4*256)
	var want [256]uint32
	r := lanetest.Random(4)
	for i := range n {
		w := r.Uint32() & r.Uint32()
		words.setWord(i, w)
		for s := 0; s < 32; s += 8 {
			want[w>>s&255]++
		}
	}
	d.run(k, x(24), x(192), words, bins, n)
	for i, v := range want {
		if bins.word(i) != v {
			t.Fatalf("bin %d: %d, want %d", i, bins.word(i), v)
		}
	}
}

func TestWalsh(t *testing.T) {
	const n = 1 << 13
	d := newDevice(t)
	im := d.load(kernels.PTX("walsh"))
	in, out := d.buffer(4*n), d.buffer(4*n)
	want := make([]float32, n)
	r := lanetest.Random(5)
	for i := range n {
		want[i] = float32(r.IntN(9) - 4)
		in.setFloat(i, want[i])
	}
	for half := 1; half < n; half *= 2 {
		for i := range n {
			if i&half == 0 {
				want[i], want[i+half] = want[i]+want[i+half], want[i]-want[i+half]
			}
		}
	}
	d.run(d.kernel(im, "walshGlobal"), x(8), x(256), in, out, n/4, n)
	d.run(d.kernel(im, "walshShared"), x(n/2048), x(1024), out, out, n)
	for i := range n {
		if out.float(i) != want[i] {
			t.Fatalf("element %d: %v, want %v", i, out.float(i), want[i])
		}
	}
}

func BenchmarkBlackScholes(b *testing.B) {
	const n = 1 << 20
	d := newDevice(b)
	k, grid, block, args := blackScholes(d, n)
	l := d.launch(k, grid, block, args...)
	l.Cores = 1
	b.SetBytes(n)
	for b.Loop() {
		if f := k.Run(l); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkMatmul(b *testing.B) {
	const n = 256
	d := newDevice(b)
	k := d.kernel(d.load(kernels.PTX("matmul")), "matmul")
	l := d.launch(k, xy(n/16, n/16), xy(16, 16), d.buffer(4*n*n), d.buffer(4*n*n), d.buffer(4*n*n), n)
	l.Cores = 1
	b.SetBytes(n * n * n)
	for b.Loop() {
		if f := k.Run(l); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkTinyLaunch(b *testing.B) {
	d := newDevice(b)
	k := d.kernel(d.load(kernels.PTX("vectoradd")), "vectorAdd")
	l := d.launch(k, x(1), x(32), d.buffer(128), d.buffer(128), d.buffer(128), 32)
	b.ReportAllocs()
	for b.Loop() {
		if f := k.Run(l); f != nil {
			b.Fatal(f)
		}
	}
}
