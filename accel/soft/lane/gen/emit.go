package gen

import (
	"slices"

	"pegasus/accel/soft/lane/asm"
	"pegasus/accel/soft/lane/ir"
)

// Registers of generated code. RDI is the frame; RAX, RBX, RCX, RDX and RSI hold addresses and
// lanes for a few instructions.
const (
	base32, base64 = asm.R8, asm.R9 // rows of slot 0, at the unit's first lane
	singles        = asm.R10
	predicates     = asm.R11
	active         = asm.R12
	units          = asm.R13
	unitOffset     = asm.R14 // 16 times the number of the unit
	iterations     = asm.R15

	// Masks: the unit's active lanes, the upper 8 of them, one for short sequences, and two that an instruction uses.
	lanes, upperLanes, brief, spare, spare2 asm.Mask = 1, 2, 3, 6, 7

	// Vector registers below nanReg hold rows. nanReg has the canonical NaN; the others are for intermediate values.
	nanReg    asm.Vec = 25
	firstTemp asm.Vec = 26
)

// halves are the masks of a row's parts. A row of 32 bits a lane has but one part, with all lanes.
var halves = [2]asm.Mask{lanes, upperLanes}

// predicateMasks hold predicates. K0 can't restrict an instruction, so predicates are copied for that.
var predicateMasks = []asm.Mask{0, 4, 5}

// value is the content of a row or a predicate slot at some point of a run.
type value struct {
	place ir.Place
	regs  []asm.Vec // one, or two for 64 bits a lane; none if only the slot in memory has the value
	mask  asm.Mask  // of a predicate, if held is set
	held  bool
	home  bool // the slot in memory has the value
	// nan is set for f32 results of which a NaN may have other bits than the canonical one. Operations of f32 take these
	// as they are; all others, and the memory, get canonical ones.
	nan   bool
	fixed bool  // it stays in its register, and is no row
	uses  []use // in the run
}

// use is a read or a write by an instruction of the run.
type use struct {
	at    int
	write bool
}

// emitter emits the code of runs.
type emitter struct {
	asm.Code
	space  space
	known  constants
	masked bool
	values map[int]*value
	order  []*value // those of values, in the order of their first use
	live   slots    // behind the run
	kept   []kept   // the values that stay in registers from one iteration to the next
	loops  bool     // the code is that of a loop
	same   bool     // all lanes of a load have the same address
	groups []AccessGroup
	affine *Affine
	phase  int // of the run
	at     int // number of the instruction
	count  int // of instructions
	added  int // additions emitted
	// pointed has the groups that the pointers are of, each plus 1, or 0; older is the number of the one used earlier.
	pointed [2]int
	older   int

	freeRegs  []asm.Vec
	freeMasks []asm.Mask
	pinned    []*value // operands of the instruction
	temps     asm.Vec
	late      []func() // code behind the run's
}

// span emits both versions of a run's code.
func (e *emitter) span(s *Span, code []ir.Instr, live slots) {
	e.groups, e.affine = s.Groups, s.Affine
	e.same = false
	s.Code = e.version(s, code, live, false, nil)
	s.Masked = e.version(s, code, live, true, nil)
	if s.Loop != nil {
		s.Loop.Code = e.version(s, code, live, false, s.Loop)
		if len(s.Groups) > 0 && !slices.ContainsFunc(s.Groups, func(g AccessGroup) bool { return g.Adds || g.Contiguous }) {
			e.same = true
			s.Loop.Same = e.version(s, code, live, false, s.Loop)
		}
	}
}

// version emits a version of a run's code: for whole units or not, for one iteration or for several of a loop. It
// returns its offset.
func (e *emitter) version(s *Span, code []ir.Instr, live slots, masked bool, loop *Loop) int {
	for len(e.Bytes)%64 != 0 {
		e.Bytes = append(e.Bytes, 0xcc)
	}
	at := len(e.Bytes)
	e.masked = masked
	ends := append(slices.Clone(s.phases), len(code))
	live = slices.Clone(live)
	behind := make([]slots, len(ends)) // the slots that are alive behind the phases
	for i := len(ends) - 1; i >= 0; i-- {
		behind[i] = slices.Clone(live)
		from := 0
		if i > 0 {
			from = ends[i-1]
		}
		for k := ends[i] - 1; k >= from; k-- {
			e.space.before(live, &code[k])
		}
	}
	from := 0
	for i, to := range ends {
		e.phase, e.live = i, behind[i]
		e.run(code[from:to], loop)
		from = to
	}
	e.Return()
	for _, f := range e.late {
		f()
	}
	e.late = nil
	return at
}

