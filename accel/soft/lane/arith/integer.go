package arith

// Integer operations that Go has no operator for. The vector kernels are
// compiled from them, so they have no branches but for choices.

// SaturateS32 clamps to the range of int32.
func SaturateS32(x int64) int32 { return int32(max(min(x, 1<<31-1), -1<<31)) }

func highU32(x, y uint32) uint32 { return uint32(uint64(x) * uint64(y) >> 32) }
func highS32(x, y int32) int32   { return int32(int64(x) * int64(y) >> 32) }

// highU64 returns the upper half of a product, from those of its halves.
func highU64(x, y uint64) uint64 {
	const low = 1<<32 - 1
	middle := x>>32*(y&low) + x&low*(y&low)>>32
	return x>>32*(y>>32) + middle>>32 + (x&low*(y>>32)+middle&low)>>32
}

func highS64(x, y uint64) uint64 {
	r := highU64(x, y)
	if int64(x) < 0 {
		r -= y
	}
	if int64(y) < 0 {
		r -= x
	}
	return r
}

// Products of the lower 24 bits.
func product24U(x, y uint32) uint64 { return uint64(x&0xffffff) * uint64(y&0xffffff) }
func product24S(x, y int32) int64   { return int64(x<<8>>8) * int64(y<<8>>8) }

// funnelLeft and funnelRight shift the pair y:x and give its upper and its lower word.
func funnelLeft(x, y, n uint32) uint32 {
	return uint32((uint64(y)<<32 | uint64(x)) << uint64(n) >> 32)
}

func funnelRight(x, y, n uint32) uint32 {
	return uint32((uint64(y)<<32 | uint64(x)) >> uint64(n))
}

// extractU32, … are bfe: n bits from bit p on, with a sign in front if there is
// one, also when there are fewer.
func extractU32(x, p, n uint32) uint32 { return x >> (p & 0xff) & (1<<(n&0xff) - 1) }
func extractU64(x uint64, p, n uint32) uint64 {
	return x >> (p & 0xff) & (1<<(n&0xff) - 1)
}

func extractS32(x int32, p, n uint32) int32 {
	p &= 0xff
	n &= 0xff
	end := min(p+n, 32)
	r := x << (32 - end) >> (32 - end + p)
	if n == 0 {
		r = 0
	}
	return r
}

func extractS64(x int64, p, n uint32) int64 {
	p &= 0xff
	n &= 0xff
	end := min(p+n, 64)
	r := x << (64 - end) >> (64 - end + p)
	if n == 0 {
		r = 0
	}
	return r
}

// insertU32 and insertU64 are bfi: they insert the lowest bits of x in y; the first byte of at is the position, the
// second the number of bits.
func insertU32(x, y, at uint32) uint32 {
	p := at & 0xff
	m := uint32(1<<(at>>8&0xff)-1) << p
	return y&^m | x<<p&m
}

func insertU64(x, y uint64, at uint32) uint64 {
	p := at & 0xff
	m := uint64(1<<(at>>8&0xff)-1) << p
	return y&^m | x<<p&m
}

// permuteU32 is prmt: bytes of the pair y:x by the selectors z.
func permuteU32(x, y, z uint32) uint32 {
	pair := uint64(y)<<32 | uint64(x)
	return selectedByte(pair, z) | selectedByte(pair, z>>4)<<8 | selectedByte(pair, z>>8)<<16 | selectedByte(pair, z>>12)<<24
}

// selectedByte returns a byte of the pair, or its sign.
func selectedByte(pair uint64, selector uint32) uint32 {
	b := uint32(pair>>uint64(selector&7*8)) & 0xff
	sign := uint32(int32(b<<24) >> 31 & 0xff)
	return Pick(selector&8 != 0, b, sign)
}

// reverse32 and reverse64 turn words round bit by bit.
func reverse32(x uint32) uint32 {
	x = x>>1&0x55555555 | x&0x55555555<<1
	x = x>>2&0x33333333 | x&0x33333333<<2
	x = x>>4&0x0f0f0f0f | x&0x0f0f0f0f<<4
	x = x>>8&0x00ff00ff | x&0x00ff00ff<<8
	return x>>16 | x<<16
}

func reverse64(x uint64) uint64 {
	return uint64(reverse32(uint32(x)))<<32 | uint64(reverse32(uint32(x>>32)))
}

// carryU32 and carryU64 return 1 if the sum s of x, y and perhaps one more exceeds the range, else 0.
func carryU32(x, y, s uint32) uint32 { return (x&y | (x|y)&^s) >> 31 }
func carryU64(x, y, s uint64) uint32 { return uint32((x&y | (x|y)&^s) >> 63) }
