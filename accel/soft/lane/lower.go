package lane

import (
	"fmt"
	"slices"
	"strings"

	"pegasus/accel/ptx"
)

// compile lowers a kernel.
func compile(im *Image, fn *ptx.Func) (*irProgram, error) {
	body, err := fn.Body()
	if err != nil {
		return nil, err
	}
	blocks := body.Blocks()
	body.Fuse(blocks)
	slots := body.Allocate(blocks)
	l := &lowerer{
		image: im, body: body, slots: slots, reads: countReads(body), polling: polls(body, blocks), constants: map[uint64]int32{},
		barriers: slices.ContainsFunc(body.Insts, func(in ptx.Inst) bool { return in.Op == opBar || in.Op == opBarrier }),
		frames:   newFrames(body),
		prog: &irProgram{fn: fn, samplers: im.samplers, opaque: im.opaque, shared: int(body.Shared),
			uniforms: make([]uint64, slots.Uniforms),
			affine:   slots.Count[ptx.File32] - slots.FirstAffine[ptx.File32] + slots.Count[ptx.File64] - slots.FirstAffine[ptx.File64],
			rows32:   slots.Count[ptx.File32] + 1, rows64: slots.Count[ptx.File64], preds: slots.Count[ptx.PredFile] + 2},
	}
	l.carry = place{slot: int32(slots.Count[ptx.File32]), kind: row32}
	if allocates(body) {
		l.prog.taken = place{slot: int32(l.prog.rows32), kind: row32}
		l.prog.rows32++
		l.prog.stacked = true
	}
	l.base32, l.base64, l.basePred = l.prog.rows32, l.prog.rows64, l.prog.preds
	l.prog.blocks = make([]irBlock, len(blocks))
	for i := range blocks {
		if err := l.block(&blocks[i], i); err != nil {
			return nil, err
		}
	}
	l.target(blocks)
	l.place(blocks)
	if n := l.prog.rows32*4*maxLanes + l.prog.rows64*8*maxLanes; n > maxRowBytes {
		l.line = int32(fn.Line)
		l.fail("kernel %s needs too many registers at a time: %d KiB for %d threads, at most %d", fn.Name, n>>10, maxLanes, maxRowBytes>>10)
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

// maxRowBytes bounds the register file of a group.
const maxRowBytes = 32 << 20

// lowerer turns checked PTX into instructions with places.
type lowerer struct {
	image     *Image
	body      *ptx.Body
	slots     *ptx.Slots
	reads     []int32            // how many instructions read a register
	polling   map[*ptx.Inst]bool // see polls
	barriers  bool               // the kernel has block barriers
	prog      *irProgram
	constants map[uint64]int32
	carry     place // row of the condition code
	frames    frames
	// shapes has the number of the address shape that memory instructions of the block have seen, by register; shape is
	// the next number.
	shapes map[int32]seenShape
	shape  int32
	code   []irInstr
	line   int32
	// Temporary rows are used again by each PTX instruction.
	base32, base64, basePred    int
	temps32, temps64, tempsPred int
	err                         error
}

func (l *lowerer) fail(format string, args ...any) {
	if l.err == nil {
		l.err = &ptx.Error{Line: int(l.line), Msg: fmt.Sprintf(format, args...), Result: ptx.ErrInvalidPTX}
	}
}

func (l *lowerer) block(b *ptx.Block, index int) error {
	out := &l.prog.blocks[index]
	*out = irBlock{guard: -1, next: int32(index + 1), target: -1, join: int32(b.Join)}
	l.code = l.code[:0]
	l.shapes, l.shape = map[int32]seenShape{}, 0
	l.frames.enter(b)
	l.resume(index)
	unwatched := 0 // cost of the code since the block began, or since the latest runWatch
	for i := b.First; i < b.End; i++ {
		in := &l.body.Insts[i]
		l.line, l.temps32, l.temps64, l.tempsPred = in.Line, 0, 0, 0
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
		if unwatched > watchEvery {
			l.emit(irInstr{op: irWatch})
			unwatched = 0
		}
		if l.barriers && reveals(in) {
			l.emit(irInstr{op: irHold})
		}
		first := len(l.code)
		l.lower(in)
		l.forget(in)
		out.cost += dear(in)
		unwatched += dear(in) + len(l.code) - first
		if in.Guard != ptx.None {
			l.guard(in, l.code[first:])
		}
	}
	out.code = slices.Clone(l.code)
	out.cost += 1 + len(l.code)
	return l.err
}

// runWatch checks for cancellation in the middle of a long block.
func runWatch(g *group, _ *instr) { g.watch() }

// target converts labels, which are instruction indices, to blocks.
func (l *lowerer) target(blocks []ptx.Block) {
	index := map[int]int32{}
	for i := range blocks {
		index[blocks[i].First] = int32(i)
	}
	for i := range blocks {
		b := &l.prog.blocks[i]
		if b.ending == jumps {
			in := &l.body.Insts[blocks[i].End-1]
			b.target = index[int(in.Args[0].Imm)]
		}
	}
}

func (l *lowerer) ending(out *irBlock, in *ptx.Inst) {
	out.line = in.Line
	if in.Guard != ptx.None {
		out.guard, out.not = l.slots.Slot[in.Guard], in.Not
	}
	switch in.Op.String() {
	case "bra":
		out.ending = jumps
	case "call":
		out.ending = calls
		out.call = l.transfer(in)
	case "ret":
		out.ending = pick(l.frames.unit > 0, exits, returns)
	case "exit":
		out.ending = exits
	case "trap":
		out.ending = traps
	case "bar", "barrier":
		out.ending = arrives
		out.bar = l.barrier(in)
	}
}

func (l *lowerer) barrier(in *ptx.Inst) *barrierOp {
	op := &barrierOp{red: ptx.RN, arrive: in.Mods.Has(ptx.Arrive), cluster: in.Mods.Has(ptx.Cluster)}
	args := in.Args
	if in.Mods.Has(ptx.Red) {
		op.red = in.Mods.First(ptx.RN, ptx.Popc, ptx.And, ptx.Or)
		if op.red == ptx.RN {
			l.fail("bar.red.xor does not exist")
		}
		if args[0].Kind == ptx.Sink {
			l.fail("bar.red needs a destination")
			return op
		}
		op.d = l.reg(args[0].Reg)
		p := &args[len(args)-1]
		op.p, op.not = l.pred(p)
		args = args[1 : len(args)-1]
	}
	op.id = l.constant(0)
	if len(args) > 0 {
		op.id = l.src(&args[0], ptx.U32)
	}
	if len(args) > 1 {
		op.count = l.src(&args[1], ptx.U32)
	}
	return op
}

// guard restricts instructions to the threads for which the predicate holds.
func (l *lowerer) guard(in *ptx.Inst, code []irInstr) {
	for i := range code {
		c := &code[i]
		if c.d.kind == single { // the same for all threads, whichever computes it
			continue
		}
		c.guard, c.not = l.slots.Slot[in.Guard], in.Not
	}
}

// dear returns the cost of an instruction beyond a common one's.
func dear(in *ptx.Inst) int {
	switch {
	case in.Op == opMma || in.Op == opWmma:
		return 500
	case in.Mods.Has(ptx.Bulk):
		return watchEvery
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

func runGuarded(g *group, in *instr) {
	p := &g.preds[in.guard]
	m := g.act.m.and(p)
	if in.not {
		m = g.act.m.without(p)
	}
	switch {
	case m.empty():
	case m == g.act.m:
		in.inner(g, in)
	default:
		old := g.act.m
		g.act.set(&m)
		in.inner(g, in)
		g.act.set(&old)
	}
}

// reg returns the place of a register.
func (l *lowerer) reg(r int32) place {
	switch {
	case l.slots.Uniform[r]:
		return place{slot: l.slots.Slot[r], kind: single}
	case l.body.Regs[r] == ptx.Pred:
		return place{slot: l.slots.Slot[r], kind: predicate}
	case l.body.Regs[r].Size() == 8:
		return place{l.slots.Slot[r], row64, l.affine(r)}
	}
	return place{l.slots.Slot[r], row32, l.affine(r)}
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
func (l *lowerer) add(in irInstr) {
	switch {
	case in.aware:
		l.fillRows(in.b, in.c)
	case in.d.affine == 0:
		l.fillRows(in.a, in.mem.address, in.b, in.c)
	}
	l.code = append(l.code, in)
}

// fillRows has the rows of operands written that are affine registers.
func (l *lowerer) fillRows(operands ...place) {
	for _, p := range operands {
		if p.affine != 0 {
			l.code = append(l.code, irInstr{op: irFill, a: p, line: l.line, guard: -1})
		}
	}
}

// constant returns the place of a constant.
func (l *lowerer) constant(v uint64) place {
	s, ok := l.constants[v]
	if !ok {
		s = int32(len(l.prog.uniforms))
		l.prog.uniforms = append(l.prog.uniforms, v)
		l.constants[v] = s
	}
	return place{slot: s, kind: single}
}

// temp returns a place for an intermediate value; single if d is.
func (l *lowerer) temp(d place, wide bool) place {
	switch {
	case d.kind == single:
		l.prog.uniforms = append(l.prog.uniforms, 0)
		return place{slot: int32(len(l.prog.uniforms) - 1), kind: single}
	case wide:
		l.temps64++
		l.prog.rows64 = max(l.prog.rows64, l.base64+l.temps64)
		return place{slot: int32(l.base64 + l.temps64 - 1), kind: row64}
	}
	l.temps32++
	l.prog.rows32 = max(l.prog.rows32, l.base32+l.temps32)
	return place{slot: int32(l.base32 + l.temps32 - 1), kind: row32}
}

func (l *lowerer) tempPred() place {
	l.tempsPred++
	l.prog.preds = max(l.prog.preds, l.basePred+l.tempsPred)
	return place{slot: int32(l.basePred + l.tempsPred - 1), kind: predicate}
}

// pred returns the place of a predicate operand. Constants are the last two slots
// before the temporary ones.
func (l *lowerer) pred(o *ptx.Operand) (place, bool) {
	if o.Kind == ptx.Integer {
		if o.Imm != 0 {
			return place{}, false // nowhere is true
		}
		return place{}, true
	}
	return l.reg(o.Reg), o.Not
}

// dst returns the place of a written operand: a scratch row for the sink.
func (l *lowerer) dst(o *ptx.Operand, wide bool) place {
	if o.Kind == ptx.Sink {
		return l.temp(place{}, wide)
	}
	return l.reg(o.Reg)
}

// src returns the place of a read operand of type t.
func (l *lowerer) src(o *ptx.Operand, t ptx.Type) place {
	switch o.Kind {
	case ptx.Register:
		return l.reg(o.Reg)
	case ptx.Special:
		return l.special(ptx.SpecialReg(o.Imm))
	case ptx.Symbol:
		return l.variableAddress(o)
	case ptx.FuncAddress:
		return l.constant(l.image.functionAddress(o.Func))
	}
	return l.constant(o.Bits(t))
}

// address returns a variable's address in its own space.
func (l *lowerer) address(v *ptx.Var) uint64 {
	switch v.Space {
	case ptx.Global, ptx.Const:
		return l.image.address[v]
	case ptx.ParamSpace:
		return paramWindow + uint64(v.Offset)
	}
	return uint64(v.Offset)
}

// signed returns src, with values of 16 bits sign-extended if t is signed.
func (l *lowerer) signed(o *ptx.Operand, t ptx.Type, d place) place {
	if t != ptx.S16 {
		return l.src(o, t)
	}
	if o.Kind != ptx.Register {
		return l.constant(uint64(uint32(int16(o.Bits(t)))))
	}
	s := l.src(o, t)
	k := l.temp(d, false)
	if s.kind == single {
		k = l.temp(s, false)
	}
	l.op("cvtS16", k, s)
	return k
}

// op emits a row operation.
func (l *lowerer) op(name string, d place, src ...place) {
	if plainRows[name] == nil {
		l.fail("no row operation %s", name)
		return
	}
	in := l.instr(d, src)
	in.op, in.row = irRow, name
	if strings.HasPrefix(name, "cmp") {
		in.op = irCompare
		if comparesIntegers(name) && in.a.affine|in.b.affine != 0 {
			in.op = irCompareAffine
			l.code = append(l.code, in)
			return
		}
	}
	l.add(in)
}

func (l *lowerer) instr(d place, src []place) irInstr {
	in := irInstr{line: l.line, guard: -1, d: d}
	for i, s := range src {
		*[]*place{&in.a, &in.b, &in.c}[i] = s
		if s.kind == single {
			in.scalars |= 1 << i
		}
	}
	return in
}

// lanes emits an operation given for single lanes. wide reports which of d, a, b and c have 64 bits.
func (l *lowerer) lanes(f laneFunc, d place, wide [4]bool, src ...place) {
	in := l.instr(d, src)
	in.op, in.lane = irRow, &laneOp{f, wide}
	l.add(in)
}

// same returns the widths of an operation with all operands of the size of t.
func same(t ptx.Type) [4]bool {
	w := t.Size() == 8
	return [4]bool{w, w, w, w}
}

// trim puts a result of 16 bits into its normal form.
func (l *lowerer) trim(d place, t ptx.Type) {
	if t.Size() == 2 {
		l.op("cvtU16", d, d)
	}
}

// emit appends an instruction that is no row operation.
func (l *lowerer) emit(in irInstr) {
	in.line, in.guard = l.line, -1
	l.add(in)
}