func (e *emitter) run(code []ir.Instr, loop *Loop) {
	e.values, e.order, e.kept, e.loops = map[int]*value{}, nil, nil, loop != nil
	e.freeRegs, e.freeMasks, e.count = nil, nil, len(code)
	for v := nanReg; v > 0; v-- {
		e.freeRegs = append(e.freeRegs, v-1)
	}
	e.freeMasks = slices.Clone(predicateMasks)
	for i := range code {
		reads(&code[i], func(p ir.Place) { e.note(p, i, false) })
		e.note(code[i].Dst, i, true)
		e.note(code[i].Dst2, i, true)
	}
	unit := &asm.Label{}
	e.Load(base32, frameRows32)
	e.Load(base64, frameRows64)
	e.Load(singles, frameSingles)
	e.Load(predicates, framePredicates)
	e.Load(active, frameActive)
	e.Load(units, frameUnits)
	e.Reg(asm.XOR, unitOffset, unitOffset)
	e.set32(nanReg, canonicalNaN, asm.Masking{})
	growth := e.counters()
	e.Bind(unit)
	e.pointed = [2]int{}
	e.LoadMask(lanes, asm.At(active, 0))
	e.UpperMask(upperLanes, lanes)
	if loop != nil {
		for n := range e.groups {
			e.begin(n)
		}
	}
	iteration := &asm.Label{}
	if loop != nil {
		e.Load(iterations, frameIterations)
		e.enterLoop(code)
		e.Bind(iteration)
		e.pointed = [2]int{}
	}
	for i := range code {
		e.at, e.temps, e.pinned = i, firstTemp, e.pinned[:0]
		e.instr(&code[i])
	}
	e.at, e.temps, e.pinned = len(code), firstTemp, e.pinned[:0]
	if loop != nil {
		e.endIteration()
		e.RegInt(asm.SUB, iterations, 1)
		e.JumpIf(asm.IfNotZero, iteration)
	}
	for _, v := range e.order {
		if e.live.has(e.space.number(v.place)) {
			e.save(v)
		}
	}
	for i, r := range growth {
		v := e.values[e.space.number(e.affine.Counters[i])].regs[0]
		e.Op3(asm.PADDD, v, v, r, asm.Masking{})
	}
	e.RegInt(asm.ADD, unitOffset, 16)
	e.RegInt(asm.ADD, base32, 64)
	e.RegInt(asm.ADD, base64, 128)
	e.RegInt(asm.ADD, predicates, 2)
	e.RegInt(asm.ADD, active, 2)
	e.RegInt(asm.SUB, units, 1)
	e.JumpIf(asm.IfNotZero, unit)
}

// counters emits the values of the affine registers that are numbers for the first lanes, and returns registers with
// their growth from unit to unit.
func (e *emitter) counters() (growth []asm.Vec) {
	if e.affine == nil {
		return nil
	}
	for i, p := range e.affine.Counters {
		v, by := e.reg(), e.reg()
		at := counterOf(i)
		e.Op2M(asm.BROADCASTD, by, asm.At(at.Base, int(at.Disp)+4), asm.Masking{})
		e.Op3M(asm.PMULLD, v, by, asm.AtLabel(e.Data(counting32)), asm.Masking{})
		e.Op3M(asm.PADDD, v, v, at.All(), asm.Masking{})
		e.Shift(asm.PSLLD, by, by, 4, asm.Masking{})
		o := e.values[e.space.number(p)]
		o.regs, o.fixed = []asm.Vec{v}, true
		growth = append(growth, by)
	}
	return growth
}

// note records a use of a place.
func (e *emitter) note(p ir.Place, at int, write bool) {
	n := e.space.number(p)
	if n < 0 {
		return
	}
	v := e.values[n]
	if v == nil {
		v = &value{place: p, home: true}
		e.values[n] = v
		e.order = append(e.order, v)
	}
	v.uses = append(v.uses, use{at, write})
}

// far is the distance of a use that doesn't come.
const far = 1 << 30

// next returns the number of the next instruction that reads a value, and whether the value is needed at all.
func (e *emitter) next(v *value) (at int, needed bool) {
	for _, u := range v.uses {
		if u.at > e.at {
			return u.at, !u.write
		}
	}
	if e.loops && !v.uses[0].write { // the next iteration reads it
		return e.count + v.uses[0].at, true
	}
	return far, e.live.has(e.space.number(v.place))
}

