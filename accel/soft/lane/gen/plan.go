// Package gen compiles parts of kernels to machine code for processors with AVX-512. A part is a run: instructions of one
// block, of which the lanes are independent of each other. A run's code keeps its values in vector registers, for 16
// lanes, a unit, at a time. It loads the rows that it needs, and stores those that are alive behind it. So compiled and
// interpreted instructions work on the same registers, and any instruction may be of either kind.
//
// The executor checks the addresses of all accesses of a run before it calls the code, by the same function as the
// interpreter's loads and stores; if that fails, it interprets the run. So generated code has no checks, and never faults.
//
// Callers: accel/soft/lane/exec.
//
// Trust boundary: kernels are hostile. The code accesses rows of slots that package compile has assigned, the lanes of
// checked addresses, and its frame. It has no loop but that over the units.
package gen

import (
	"slices"
	"strings"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// Bounds of the work for a program.
const (
	minAccesses = 3       // of a run that does not compute
	maxRun      = 1 << 8  // instructions of a run
	maxMoved    = 1 << 9  // instructions that a run is looked for in
	maxLive     = 1 << 20 // words of the sets of slots that are alive at the ends of blocks
	maxRounds   = 64      // passes over all blocks, to find these sets
	MaxCode     = 4 << 20 // bytes of code of a program
	maxOffset   = 1 << 20 // bytes from an address to an access
	maxPhases   = 8       // phases of a run, beside the first
)

// MinWork is the number of instructions of a run, beside loads, stores and moves, from which on a call pays off; in loops,
// one is enough. Tests set it to 1 before any kernel is compiled, to have more code.
var MinWork = 3

// Span is a run: Count instructions of a block from At on.
type Span struct {
	Block, At, Count int
	Code             int // offset in the code, for groups of which whole units are active
	Masked           int // offset of the code for other groups
	Groups           []AccessGroup
	Loop             *Loop   // if the block is a loop of which several iterations can be executed at once, or nil
	Holds            int     // its instructions that may let other threads continue before a store
	Part             bool    // it is a part of the run before it, between such instructions
	phases           []int   // numbers of the first instructions of the phases but the first
	Affine           *Affine // if it computes affine registers, for executions in which they are rows, or nil
}

// Affine is a run that computes affine registers as rows.
type Affine struct {
	Number          int        // among those of the program
	Counters        []ir.Place // the affine registers that it reads as numbers
	Inputs, Results []ir.Place // the affine registers that it reads before it writes them, and those that it writes
}

// AccessGroup is the accesses of one kind in a phase of a run whose addresses differ by constants. Its properties are
// those of the first one.
type AccessGroup struct {
	First      *ir.Memory
	Low, High  int64  // the least and the greatest offset
	Offsets    uint64 // all bits that are set in any of them
	Element    int    // bytes
	Contiguous bool   // the code only has accesses of consecutive elements
	Adds       bool   // they are atomic additions
	Bound      int64  // the greatest index, if the run computes it, or -1
	OneRun     bool   // one Run is for all units
	phase      int
}

// Result is a program with compiled runs.
type Result struct {
	Blocks []ir.Block // with their instructions in another order
	Spans  []Span     // in the order of blocks and instructions
	Code   []byte
}

// Compile compiles the runs of a program, or returns a result without any.
func Compile(p *ir.Program) *Result {
	s := space{p.Rows32, p.Rows64, p.Predicates}
	if s.words()*len(p.Blocks) > maxLive {
		return &Result{Blocks: p.Blocks}
	}
	r := &Result{Blocks: slices.Clone(p.Blocks)}
	known := constantsOf(p)
	for i := range r.Blocks {
		b := &r.Blocks[i]
		work := MinWork
		if repeats(p.Blocks, i) {
			work = 1
		}
		if b.Code = order(p.Blocks[i].Code, work, known, func(at int, c *collection) {
			r.Spans = append(r.Spans, Span{Block: i, At: at, Count: len(c.run), Groups: c.groups, Holds: c.holds, phases: c.phases})
		}); len(b.Code) != len(p.Blocks[i].Code) {
			panic("gen: an instruction was lost")
		}
	}
	alone := map[int]bool{} // blocks with one run
	for i := range r.Spans {
		_, more := alone[r.Spans[i].Block]
		alone[r.Spans[i].Block] = !more
	}
	alive, ok := s.alive(&ir.Program{Blocks: r.Blocks})
	if !ok {
		return &Result{Blocks: p.Blocks}
	}
	r.Spans = withAffine(withParts(r.Spans, r.Blocks, known), r.Blocks, s, alive)
	if len(r.Spans) == 0 {
		return r
	}
	e := &emitter{space: s, known: known}
	for i := range r.Spans {
		if len(e.Bytes) > MaxCode {
			r.Spans = r.Spans[:i]
			break
		}
		sp := &r.Spans[i]
		code := r.Blocks[sp.Block].Code
		live := slices.Clone(alive[sp.Block])
		for k := len(code) - 1; k >= sp.At+sp.Count; k-- {
			s.before(live, &code[k])
		}
		sp.Loop = loopOf(r.Blocks, sp, alone[sp.Block] && !sp.Part)
		e.span(sp, code[sp.At:sp.At+sp.Count], live)
	}
	r.Code = e.Finish()
	return r
}

// withParts adds to each run that contains instructions that may let other threads continue the runs between these.
func withParts(spans []Span, blocks []ir.Block, known constants) (all []Span) {
	for _, s := range spans {
		all = append(all, s)
		if s.Holds == 0 {
			continue
		}
		code := blocks[s.Block].Code[s.At:][:s.Count]
		for from := 0; from < len(code); {
			to := from
			for to < len(code) && code[to].Op != ir.OpHold {
				to++
			}
			part := Span{Block: s.Block, At: s.At + from, Count: to - from, Part: true}
			c := &collection{known: known}
			work := 0
			for i := range code[from:to] {
				in := &code[from+i]
				if !c.fits(in) { // as in the whole run
					panic("gen: a part of a run is none")
				}
				c.add(in)
				work += workOf(in)
			}
			part.Groups, part.phases = c.groups, c.phases
			if work > 0 || len(c.phases) > 0 {
				all = append(all, part)
			}
			from = to + 1
		}
	}
	return all
}

// order returns the instructions of a block in an order with long runs, and calls run for each with enough work. Instructions on numbers
// that stand between those of a run are moved before it or behind it, if none of the run uses their results or
// changes their operands.
func order(code []ir.Instr, work int, known constants, run func(at int, c *collection)) []ir.Instr {
	out := make([]ir.Instr, 0, len(code))
	for rest := code; len(rest) > 0; {
		if !supported(&rest[0]) {
			out = append(out, rest[0])
			rest = rest[1:]
			continue
		}
		c := collect(rest, known)
		out = append(out, c.ahead...)
		if c.work >= work || c.accesses >= minAccesses {
			run(len(out), c)
		}
		out = append(append(out, c.run...), c.behind...)
		rest = rest[c.taken:]
	}
	return out
}

// collection is a run and the instructions that were moved out of it.
type collection struct {
	known              constants
	ahead, run, behind []ir.Instr
	groups             []AccessGroup
	phases             []int       // numbers of the first instructions of the phases but the first
	phase              []*ir.Instr // accesses of the last phase
	holds              int
	accesses           int
	work, taken        int
}

// collect returns the run that begins with the first instruction.
func collect(code []ir.Instr, known constants) *collection {
	c := &collection{known: known}
	for i := range code[:min(len(code), maxMoved)] {
		in := &code[i]
		switch {
		case supported(in) && len(c.run) < maxRun && independent(in, c.behind) && c.fits(in):
			c.add(in)
			c.work += workOf(in)
		case in.Op == ir.OpHold && in.Guard < 0 && len(c.run) > 0 && len(c.run) < maxRun-1 && i+1 < len(code) && supported(&code[i+1]) && independent(&code[i+1], c.behind) && c.fits(&code[i+1]):
			c.run = append(c.run, *in)
			c.holds++
		case movable(in) && independent(in, c.run) && independent(in, c.behind):
			c.ahead = append(c.ahead, *in)
		case movable(in):
			c.behind = append(c.behind, *in)
		default:
			return c
		}
		c.taken++
	}
	return c
}

// isAccess reports whether an instruction accesses memory by addresses.
func isAccess(in *ir.Instr) bool {
	return in.Op == ir.OpLoad || in.Op == ir.OpStore || in.Op == ir.OpAdd
}

func workOf(in *ir.Instr) int {
	if in.Op == ir.OpLoad || in.Op == ir.OpStore || in.Row == "movU32" || in.Row == "movU64" {
		return 0
	}
	return 1
}

// movable reports whether an instruction computes single values or affine registers, and has no other effect.
func movable(in *ir.Instr) bool {
	switch in.Op {
	case ir.OpRow, ir.OpSpecial, ir.OpLoadParam:
		return in.Lane == nil && (in.Dst.Affine != 0 || in.Dst.Kind == ir.Single)
	case ir.OpCompareAffine, ir.OpFill:
		return true
	}
	return false
}

// independent reports whether an instruction may be exchanged with all of a list.
func independent(in *ir.Instr, list []ir.Instr) bool {
	for i := range list {
		if conflict(in, &list[i]) || conflict(&list[i], in) {
			return false
		}
	}
	return true
}

// conflict reports whether a writes what b reads or writes. An instruction that fills a row writes it.
func conflict(a, b *ir.Instr) (yes bool) {
	for _, d := range []ir.Place{a.Dst, a.Dst2} {
		if d.Kind == ir.Nowhere {
			continue
		}
		yes = yes || same(d, b.Dst) || same(d, b.Dst2)
		reads(b, func(p ir.Place) { yes = yes || same(d, p) })
	}
	return yes
}

func same(p, q ir.Place) bool { return p.Kind == q.Kind && p.Slot == q.Slot }

// fits reports whether a run may go on with an instruction: the addresses of accesses are computed before it begins, or
// are bounded.
func (c *collection) fits(in *ir.Instr) bool {
	if !isAccess(in) {
		return true
	}
	m := &in.Mem
	if len(c.groups) == MaxAccesses && (!c.continues(in) || !slices.ContainsFunc(c.groups, func(g AccessGroup) bool { return g.holds(m, len(c.phases)) })) {
		return false
	}
	if len(c.phases) == maxPhases && !c.continues(in) {
		return false
	}
	return !written(c.run, m.Address) || in.Op == ir.OpAdd && c.bound(len(c.run), m.Address) >= 0
}

// add appends an instruction that fits.
func (c *collection) add(in *ir.Instr) {
	if isAccess(in) {
		if !c.continues(in) {
			c.phases, c.phase = append(c.phases, len(c.run)), nil
		}
		c.phase = append(c.phase, in)
		bound := int64(-1)
		if in.Op == ir.OpAdd {
			bound = c.bound(len(c.run), in.Mem.Address)
		}
		c.groups = group(c.groups, in, len(c.phases), bound)
		c.accesses++
	}
	c.run = append(c.run, *in)
}

// continues reports whether an access may belong to the run's last phase. Units of 16 lanes execute a phase one after
// the other, and no lane may observe accesses of another in an order that the interpreter's is not. Additions can be
// exchanged with one another, but not those to parts of the same word.
func (c *collection) continues(in *ir.Instr) bool {
	for _, o := range c.phase {
		m, n := &o.Mem, &in.Mem
		switch {
		case apart(m.Space, n.Space):
		case o.Op != in.Op:
			return false
		case in.Op == ir.OpStore && !alike(m, n), in.Op == ir.OpAdd && m.Type.Size() != n.Type.Size():
			return false
		}
	}
	return true
}

// alike reports whether two accesses are to the same addresses, or to parts of the same vectors there.
func alike(a, b *ir.Memory) bool {
	return a.Shape == b.Shape && a.Address == b.Address && a.Base == b.Base && a.Scale == b.Scale && a.Offset == b.Offset && a.Size == b.Size && a.Space == b.Space
}

// apart reports whether two spaces have no memory in common.
func apart(a, b ptx.Space) bool { return a != b && a != ptx.Generic && b != ptx.Generic }

// holds reports whether an access of a phase belongs to the group.
func (g *AccessGroup) holds(m *ir.Memory, phase int) bool {
	f := g.First
	return g.phase == phase && f.Address == m.Address && f.Base == m.Base && f.Scale == m.Scale && f.SignedIndex == m.SignedIndex && f.Space == m.Space &&
		f.Size == m.Size && f.Write == m.Write && f.Atomic == m.Atomic && f.Shape == m.Shape && g.Element == m.Type.Size()
}

// group adds an access to the groups.
func group(groups []AccessGroup, in *ir.Instr, phase int, bound int64) []AccessGroup {
	m := &in.Mem
	off := int64(m.Offset)
	for i := range groups {
		if g := &groups[i]; g.holds(m, phase) {
			g.Low, g.High, g.Offsets, g.Bound = min(g.Low, off), max(g.High, off), g.Offsets|m.Offset, max(g.Bound, bound)
			return groups
		}
	}
	size := m.Type.Size()
	adds := in.Op == ir.OpAdd
	return append(groups, AccessGroup{First: m, Low: off, High: off, Offsets: m.Offset, Element: size,
		Contiguous: !adds && (size < 4 || m.Write && size == 8), Adds: adds, Bound: bound, OneRun: adds || m.Address.Kind == ir.Single, phase: phase})
}

// supported reports whether an instruction can be part of a run.
func supported(in *ir.Instr) bool {
	if in.Guard >= 0 || in.Lane != nil || in.Dst.Affine != 0 || in.Dst.Kind == ir.Single {
		return false
	}
	switch in.Op {
	case ir.OpRow, ir.OpCompare:
		return rows[in.Row] != nil && typed(in, widthsOf(in.Row)) && (in.Op == ir.OpCompare || in.Dst.Kind != ir.Predicate)
	case ir.OpSelect:
		wide := in.Dst.Kind == ir.Row64
		return typed(in, [4]bool{wide, wide, wide}) && in.Dst2.Kind == ir.Nowhere
	case ir.OpPredicates:
		return true
	case ir.OpLoad:
		t := in.Mem.Type
		return reachable(&in.Mem) && (t.Size() == 8) == (in.Dst.Kind == ir.Row64)
	case ir.OpAdd:
		m, size := &in.Mem, in.Mem.Type.Size()
		return reachable(m) && m.Space == ptx.Shared && in.Dst.Kind == ir.Nowhere && in.Dst2.Kind == ir.Nowhere && m.Address.Kind == ir.Row32 &&
			(m.Scale == 1 || m.Scale == 2 || m.Scale == 4 || m.Scale == 8) && (in.B.Kind == ir.Single || (size == 8) == (in.B.Kind == ir.Row64))
	case ir.OpStore:
		return reachable(&in.Mem) && in.Mem.Address.Kind != ir.Single && (in.Mem.Type.Size() == 8) == (in.B.Kind == ir.Row64) && in.B.Kind != ir.Single
	}
	return false
}

// reachable reports whether the executor can check an access before the run.
func reachable(m *ir.Memory) bool {
	off := int64(m.Offset)
	return !m.Spin && off > -maxOffset && off < maxOffset &&
		(m.Space == ptx.Global || m.Space == ptx.Shared || m.Space == ptx.Generic)
}

// widthsOf reports which of the result and the operands of a row operation have 64 bits a lane.
func widthsOf(row string) [4]bool {
	switch {
	case strings.HasPrefix(row, "cmp"):
		wide := strings.HasSuffix(row, "64")
		return [4]bool{false, wide, wide}
	case row == "wideU" || row == "wideS" || row == "madWideU" || row == "madWideS":
		return [4]bool{true, false, false, true}
	case row == "cvtU64U32" || row == "cvtS64S32":
		return [4]bool{true}
	case row == "cvtU32U64":
		return [4]bool{false, true}
	case strings.HasPrefix(row, "sh") && strings.HasSuffix(row, "64"):
		return [4]bool{true, true}
	}
	wide := strings.HasSuffix(row, "64")
	return [4]bool{wide, wide, wide, wide}
}

// typed reports whether the result and the operands have these widths, where they are rows. The emitter relies on that.
func typed(in *ir.Instr, wide [4]bool) bool {
	for i, p := range [4]ir.Place{in.Dst, in.A, in.B, in.C} {
		if p.Kind == ir.Row32 && wide[i] || p.Kind == ir.Row64 && !wide[i] {
			return false
		}
	}
	return true
}
