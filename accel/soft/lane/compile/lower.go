// Package compile lowers PTX to programs of package ir: it assigns slots to registers, and turns each instruction into
// one or a few instructions of the executor.
//
// Callers: accel/soft/lane.
//
// Trust boundary: the PTX is hostile. Package ptx has checked its forms; operands that the executor relies on are
// checked here.
package compile

import (
	"fmt"
	"slices"
	"strings"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// Kernel lowers a kernel.
func Kernel(layout *Layout, fn *ptx.Func) (*ir.Program, error) {
	body, err := fn.Body()
	if err != nil {
		return nil, err
	}
	blocks := body.Blocks()
	body.Fuse(blocks)
	slots := body.Allocate(blocks)
	l := &lowerer{
		layout: layout, body: body, slots: slots, reads: countReads(body), polling: polls(body, blocks), constants: map[uint64]int32{},
		barriers: slices.ContainsFunc(body.Insts, func(in ptx.Inst) bool { return in.Op == opBar || in.Op == opBarrier }),
		frames:   newFrames(body),
		prog: &ir.Program{Func: fn, Samplers: layout.samplers, Opaque: layout.opaque, SharedBytes: int(body.Shared),
			Uniforms:    make([]uint64, slots.Uniforms),
			AffineSlots: slots.Count[ptx.File32] - slots.FirstAffine[ptx.File32] + slots.Count[ptx.File64] - slots.FirstAffine[ptx.File64],
			Rows32:      slots.Count[ptx.File32] + 1, Rows64: slots.Count[ptx.File64], Predicates: slots.Count[ptx.PredFile] + 2},
	}
	l.carry = ir.Place{Slot: int32(slots.Count[ptx.File32]), Kind: ir.Row32}
	if allocates(body) {
		l.prog.AllocaRow = ir.Place{Slot: int32(l.prog.Rows32), Kind: ir.Row32}
		l.prog.Rows32++
		l.prog.NeedsStack = true
	}
	l.base = slotCounts{l.prog.Rows32, l.prog.Rows64, l.prog.Predicates}
	l.prog.Blocks = make([]ir.Block, len(blocks))
	for i := range blocks {
		if err := l.block(&blocks[i], i); err != nil {
			return nil, err
		}
	}
	l.target(blocks)
	l.place(blocks)
	keepShapes(l.prog)
	if n := l.prog.Rows32*4*ir.MaxLanes + l.prog.Rows64*8*ir.MaxLanes; n > MaxRowBytes {
		l.line = int32(fn.Line)
		l.fail("kernel %s needs too many registers at a time: %d KiB for %d threads, at most %d", fn.Name, n>>10, ir.MaxLanes, MaxRowBytes>>10)
	}
	return l.prog, l.err
}

// countReads returns how often each register is read.
func countReads(b *ptx.Body) []int32 {
	reads := make([]int32, len(b.Regs))
	for i := range b.Insts {
		b.Insts[i].Visit(func(r int32, written bool) {
			if !written {
				reads[r]++
			}
		})
	}
	return reads
}

// MaxRowBytes bounds the register file of a group.
const MaxRowBytes = 32 << 20

// lowerer turns checked PTX into instructions with places.
type lowerer struct {
	layout    *Layout
	body      *ptx.Body
	slots     *ptx.Slots
	reads     []int32            // how many instructions read a register
	polling   map[*ptx.Inst]bool // see polls
	barriers  bool               // the kernel has block barriers
	prog      *ir.Program
	constants map[uint64]int32
	carry     ir.Place // row of the condition code
	frames    frames
	// shapes has the number of the address shape that memory instructions of the block have seen, by register; shape is
	// the next number.
	shapes map[int32]seenShape
	shape  int32
	code   []ir.Instr // of the block
	line   int32
	// Temporary rows are used again by each PTX instruction.
	base, temps slotCounts // slots of registers, and of temporary rows in use
	err         error
}

// slotCounts has the number of slots of each file.
type slotCounts struct{ rows32, rows64, preds int }

func (l *lowerer) fail(format string, args ...any) {
	if l.err == nil {
		l.err = &ptx.Error{Line: int(l.line), Msg: fmt.Sprintf(format, args...), Result: ptx.ErrInvalidPTX}
	}
}

func (l *lowerer) block(b *ptx.Block, index int) error {
	out := &l.prog.Blocks[index]
	*out = ir.Block{Guard: -1, Next: int32(index + 1), Target: -1, Join: int32(b.Join)}
	l.code = l.code[:0]
	l.shapes, l.shape = map[int32]seenShape{}, 0
	l.frames.enter(b)
	l.resume(index)
	held := false  // threads have let others continue since the latest instruction that may read memory
	unwatched := 0 // cost of the code since the block began, or since the latest runWatch
	for i := b.First; i < b.End; i++ {
		in := &l.body.Insts[i]
		l.line, l.temps = in.Line, slotCounts{}
		if in.EndsBlock() || !knowsAffine[in.Op] || in.Mods.Has(ptx.Async) || in.Mods.Has(ptx.Bulk) {
			l.fill(in)
		}
		if in.EndsBlock() {
			l.ending(out, in)
			continue
		}
		if (in.Op == opMul || in.Op == opMad && in.Mods.Has(ptx.Wide) && !in.Mods.Has(ptx.CC)) && in.Args[0].Kind == ptx.Register && l.reads[in.Args[0].Reg] == 0 {
			continue // it was fused
		}
		if unwatched > ir.WatchEvery {
			l.emit(ir.Instr{Op: ir.OpWatch})
			unwatched = 0
		}
		if l.barriers && reveals(in) && !held {
			l.emit(ir.Instr{Op: ir.OpHold})
			held = true
		}
		first := len(l.code)
		l.lower(in)
		held = held && blind(l.code[first:])
		l.forget(in)
		out.Cost += dear(in)
		unwatched += dear(in) + len(l.code) - first
		if in.Guard != ptx.None {
			l.guard(in, l.code[first:])
		}
	}
	out.Code = slices.Clone(l.code)
	out.Cost += 1 + len(l.code)
	return l.err
}

// target converts labels, which are instruction indices, to blocks.
func (l *lowerer) target(blocks []ptx.Block) {
	index := map[int]int32{}
	for i := range blocks {
		index[blocks[i].First] = int32(i)
	}
	for i := range blocks {
		b := &l.prog.Blocks[i]
		if b.Ending == ir.Jumps {
			in := &l.body.Insts[blocks[i].End-1]
			b.Target = index[int(in.Args[0].Imm)]
		}
	}
}

func (l *lowerer) ending(out *ir.Block, in *ptx.Inst) {
	out.Line = in.Line
	if in.Guard != ptx.None {
		out.Guard, out.GuardNot = l.slots.Slot[in.Guard], in.Not
	}
	switch in.Op.String() {
	case "bra":
		out.Ending = ir.Jumps
	case "call":
		out.Ending = ir.Calls
		out.Call = l.transfer(in)
	case "ret":
		out.Ending = arith.Pick(l.frames.unit > 0, ir.Exits, ir.Returns)
	case "exit":
		out.Ending = ir.Exits
	case "trap":
		out.Ending = ir.Traps
	case "bar", "barrier":
		out.Ending = ir.Arrives
		out.Barrier = l.barrier(in)
	}
}

func (l *lowerer) barrier(in *ptx.Inst) *ir.Barrier {
	op := &ir.Barrier{Reduction: ptx.RN, Arrive: in.Mods.Has(ptx.Arrive), Cluster: in.Mods.Has(ptx.Cluster)}
	args := in.Args
	if in.Mods.Has(ptx.Red) {
		op.Reduction = in.Mods.First(ptx.RN, ptx.Popc, ptx.And, ptx.Or)
		if op.Reduction == ptx.RN {
			l.fail("bar.red.xor does not exist")
		}
		if args[0].Kind == ptx.Sink {
			l.fail("bar.red needs a destination")
			return op
		}
		op.Dst = l.reg(args[0].Reg)
		p := &args[len(args)-1]
		op.Pred, op.PredNot = l.pred(p)
		args = args[1 : len(args)-1]
	}
	op.Id = l.constant(0)
	if len(args) > 0 {
		op.Id = l.src(&args[0], ptx.U32)
	}
	if len(args) > 1 {
		op.Count = l.src(&args[1], ptx.U32)
	}
	return op
}

// guard restricts instructions to the threads for which the predicate holds.
func (l *lowerer) guard(in *ptx.Inst, code []ir.Instr) {
	for i := range code {
		c := &code[i]
		if c.Dst.Kind == ir.Single { // the same for all threads, whichever computes it
			continue
		}
		c.Guard, c.GuardNot = l.slots.Slot[in.Guard], in.Not
	}
}

// dear returns the cost of an instruction beyond a common one's.
func dear(in *ptx.Inst) int {
	switch {
	case in.Op == opMma || in.Op == opWmma:
		return 500
	case in.Mods.Has(ptx.Bulk):
		return ir.WatchEvery
	case in.Type == ptx.F64 && !exact(in): // by big numbers
		return 1000
	case in.Op == opTex || in.Op == opTld4 || in.Op == opSuld || in.Op == opSust || in.Op == opSured || in.Op == opMatch:
		return 20
	case in.Op == opCall:
		return 1000
	}
	return 0
}

var opMul, opMad, opAlloca, opTex, opMatch, opCall, opMma, opWmma = ptx.OpOf("mul"), ptx.OpOf("mad"), ptx.OpOf("alloca"), ptx.OpOf("tex"), ptx.OpOf("match"), ptx.OpOf("call"), ptx.OpOf("mma"), ptx.OpOf("wmma")

// reg returns the place of a register.
func (l *lowerer) reg(r int32) ir.Place {
	switch {
	case l.slots.Uniform[r]:
		return ir.Place{Slot: l.slots.Slot[r], Kind: ir.Single}
	case l.body.Regs[r] == ptx.Pred:
		return ir.Place{Slot: l.slots.Slot[r], Kind: ir.Predicate}
	case l.body.Regs[r].Size() == 8:
		return ir.Place{Slot: l.slots.Slot[r], Kind: ir.Row64, Affine: l.affine(r)}
	}
	return ir.Place{Slot: l.slots.Slot[r], Kind: ir.Row32, Affine: l.affine(r)}
}

// affine returns the number of the register's slot among those of affine ones, or 0.
func (l *lowerer) affine(r int32) uint16 {
	if !l.slots.Affine[r] {
		return 0
	}
	file := ptx.ClassOf(l.body.Regs[r])
	n := 1 + int(l.slots.Slot[r]) - l.slots.FirstAffine[file]
	if file == ptx.File64 {
		n += l.slots.Count[ptx.File32] - l.slots.FirstAffine[ptx.File32]
	}
	return uint16(n)
}

// knowsAffine are the opcodes with a lowering that passes all operands to add. For others the rows of affine registers
// are written before.
var knowsAffine = func() (set [256]bool) {
	for _, name := range fields("mov add sub mul mad fma shl shr and or xor not neg min max abs div rem cvt cvta setp set selp slct bfe ld ldu st atom red") {
		set[ptx.OpOf(name)] = true
	}
	return set
}()

// fill has rows written of all affine registers that an instruction reads.
func (l *lowerer) fill(in *ptx.Inst) {
	in.Visit(func(r int32, written bool) {
		if !written && l.slots.Affine[r] {
			l.fillRows(l.reg(r))
		}
	})
}

// add appends an instruction. The rows of operands that it can't take as progressions are written before. If its result
// is an affine register, it takes all operands as progressions.
func (l *lowerer) add(in ir.Instr) {
	switch {
	case in.TakesAffine:
		l.fillRows(in.B, in.C)
	case in.Dst.Affine == 0:
		l.fillRows(in.A, in.Mem.Address, in.B, in.C)
	}
	l.code = append(l.code, in)
}

// fillRows has the rows of operands written that are affine registers.
func (l *lowerer) fillRows(operands ...ir.Place) {
	for _, p := range operands {
		if p.Affine != 0 {
			l.code = append(l.code, ir.Instr{Op: ir.OpFill, A: p, Line: l.line, Guard: -1})
		}
	}
}

// constant returns the place of a constant.
func (l *lowerer) constant(v uint64) ir.Place {
	s, ok := l.constants[v]
	if !ok {
		s = int32(len(l.prog.Uniforms))
		l.prog.Uniforms = append(l.prog.Uniforms, v)
		l.constants[v] = s
	}
	return ir.Place{Slot: s, Kind: ir.Single}
}

// temp returns a place for an intermediate value; single if d is.
func (l *lowerer) temp(d ir.Place, wide bool) ir.Place {
	switch {
	case d.Kind == ir.Single:
		l.prog.Uniforms = append(l.prog.Uniforms, 0)
		return ir.Place{Slot: int32(len(l.prog.Uniforms) - 1), Kind: ir.Single}
	case wide:
		l.temps.rows64++
		l.prog.Rows64 = max(l.prog.Rows64, l.base.rows64+l.temps.rows64)
		return ir.Place{Slot: int32(l.base.rows64 + l.temps.rows64 - 1), Kind: ir.Row64}
	}
	l.temps.rows32++
	l.prog.Rows32 = max(l.prog.Rows32, l.base.rows32+l.temps.rows32)
	return ir.Place{Slot: int32(l.base.rows32 + l.temps.rows32 - 1), Kind: ir.Row32}
}

func (l *lowerer) tempPred() ir.Place {
	l.temps.preds++
	l.prog.Predicates = max(l.prog.Predicates, l.base.preds+l.temps.preds)
	return ir.Place{Slot: int32(l.base.preds + l.temps.preds - 1), Kind: ir.Predicate}
}

// pred returns the place of a predicate operand. Constants are the last two slots
// before the temporary ones.
func (l *lowerer) pred(o *ptx.Operand) (ir.Place, bool) {
	if o.Kind == ptx.Integer {
		if o.Imm != 0 {
			return ir.Place{}, false // nowhere is true
		}
		return ir.Place{}, true
	}
	return l.reg(o.Reg), o.Not
}

// dst returns the place of a written operand: a scratch row for the sink.
func (l *lowerer) dst(o *ptx.Operand, wide bool) ir.Place {
	if o.Kind == ptx.Sink {
		return l.temp(ir.Place{}, wide)
	}
	return l.reg(o.Reg)
}

// src returns the place of a read operand of type t.
func (l *lowerer) src(o *ptx.Operand, t ptx.Type) ir.Place {
	switch o.Kind {
	case ptx.Register:
		return l.reg(o.Reg)
	case ptx.Special:
		return l.special(ptx.SpecialReg(o.Imm))
	case ptx.Symbol:
		return l.variableAddress(o)
	case ptx.FuncAddress:
		return l.constant(l.layout.functionAddress(o.Func))
	}
	return l.constant(o.Bits(t))
}

// address returns a variable's address in its own space.
func (l *lowerer) address(v *ptx.Var) uint64 {
	switch v.Space {
	case ptx.Global, ptx.Const:
		return l.layout.Address[v]
	case ptx.ParamSpace:
		return ir.ParamWindow + uint64(v.Offset)
	}
	return uint64(v.Offset)
}

// signed returns src, with values of 16 bits sign-extended if t is signed.
func (l *lowerer) signed(o *ptx.Operand, t ptx.Type, d ir.Place) ir.Place {
	if t != ptx.S16 {
		return l.src(o, t)
	}
	if o.Kind != ptx.Register {
		return l.constant(uint64(uint32(int16(o.Bits(t)))))
	}
	s := l.src(o, t)
	k := l.temp(d, false)
	if s.Kind == ir.Single {
		k = l.temp(s, false)
	}
	l.op("cvtS16", k, s)
	return k
}

// op emits a row operation.
func (l *lowerer) op(name string, d ir.Place, src ...ir.Place) {
	if !arith.HasRow(name) {
		l.fail("no row operation %s", name)
		return
	}
	in := l.instr(d, src)
	in.Op, in.Row = ir.OpRow, name
	if strings.HasPrefix(name, "cmp") {
		in.Op = ir.OpCompare
		if arith.ComparesIntegers(name) && in.A.Affine|in.B.Affine != 0 {
			in.Op = ir.OpCompareAffine
			l.code = append(l.code, in)
			return
		}
	}
	l.add(in)
}

func (l *lowerer) instr(d ir.Place, src []ir.Place) ir.Instr {
	in := ir.Instr{Line: l.line, Guard: -1, Dst: d}
	for i, s := range src {
		*[]*ir.Place{&in.A, &in.B, &in.C}[i] = s
		if s.Kind == ir.Single {
			in.Scalars |= 1 << i
		}
	}
	return in
}

// lanes emits an operation given for single lanes. wide reports which of d, a, b and c have 64 bits.
func (l *lowerer) lanes(f arith.LaneFunc, d ir.Place, wide [4]bool, src ...ir.Place) {
	in := l.instr(d, src)
	in.Op, in.Lane = ir.OpRow, &ir.LaneOp{Func: f, Wide: wide}
	l.add(in)
}

// same returns the widths of an operation with all operands of the size of t.
func same(t ptx.Type) [4]bool {
	w := t.Size() == 8
	return [4]bool{w, w, w, w}
}

// trim clears the upper half of a result of 16 bits.
func (l *lowerer) trim(d ir.Place, t ptx.Type) {
	if t.Size() == 2 {
		l.op("cvtU16", d, d)
	}
}

// emit appends an instruction that is no row operation.
func (l *lowerer) emit(in ir.Instr) {
	in.Line, in.Guard = l.line, -1
	l.add(in)
}