// instr emits an instruction, and frees the registers of values that aren't needed any more.
func (e *emitter) instr(in *ir.Instr) {
	switch in.Op {
	case ir.OpLoad:
		e.load(in)
	case ir.OpStore:
		e.store(in)
	case ir.OpAdd:
		e.addTo(in)
	case ir.OpHold: // it has no effect: see Span.Holds
	case ir.OpPredicates:
		e.combinePredicates(in)
	case ir.OpSelect:
		e.choose(in)
	default:
		rows[in.Row](e, in)
	}
	for _, v := range e.pinned {
		if _, needed := e.next(v); !needed {
			e.release(v)
		}
	}
}

// release frees the registers of a value.
func (e *emitter) release(v *value) {
	if v.fixed {
		return
	}
	e.freeRegs = append(e.freeRegs, v.regs...)
	if v.held {
		e.freeMasks = append(e.freeMasks, v.mask)
	}
	v.regs, v.held = nil, false
}

// pin keeps a value in its registers while the instruction is emitted.
func (e *emitter) pin(v *value) {
	if !slices.Contains(e.pinned, v) {
		e.pinned = append(e.pinned, v)
	}
}

// reg returns a free vector register, if need be that of the value that is needed last.
func (e *emitter) reg() asm.Vec {
	if len(e.freeRegs) == 0 {
		e.evict(func(v *value) bool { return len(v.regs) > 0 })
	}
	r := e.freeRegs[len(e.freeRegs)-1]
	e.freeRegs = e.freeRegs[:len(e.freeRegs)-1]
	return r
}

// maskReg is reg for predicates.
func (e *emitter) maskReg() asm.Mask {
	if len(e.freeMasks) == 0 {
		e.evict(func(v *value) bool { return v.held })
	}
	k := e.freeMasks[len(e.freeMasks)-1]
	e.freeMasks = e.freeMasks[:len(e.freeMasks)-1]
	return k
}

func (e *emitter) evict(held func(v *value) bool) {
	var last *value
	most := -1
	for _, v := range e.order {
		if !held(v) || v.fixed || slices.Contains(e.pinned, v) {
			continue
		}
		if at, _ := e.next(v); at > most {
			last, most = v, at
		}
	}
	e.save(last)
	e.release(last)
}

// temp returns a register for an intermediate value of the instruction.
func (e *emitter) temp() asm.Vec {
	if e.temps > 31 {
		panic("gen: no temporary register")
	}
	e.temps++
	return e.temps - 1
}

// slot returns the memory of a row's part: 16 lanes of 32 bits or 8 of 64.
func slot(p ir.Place, part int) asm.Mem {
	if p.Kind == ir.Row64 {
		return asm.At(base64, int(p.Slot)*Stride64+part*64)
	}
	return asm.At(base32, int(p.Slot)*Stride32)
}

// save stores a value in its slot, unless it is there.
func (e *emitter) save(v *value) {
	if v.home {
		return
	}
	v.home = true
	if v.place.Kind == ir.Predicate {
		e.savePredicate(v)
		return
	}
	e.canonical(v)
	for i, r := range v.regs {
		mk := asm.Masking{}
		if e.masked {
			mk = asm.Under(halves[i])
		}
		o := asm.STORED
		if v.place.Kind == ir.Row64 {
			o = asm.STOREQ
		}
		e.Store(o, slot(v.place, i), r, mk)
	}
}

func predicateSlot(p ir.Place) asm.Mem {
	return asm.At(predicates, int(p.Slot)*PredicateStride)
}

func (e *emitter) savePredicate(v *value) {
	m := predicateSlot(v.place)
	if !e.masked {
		e.StoreMask(m, v.mask)
		return
	}
	e.LoadMask(brief, m)
	e.MaskOp(asm.KANDN, brief, lanes, brief)
	e.MaskOp(asm.KAND, v.mask, lanes, v.mask) // other lanes have no meaning
	e.MaskOp(asm.KOR, brief, brief, v.mask)
	e.StoreMask(m, brief)
}

// canonical gives the NaNs of a value their canonical bits.
func (e *emitter) canonical(v *value) {
	if !v.nan {
		return
	}
	v.nan = false
	e.Compare(asm.CMPPS, brief, v.regs[0], v.regs[0], asm.Masking{}, asm.FloatNaN)
	e.Op2(asm.MOVD, v.regs[0], nanReg, asm.Under(brief))
}

// set32 emits dst = a constant in all lanes of a mask.
func (e *emitter) set32(dst asm.Vec, v uint32, mk asm.Masking) {
	m := e.Word32(v)
	m.Broadcast = false
	e.Op2M(asm.BROADCASTD, dst, m, mk)
}

func (e *emitter) set64(dst asm.Vec, v uint64) {
	m := e.Word64(v)
	m.Broadcast = false
	e.Op2M(asm.BROADCASTQ, dst, m, asm.Masking{})
}

