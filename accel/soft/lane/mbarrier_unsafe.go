package lane

import "pegasus/accel/ptx"

// mbarrier is a barrier in shared memory, which completes a phase when all arrivals that it expects have come, and all
// bytes of copies that they announced. Its fields from the lowest bit: 20 bits, the arrivals that a phase expects; 20
// bits, the arrivals pending; 21 bits, a signed count of bytes; one clear bit; one bit that marks an mbarrier; and the
// parity of the current phase.
type mbarrier uint64

const (
	mbarrierCount = 1<<20 - 1 // the largest number of arrivals and of bytes
	pendingShift  = 20
	bytesShift    = 40
	bytesMask     = 1<<21 - 1
	mbarrierValid = 1 << 62
	parityShift   = 63
)

func (m mbarrier) valid() bool      { return m&mbarrierValid != 0 }
func (m mbarrier) parity() uint64   { return uint64(m >> parityShift) }
func (m mbarrier) expected() uint64 { return uint64(m & mbarrierCount) }
func (m mbarrier) pending() uint64  { return uint64(m >> pendingShift & mbarrierCount) }

// bytes returns the announced bytes that haven't been copied; less than zero if they were copied before the
// announcement.
func (m mbarrier) bytes() int64 { return int64(m<<(64-21-bytesShift)) >> (64 - 21) }

func (m mbarrier) with(expected, pending uint64, bytes int64) mbarrier {
	return m>>62<<62 | mbarrier(uint64(bytes)&bytesMask<<bytesShift|pending<<pendingShift|expected)
}

// arrive records n arrivals, and announced bytes, or with a minus sign completed ones; dropped: the next phases expect
// n arrivals less. It returns false if there are more arrivals than expected, or too many bytes.
func (m mbarrier) arrive(n uint64, bytes int64, dropped bool) (mbarrier, bool) {
	expected, pending, all := m.expected(), m.pending(), m.bytes()+bytes
	if n > pending || dropped && n > expected || all > mbarrierCount || all < -mbarrierCount {
		return m, false
	}
	pending -= n
	if dropped {
		expected -= n
	}
	if pending == 0 && all == 0 {
		return (m ^ 1<<parityShift).with(expected, expected, 0), true
	}
	return m.with(expected, pending, all), true
}

func lowerMbarrier(l *lowerer, in *ptx.Inst) {
	args := in.Args
	if in.Mods.Has(ptx.PendingCount) {
		l.lanes(func(a, _, _ uint64) uint64 { return mbarrier(a).pending() }, l.dst(&args[0], false), [4]bool{false, true}, l.src(&args[1], ptx.B64))
		return
	}
	var d place
	if in.Form[0] != 'M' {
		if args[0].Kind != ptx.Sink {
			d = l.reg(args[0].Reg)
		}
		args = args[1:]
	}
	c := l.accessTo(&args[0], spaceMod(in), 8, true)
	c.d = d
	op := &mbarrierOp{sign: 1, drop: in.Mods.Has(ptx.ArriveDrop), parity: in.Mods.Has(ptx.Parity)}
	c.detail = op
	switch args = args[1:]; {
	case in.Mods.Has(ptx.InitMod):
		c.op, c.b = irInitMbarrier, l.src(&args[0], ptx.U32)
	case in.Mods.Has(ptx.Inval):
		c.op = irInvalMbarrier
	case in.Mods.Has(ptx.TestWait) || in.Mods.Has(ptx.TryWait):
		c.op, c.b = irWaitMbarrier, l.src(&args[0], pick(op.parity, ptx.B64, ptx.B32))
	case in.Mods.Has(ptx.ExpectTx) || in.Mods.Has(ptx.CompleteTx):
		op.bytes = l.src(&args[0], ptx.U32)
		if in.Mods.Has(ptx.CompleteTx) {
			op.sign = -1
		}
		if in.Form[0] == 'M' {
			op.count = l.constant(0)
		}
		c.op = irArriveMbarrier
	default:
		if len(args) > 0 {
			op.count = l.src(&args[0], ptx.U32)
		}
		c.op = irArriveMbarrier
	}
	l.emit(c)
}

