package workload

import "encoding/binary"

func blackScholes(b *builder) {
	const n = 1 << 17
	b.module("blackscholes")
	prices := b.buffer(2 * n)
	call, put := prices, Buffer{prices.Address + 4*n, nil}
	price, strike, years := b.floats(n, 5, 30), b.floats(n, 1, 100), b.floats(n, 0.25, 10)
	b.launch("blackScholes", x(n/256), x(256), call, put, price, strike, years, float32(0.02), float32(0.3), uint32(n))
	b.result, b.Tolerance = prices, 1e-5
}

func matmul(b *builder) {
	const n, tile = 256, 16
	b.module("matmul")
	x, y, z := b.floats(n*n, -1, 1), b.floats(n*n, -1, 1), b.buffer(n*n)
	b.launch("matmul", [3]uint32{n / tile, n / tile, 1}, [3]uint32{tile, tile, 1}, x, y, z, uint32(n))
	b.result = z
}

// Two stages at a time while sections are too long for shared memory; then the rest. The first kernel reads
// the input, the others the previous one's output.
func walsh(b *builder) {
	const n, section = 1 << 19, 2048
	b.module("walsh")
	in, out := b.floats(n, -1, 1), b.buffer(n)
	from, part := in, n
	for ; part > section; part /= 4 {
		b.launch("walshGlobal", x(n/4/256), x(256), from, out, uint32(part/4), uint32(n))
		from = out
	}
	b.launch("walshShared", x(n/part), x(min(part/2, 512)), from, out, uint32(part))
	b.result = out
}

func reduction(b *builder) {
	const n, blocks = 1 << 22, 1024
	b.module("reduction")
	in, sums := b.floats(n, 0, 1), b.buffer(blocks+1)
	total := Buffer{sums.Address + 4*blocks, nil}
	b.launch("sum", x(blocks), x(256), in, sums, uint32(n))
	b.launch("sum", x(1), x(256), sums, total, uint32(blocks))
	b.result = sums
}

func histogram(b *builder) {
	const n, bins = 1 << 20, 256
	b.module("histogram")
	words, counts := b.buffer(n), b.buffer(bins)
	for i := range len(words.Mem) / 4 {
		binary.LittleEndian.PutUint32(words.Mem[4*i:], b.random.Uint32()&b.random.Uint32()) // some values are commoner
	}
	b.launch("histogram", x(256), x(256), words, counts, uint32(n))
	b.result, b.clear = counts, []Buffer{counts}
}

func nbody(b *builder) {
	const n = 2048
	b.module("nbody")
	from, to, velocity := b.floats(4*n, -1, 1), b.buffer(4*n), b.buffer(4*n)
	for i := 3; i < len(from.Mem)/4; i += 4 {
		from.Mem[4*i+3] &= 0x7f // no mass is negative
	}
	b.launch("nbody", x(n/256), x(256), from, to, velocity, float32(1.0/1024), uint32(n))
	b.result, b.Tolerance, b.clear = to, 1e-5, []Buffer{velocity}
}