const canonicalNaN = 0x7fffffff

// operand is a register, or a single value in memory.
type operand struct {
	reg    asm.Vec
	mem    asm.Mem
	single bool
}

// row returns the value of a row, in registers.
func (e *emitter) row(p ir.Place) *value {
	v := e.values[e.space.number(p)]
	e.pin(v)
	if v.regs == nil {
		parts := 1
		if p.Kind == ir.Row64 {
			parts = 2
		}
		for i := range parts {
			r := e.reg()
			e.Op2M(asm.MOVD, r, slot(p, i), asm.Masking{})
			v.regs = append(v.regs, r)
		}
	}
	return v
}

// arg returns a part of an operand for an integer operation.
func (e *emitter) arg(p ir.Place, part int) operand {
	if p.Kind == ir.Single {
		return operand{mem: asm.At(singles, int(p.Slot)*8).All(), single: true}
	}
	v := e.row(p)
	e.canonical(v)
	return operand{reg: v.regs[part]}
}

// float is arg for operations that take any NaN.
func (e *emitter) float(p ir.Place) operand {
	if p.Kind == ir.Single {
		return e.arg(p, 0)
	}
	return operand{reg: e.row(p).regs[0]}
}

// vec returns an operand in a register.
func (e *emitter) vec(o operand, wide bool) asm.Vec {
	if !o.single {
		return o.reg
	}
	o.mem.Broadcast = false
	t := e.temp()
	if wide {
		e.Op2M(asm.BROADCASTQ, t, o.mem, asm.Masking{})
	} else {
		e.Op2M(asm.BROADCASTD, t, o.mem, asm.Masking{})
	}
	return t
}

// op3 emits dst = a op b.
func (e *emitter) op3(o asm.Op, dst, a asm.Vec, b operand) {
	if b.single {
		e.Op3M(o, dst, a, b.mem, asm.Masking{})
	} else {
		e.Op3(o, dst, a, b.reg, asm.Masking{})
	}
}

// compare emits k = a compared with b.
func (e *emitter) compare(o asm.Op, k asm.Mask, a asm.Vec, b operand, how byte) {
	if b.single {
		e.CompareM(o, k, a, b.mem, asm.Masking{}, how)
	} else {
		e.Compare(o, k, a, b.reg, asm.Masking{}, how)
	}
}

// result returns registers for the instruction's result. They are other ones than those of its operands.
func (e *emitter) result(p ir.Place) []asm.Vec {
	regs := []asm.Vec{e.reg()}
	if p.Kind == ir.Row64 {
		regs = append(regs, e.reg())
	}
	return regs
}

// define gives a row the value in registers, of which a NaN may have any bits.
func (e *emitter) define(p ir.Place, regs []asm.Vec, nan bool) {
	v := e.values[e.space.number(p)]
	e.release(v)
	v.regs, v.home, v.nan = regs, false, nan
	e.pin(v)
}

// predicate returns a mask register with a predicate.
func (e *emitter) predicate(p ir.Place) asm.Mask {
	v := e.values[e.space.number(p)]
	e.pin(v)
	if !v.held {
		v.mask, v.held = e.maskReg(), true
		e.LoadMask(v.mask, predicateSlot(p))
	}
	return v.mask
}

// definePredicate gives a predicate the value of a temporary mask.
func (e *emitter) definePredicate(p ir.Place, k asm.Mask) {
	v := e.values[e.space.number(p)]
	e.pin(v)
	if !v.held {
		v.mask, v.held = e.maskReg(), true
	}
	e.MoveMask(v.mask, k)
	v.home = false
}

// predicateInto emits k = a predicate, or its complement; of nowhere, all lanes.
func (e *emitter) predicateInto(k asm.Mask, p ir.Place, not bool) {
	if p.Kind != ir.Predicate {
		if not {
			e.MaskOp(asm.KXOR, k, k, k)
		} else {
			e.MaskOp(asm.KXNOR, k, k, k)
		}
		return
	}
	if from := e.predicate(p); not {
		e.NotMask(k, from)
	} else {
		e.MoveMask(k, from)
	}
}

var combinations = map[ir.BoolOp]asm.MaskOp{ir.BoolAnd: asm.KAND, ir.BoolOr: asm.KOR, ir.BoolXor: asm.KXOR}