// lowerAsyncArrive lowers cp.async.mbarrier.arrive. The copies are complete, so that the arrival, which follows them, is
// executed now. One that the barrier doesn't expect is added to those that it waits for, and makes no difference.
func lowerAsyncArrive(l *lowerer, in *ptx.Inst) {
	op := &mbarrierOp{}
	if !in.Mods.Has(ptx.NoInc) {
		op.count = l.constant(0)
	}
	c := l.accessTo(&in.Args[0], spaceMod(in), 8, true)
	c.op, c.detail = irArriveMbarrier, op
	l.emit(c)
}

func runInitMbarrier(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		l := int(lane)
		m, n := mbarrierMemory(g, &in.mem, l), uint64(g.scalar(in.b, l))
		if m == nil {
			return
		}
		if n > mbarrierCount {
			g.fail(in.line, l, ptx.ErrLaunchFailed, 0, "an mbarrier can't expect so many arrivals")
			return
		}
		*m = mbarrier(mbarrierValid).with(n, n, 0)
	}
}

func runInvalMbarrier(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		m := findMbarrier(g, &in.mem, int(lane))
		if m == nil {
			return
		}
		*m = 0
	}
}

// runArriveMbarrier performs the arrivals of the threads one after the other, and returns to each the previous state of
// the mbarrier.
func runArriveMbarrier(g *group, in *instr) {
	op := in.detail.(*mbarrierOp)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		m, n, bytes := findMbarrier(g, &in.mem, l), uint64(1), int64(0)
		if m == nil {
			return
		}
		if op.count.kind != nowhere {
			n = uint64(g.scalar(op.count, l))
		}
		if op.bytes.kind != nowhere {
			bytes = op.sign * int64(g.scalar(op.bytes, l))
		}
		before := *m
		if !arriveAtMbarrier(g, &in.mem, m, l, n, bytes, op.drop) {
			return
		}
		if in.d.kind != nowhere {
			g.setValue(in.d, l, uint64(before))
		}
	}
}

// arriveAtMbarrier performs one arrival; it returns false after a fault.
func arriveAtMbarrier(g *group, at *memOperand, m *mbarrier, lane int, n uint64, bytes int64, drop bool) bool {
	after, ok := m.arrive(n, bytes, drop)
	if !ok {
		g.fail(at.line, lane, ptx.ErrLaunchFailed, 0, "more arrivals at an mbarrier than it expects, or more bytes than it counts")
		return false
	}
	*m = after
	return true
}

// runWaitMbarrier returns to each thread whether a phase is complete. It never blocks: a waiting thread repeats the
// instruction, as for a lock.
func runWaitMbarrier(g *group, in *instr) {
	op := in.detail.(*mbarrierOp)
	var done mask
	all := true
	for _, lane := range g.act.lanes() {
		l := int(lane)
		m, parity := findMbarrier(g, &in.mem, l), uint64(0)
		if m == nil {
			return
		}
		if op.parity {
			parity = uint64(g.scalar(in.b, l) & 1)
		} else {
			parity = mbarrier(g.valueOf(in.b, l)).parity()
		}
		if m.parity() != parity {
			done[l>>6] |= 1 << (l & 63)
		} else {
			all = false
		}
	}
	g.spun = g.spun || !all
	if in.d.kind != nowhere {
		g.preds[in.d.slot].blend(&done, &g.act.m)
	}
}

// findMbarrier returns the mbarrier at a thread's address, or nil after a fault.
func findMbarrier(g *group, at *memOperand, lane int) *mbarrier {
	m := mbarrierMemory(g, at, lane)
	if m != nil && !m.valid() {
		g.fail(at.line, lane, ptx.ErrLaunchFailed, 0, "no mbarrier was initialised there")
		return nil
	}
	return m
}

// mbarrierMemory is shared memory for an mbarrier, or nil after a fault.
func mbarrierMemory(g *group, at *memOperand, lane int) *mbarrier {
	ap, step := g.row(at.address)
	addr := get64(ap, step, lane) + at.offset
	if at.space != ptx.Shared && addr&windowMask != sharedWindow {
		g.fail(at.line, lane, ptx.ErrInvalidAddressSpace, addr, "an mbarrier is in shared memory")
		return nil
	}
	return (*mbarrier)(g.pointer(at, addr, lane))
}