// setPredicates combines the comparison in spare with the third operand, and defines the results.
func (e *emitter) setPredicates(in *ir.Instr) {
	o, combined := combinations[in.Combine]
	if combined {
		e.predicateInto(spare2, in.C, in.NotC)
	}
	q := in.Dst2.Kind == ir.Predicate
	if q {
		// Both results are computed before one is defined: the definition may overwrite an operand.
		e.pin(e.values[e.space.number(in.Dst2)])
	}
	if in.Dst.Kind == ir.Predicate {
		e.pin(e.values[e.space.number(in.Dst)])
		both := asm.Mask(0)
		if combined {
			both = spare2
		}
		e.finishPredicate(in.Dst, o, combined, both)
	}
	if q {
		e.NotMask(spare, spare)
		e.finishPredicate(in.Dst2, o, combined, spare2)
	}
}

// finishPredicate defines p = spare, combined with another mask.
func (e *emitter) finishPredicate(p ir.Place, o asm.MaskOp, combined bool, with asm.Mask) {
	if !combined {
		e.definePredicate(p, spare)
		return
	}
	v := e.values[e.space.number(p)]
	if !v.held {
		v.mask, v.held = e.maskReg(), true
	}
	e.MaskOp(o, v.mask, spare, with)
	v.home = false
}

// combinePredicates emits Dst = A combined with C.
func (e *emitter) combinePredicates(in *ir.Instr) {
	e.predicateInto(spare, in.A, in.NotA)
	if o, combined := combinations[in.Combine]; combined {
		e.predicateInto(spare2, in.C, in.NotC)
		e.MaskOp(o, spare, spare, spare2)
	}
	e.definePredicate(in.Dst, spare)
}

// choose emits Dst = C ? A : B.
func (e *emitter) choose(in *ir.Instr) {
	wide := in.Dst.Kind == ir.Row64
	e.predicateInto(spare, in.C, in.NotC)
	d := e.result(in.Dst)
	for i, r := range d {
		a, b := e.arg(in.A, i), e.vec(e.arg(in.B, i), wide)
		o := asm.PBLENDD
		if wide {
			o = asm.PBLENDQ
			if i == 1 {
				e.UpperMask(spare, spare)
			}
		}
		if a.single {
			e.Op3M(o, r, b, a.mem, asm.Under(spare))
		} else {
			e.Op3(o, r, b, a.reg, asm.Under(spare))
		}
	}
	e.define(in.Dst, d, false)
}

// begin emits the first address and the step of an access group in a unit, for a loop.
func (e *emitter) begin(n int) {
	at := e.locate(n, &pointers[0])
	e.Load(asm.RDX, at)
	e.StoreReg(pointerOf(n), pointers[0].first)
	e.StoreReg(stepOf(n), asm.RDX)
}

// pointer is two registers for an access group in a unit: the memory of the first lane, and where the Runs are.
type pointer struct{ first, runs asm.Reg }

var pointers = [2]pointer{{asm.RCX, asm.RAX}, {asm.RBX, asm.RSI}}

// locate emits the pointer of an access group, and returns the place of its step.
func (e *emitter) locate(n int, to *pointer) (step asm.Mem) {
	e.Load(to.runs, runsOf(n))
	at := asm.At(to.runs, 0)
	if !e.groups[n].OneRun {
		at.Index, at.Scale = unitOffset, 1
	}
	e.Load(to.first, at)
	e.RegMem(asm.ADD, to.first, baseOf(n))
	at.Disp += 8
	return at
}

// point returns a register with the memory of the unit's first lane, and the place of the step. It emits code for that
// unless the latest accesses were of the same groups.
func (e *emitter) point(n int) (first asm.Reg, step asm.Mem) {
	if e.loops {
		e.Load(asm.RCX, pointerOf(n))
		return asm.RCX, stepOf(n)
	}
	i := slices.Index(e.pointed[:], n+1)
	if i < 0 {
		i = e.older
		e.pointed[i] = n + 1
		step = e.locate(n, &pointers[i])
	} else {
		step = asm.At(pointers[i].runs, 8)
		if !e.groups[n].OneRun {
			step.Index, step.Scale = unitOffset, 1
		}
	}
	e.older = 1 - i
	return pointers[i].first, step
}

// again emits the pointer of a group in the register that it has been in.
func (e *emitter) again(n int, first asm.Reg) {
	for i := range pointers {
		if pointers[i].first == first {
			e.locate(n, &pointers[i])
		}
	}
}

func (e *emitter) groupOf(m *ir.Memory) int {
	return slices.IndexFunc(e.groups, func(g AccessGroup) bool { return g.holds(m, e.phase) })
}

// unitsAhead is the number of units between a load in a loop and its prefetch.
const unitsAhead = 4

// narrow are the loads of elements of less than 4 bytes.
var narrow = map[bool]map[int]asm.Op{false: {1: asm.MOVZXBD, 2: asm.MOVZXWD}, true: {1: asm.MOVSXBD, 2: asm.MOVSXWD}}

// load emits a load: of consecutive elements; or else, behind the run's code, of one element, of elements at constant
// distances, or of others.
func (e *emitter) load(in *ir.Instr) {
	m := &in.Mem
	n := e.groupOf(m)
	off := int(int64(m.Offset)) + m.Shift
	size := m.Type.Size()
	d := e.result(in.Dst)
	if e.same {
		if e.pointed[0] != n+1 {
			e.Load(asm.RCX, pointerOf(n))
			e.pointed[0] = n + 1
		}
		e.spread(d, asm.At(asm.RCX, off))
		e.define(in.Dst, d, false)
		return
	}
	first, step := e.point(n)
	at := asm.At(first, off)
	other, done := &asm.Label{}, &asm.Label{}
	if !e.groups[n].Contiguous {
		e.MemInt(asm.CMP, step, int32(size))
		e.JumpIf(asm.IfNotZero, other)
		e.late = append(e.late, func() { e.loadOther(m, n, off, d, first, step, other, done) })
	}
	if e.loops {
		// A unit executes all iterations before the next unit: the processor can't foresee the next unit's addresses.
		e.Prefetch(asm.At(first, off+unitsAhead*UnitLanes*size))
	}
	switch size {
	case 4:
		e.Op2M(asm.MOVD, d[0], at, asm.Masking{K: lanes, Zero: true})
	case 8:
		e.Op2M(asm.MOVQ, d[0], at, asm.Masking{K: lanes, Zero: true})
		e.Op2M(asm.MOVQ, d[1], asm.At(first, off+64), asm.Masking{K: upperLanes, Zero: true})
	default:
		e.Op2M(narrow[m.Type.Signed()][size], d[0], at, asm.Masking{K: lanes, Zero: true})
	}
	e.Bind(done)
	e.define(in.Dst, d, false)
}

// loadOther emits the loads of elements that aren't consecutive. first has the pointer.
func (e *emitter) loadOther(m *ir.Memory, n, off int, d []asm.Vec, first asm.Reg, step asm.Mem, other, done *asm.Label) {
	const t, t2 = firstTemp, firstTemp + 1
	strided, irregular := &asm.Label{}, &asm.Label{}
	wide := len(d) == 2
	at := asm.At(first, off)
	e.Bind(other)
	e.Load(asm.RDX, step)
	e.RegInt(asm.CMP, asm.RDX, 0)
	e.JumpIf(asm.IfNotZero, strided)
	e.spread(d, at)
	e.Jump(done)
	e.Bind(strided)
	if m.Address.Kind == ir.Single { // never reached: the step is 0
		e.Jump(done)
		return
	}
	e.Reg(asm.ADD, asm.RDX, asm.RDX)
	e.JumpIf(asm.IfZero, irregular)
	e.Load(asm.RDX, step)
	if !wide {
		e.BroadcastReg(t, asm.RDX, false)
		e.Op3M(asm.PMULLD, t, t, asm.AtLabel(e.Data(counting32)), asm.Masking{})
		e.gather(asm.GATHERDPS, d[0], asm.Lanes(first, t, off), lanes)
	} else {
		for i, r := range d {
			e.BroadcastReg(t, asm.RDX, true)
			e.Op3M(asm.PMULLQ, t, t, asm.AtLabel(e.Data(counting64[i])), asm.Masking{})
			e.gather(asm.GATHERQPD, r, asm.Lanes(first, t, off), halves[i])
		}
	}
	e.Jump(done)
	e.Bind(irregular)
	if Patterned(m) {
		none := &asm.Label{}
		e.Load(asm.RDX, patternOf(n))
		e.RegInt(asm.CMP, asm.RDX, 0)
		e.JumpIf(asm.IfZero, none)
		for i, r := range []asm.Vec{t, t2} {
			e.LoadMask(brief, asm.At(asm.RDX, patternLoaded+2*i))
			e.Op2M(asm.MOVD, r, asm.At(first, off+64*i), asm.Masking{K: brief, Zero: true})
		}
		e.Op2M(asm.MOVD, d[0], asm.At(asm.RDX, patternFrom), asm.Masking{})
		e.Op3(asm.PERMI2D, d[0], t, t2, asm.Masking{})
		e.Jump(done)
		e.Bind(none)
	}
	e.Load(asm.RDX, addressesOf(n))
	rows := asm.Mem{Base: asm.RDX, Index: unitOffset, Scale: 4}
	if m.Address.Kind == ir.Row64 {
		rows.Scale = 8
	}
	e.Address(asm.RDX, rows)
	e.Load(first, baseOf(n))
	for i := range 2 {
		e.addressVector(m, t, i)
		from, k := asm.Lanes(first, t, off), halves[i]
		if wide {
			e.gather(asm.GATHERQPD, d[i], from, k)
			continue
		}
		e.gather(asm.GATHERQPS, t2, from, k)
		if i == 0 {
			e.Op2(asm.MOVD, d[0], t2, asm.Masking{})
		} else {
			e.Op3(asm.INSERTHALF, d[0], d[0], t2, asm.Masking{}, 1)
		}
	}
	if !e.loops {
		e.again(n, first)
	}
	e.Jump(done)
}

// spread emits the load of one element for all lanes.
func (e *emitter) spread(d []asm.Vec, at asm.Mem) {
	o := asm.BROADCASTD
	if len(d) == 2 {
		o = asm.BROADCASTQ
	}
	for _, r := range d {
		e.Op2M(o, r, at, asm.Masking{})
	}
}

// Patterned reports whether irregular runs of an access may have a pattern.
func Patterned(m *ir.Memory) bool {
	return m.Address.Kind == ir.Row32 && m.Scale == 4 && m.Type.Size() == 4
}

// gather emits a gather of the lanes of a mask; others become 0.
func (e *emitter) gather(o asm.Op, dst asm.Vec, from asm.Mem, k asm.Mask) {
	e.Op3(asm.PXORD, dst, dst, dst, asm.Masking{})
	e.MoveMask(brief, k)
	e.Op2M(o, dst, from, asm.Under(brief))
}

// addressVector emits 8 addresses of 64 bits, from the row at RDX.
func (e *emitter) addressVector(m *ir.Memory, t asm.Vec, half int) {
	if m.Address.Kind == ir.Row64 {
		e.Op2M(asm.MOVQ, t, asm.At(asm.RDX, half*64), asm.Masking{})
		return
	}
	o := asm.MOVZXDQ
	if m.SignedIndex {
		o = asm.MOVSXDQ
	}
	e.Op2M(o, t, asm.At(asm.RDX, half*32), asm.Masking{})
	if m.Scale > 1 {
		e.Op3M(asm.PMULLQ, t, t, e.Word64(m.Scale), asm.Masking{})
	}
}

// store emits a store of consecutive elements, or of elements at constant distances.
func (e *emitter) store(in *ir.Instr) {
	m := &in.Mem
	n := e.groupOf(m)
	off := int(int64(m.Offset)) + m.Shift
	size := m.Type.Size()
	if size == 8 {
		first, _ := e.point(n)
		at := asm.At(first, off)
		e.Store(asm.STOREQ, at, e.arg(in.B, 0).reg, asm.Under(lanes))
		e.Store(asm.STOREQ, asm.At(first, off+64), e.arg(in.B, 1).reg, asm.Under(upperLanes))
		return
	}
	v := e.vec(e.arg(in.B, 0), false)
	first, step := e.point(n)
	at := asm.At(first, off)
	switch size {
	case 1:
		e.Store(asm.STOREB, at, v, asm.Under(lanes))
		return
	case 2:
		e.Store(asm.STOREW, at, v, asm.Under(lanes))
		return
	}
	other, done := &asm.Label{}, &asm.Label{}
	e.MemInt(asm.CMP, step, int32(size))
	e.JumpIf(asm.IfNotZero, other)
	e.Store(asm.STORED, at, v, asm.Under(lanes))
	e.Bind(done)
	e.late = append(e.late, func() {
		const t = firstTemp + 5
		e.Bind(other)
		e.Load(asm.RDX, step)
		if Patterned(m) {
			regular := &asm.Label{}
			e.Reg(asm.ADD, asm.RDX, asm.RDX)
			e.JumpIf(asm.IfNotZero, regular)
			e.Load(asm.RDX, patternOf(n))
			for i := range 2 {
				e.Op2M(asm.MOVD, t, asm.At(asm.RDX, patternTo+64*i), asm.Masking{})
				e.Op3(asm.PERMD, t, t, v, asm.Masking{})
				e.LoadMask(brief, asm.At(asm.RDX, patternStored+2*i))
				e.Store(asm.STORED, asm.At(first, off+64*i), t, asm.Under(brief))
			}
			e.Jump(done)
			e.Bind(regular)
			e.Load(asm.RDX, step)
		}
		e.BroadcastReg(t, asm.RDX, false)
		e.Op3M(asm.PMULLD, t, t, asm.AtLabel(e.Data(counting32)), asm.Masking{})
		e.MoveMask(brief, lanes)
		e.Store(asm.SCATTERDPS, asm.Lanes(first, t, off), v, asm.Under(brief))
		e.Jump(done)
	})
}

// addition is an addition to the memory of the block, with its operands in registers.
type addition struct {
	m            *ir.Memory
	index        asm.Vec
	single       ir.Place
	values       []asm.Vec // none if all lanes add the single value
	temp, active asm.Vec
	addend       asm.Mem // in the frame
}

// addTo emits additions to the memory of the block, lane by lane.
func (e *emitter) addTo(in *ir.Instr) {
	m := &in.Mem
	a := addition{m: m, index: e.arg(m.Address, 0).reg, single: in.B, addend: scratchOf(e.added)}
	e.added = (e.added + 1) % scratches
	if in.B.Kind != ir.Single {
		for i := range e.row(in.B).regs {
			a.values = append(a.values, e.arg(in.B, i).reg)
		}
	}
	a.temp, a.active = e.temp(), e.temp()
	e.pointed = [2]int{}
	if e.loops {
		e.Load(asm.RCX, pointerOf(e.groupOf(m)))
	} else {
		e.locate(e.groupOf(m), &pointers[0])
	}
	if e.masked {
		e.addLanes(&a, true)
		return
	}
	other, done := &asm.Label{}, &asm.Label{}
	e.TestMask(lanes, lanes)
	e.JumpIf(asm.IfNotBelow, other) // some lanes are no threads
	e.addLanes(&a, false)
	e.Bind(done)
	e.late = append(e.late, func() {
		e.Bind(other)
		e.addLanes(&a, true)
		e.Jump(done)
	})
}

// addLanes emits the additions of 16 lanes. If only some may be active, the others add 0 to the first element.
func (e *emitter) addLanes(a *addition, some bool) {
	size := a.m.Type.Size()
	index, values := a.index, a.values
	switch {
	case values != nil:
		for i, v := range values {
			e.scratch(a, v, i, size == 8, some)
		}
	case some:
		for i := range max(size/4, 1) {
			o := asm.BROADCASTD
			if size == 8 {
				o = asm.BROADCASTQ
			}
			e.Op2M(o, a.temp, asm.At(singles, int(a.single.Slot)*8), asm.Masking{K: halves[i], Zero: true})
			e.scratch(a, a.temp, i, false, false)
		}
	default:
		e.Load(asm.RDX, asm.At(singles, int(a.single.Slot)*8))
	}
	if some {
		e.Op2(asm.MOVD, a.active, index, asm.Masking{K: lanes, Zero: true})
		index = a.active
	}
	signed, lane := a.m.SignedIndex, 0
	add := func(r asm.Reg) {
		if values != nil || some {
			from := asm.At(a.addend.Base, int(a.addend.Disp)+size*lane)
			if size == 8 {
				e.Load(asm.RDX, from)
			} else {
				e.Load32(asm.RDX, from, false)
			}
		}
		lane++
		e.AddTo(asm.Mem{Base: asm.RCX, Index: r, Scale: uint8(a.m.Scale), Disp: int32(int64(a.m.Offset)) + int32(a.m.Shift)}, asm.RDX, size == 8)
	}
	for i := range 4 {
		from := index
		if i > 0 {
			e.Op2(asm.QUARTER, a.temp, index, asm.Masking{}, byte(i))
			from = a.temp
		}
		for half, r := range []asm.Reg{asm.RAX, asm.RBX} {
			e.Quad(r, from, half == 1)
		}
		for _, r := range []asm.Reg{asm.RAX, asm.RBX} {
			e.Copy32(asm.RSI, r, signed)
			add(asm.RSI)
			e.Upper32(r, signed)
			add(r)
		}
	}
}

// scratch emits a store of a part of a row into the frame; if only some lanes are active, the others become 0.
func (e *emitter) scratch(a *addition, from asm.Vec, part int, wide, some bool) {
	to := asm.At(a.addend.Base, int(a.addend.Disp)+part*64)
	if some {
		o := asm.MOVD
		if wide {
			o = asm.MOVQ
		}
		e.Op2(o, a.temp, from, asm.Masking{K: halves[part], Zero: true})
		from = a.temp
	}
	e.Store(asm.STORED, to, from, asm.Masking{})
}

// counting32 and counting64 are the numbers from 0 on, 64 bytes a vector.
var counting32, counting64 = func() (narrow []byte, wide [2][]byte) {
	for i := range 16 {
		narrow = append(narrow, byte(i), 0, 0, 0)
		wide[i/8] = append(wide[i/8], byte(i), 0, 0, 0, 0, 0, 0, 0)
	}
	return narrow, wide
}()
