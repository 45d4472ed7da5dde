package exec

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/code"
	"pegasus/accel/soft/lane/gen"
	"pegasus/accel/soft/lane/ir"
)

// Compiler makes Bind compile parts of kernels to machine code, where the processor and the system permit it. It is set
// before the first kernel is bound.
var Compiler atomic.Bool

// CanCompile returns an error if the processor is not one that the compiler has code for.
func CanCompile() error {
	if arith.VectorLevel < 2 {
		return errors.New("the processor has no AVX-512, or not all of its extensions since Ice Lake and Zen 4; kernels are interpreted")
	}
	return nil
}

// native is a run of instructions with machine code.
type native struct {
	span                *gen.Span
	whole, masked, loop code.Entry
	same                code.Entry // of a loop with loads of which all lanes have the same address, or 0
	part                *native    // its beginning, up to the first instruction that may let other threads continue
	number              int        // of the program's runs
}

// runner is the part of a group that executes runs of machine code.
type runner struct{ *group }

// compiled returns the blocks of a program, with their instructions in the compiler's order, and the runs that have
// machine code.
func compiled(p *ir.Program) ([]ir.Block, []native) {
	if !Compiler.Load() || arith.VectorLevel < 2 {
		return p.Blocks, nil
	}
	r := gen.Compile(p)
	if len(r.Spans) == 0 {
		return p.Blocks, nil
	}
	entry, err := code.Place(r.Code)
	if err != nil {
		slog.Debug("kernel is interpreted", "kernel", p.Func.Name, "err", err)
		return p.Blocks, nil
	}
	natives := make([]native, len(r.Spans))
	for i := range r.Spans {
		s := &r.Spans[i]
		natives[i] = native{span: s, number: i, whole: entry + code.Entry(s.Code), masked: entry + code.Entry(s.Masked)}
		if s.Loop != nil {
			natives[i].loop = entry + code.Entry(s.Loop.Code)
			if s.Loop.Same >= 0 {
				natives[i].same = entry + code.Entry(s.Loop.Same)
			}
		}
	}
	return r.Blocks, natives
}

// mixed executes the instructions of a block of which some are compiled, from number at on. It returns the number of the
// last one, if it failed.
func (g runner) mixed(b *block, at int) int {
	for i := at; i < len(b.code); i++ {
		in := &b.code[i]
		n := in.native
		if n != nil && n.span.Holds > 0 && g.holdsBack(n.span.Holds) {
			n = n.part
		}
		if n != nil && n.span.Affine != nil {
			if end := i + n.span.Count; !g.enterAffine(n) {
				g.execute(b.code[i:end])
				g.observeForms(n)
			}
			i += n.span.Count - 1
			continue
		}
		if n != nil {
			if n.span.Loop != nil && (n.span.Holds == 0 || !g.holdsBack(heldStores)) && g.enterLoop(b, n) {
				return len(b.code)
			}
			if a := g.attemptsOf(n); a.skipped > 0 {
				a.skipped--
			} else if a.count(g.enter(n)) {
				g.pass(n.span.Holds)
				i += n.span.Count - 1
				continue
			}
		}
		if in.exec(g.group, in); g.fault != nil {
			return i
		}
	}
	return len(b.code)
}

// attempts counts a group's attempts to execute the machine code of a run.
type attempts struct{ failed, skipped uint8 }

const (
	mostFailed  = 4 // failed attempts in a row, behind which some are skipped
	mostSkipped = 60
)

func (g runner) attemptsOf(n *native) *attempts {
	for n.number >= len(g.attempts) {
		g.attempts = append(g.attempts, attempts{})
	}
	return &g.attempts[n.number]
}

// count counts an attempt and returns whether it succeeded.
func (a *attempts) count(ok bool) bool {
	if ok {
		a.failed = 0
		return true
	}
	if a.failed++; a.failed == mostFailed {
		*a = attempts{skipped: mostSkipped}
	}
	return false
}

// rowsAgain is the number of executions of a run that computes affine registers as rows, after one in which they were.
const rowsAgain = 16

// enterAffine executes the machine code of a run that computes affine registers, if they were rows lately. It returns
// false, without effect, if the run is to be interpreted.
func (g runner) enterAffine(n *native) bool {
	a := n.span.Affine
	if a.Number >= len(g.asRows) {
		g.asRows = append(g.asRows, make([]uint8, a.Number+1-len(g.asRows))...)
	}
	if g.full && g.asRows[a.Number] == 0 {
		return false
	}
	for i, p := range a.Counters {
		c := &g.affine[p.Affine]
		if c.form == inRow {
			return false
		}
		g.w.frame.Counters[i] = gen.Counter{First: uint32(c.first + uint64(c.step*int64(g.act.from))), Step: uint32(c.step)}
	}
	for _, p := range a.Inputs {
		g.fill(p)
	}
	if !g.full {
		for _, p := range a.Results {
			g.fill(p)
		}
	} else {
		g.asRows[a.Number]--
	}
	g.enter(n)
	for _, p := range a.Results {
		g.affine[p.Affine].form = inRow
	}
	return true
}

// observeForms records whether a run has computed rows.
func (g runner) observeForms(n *native) {
	for _, p := range n.span.Affine.Results {
		if g.affine[p.Affine].form == inRow && g.full {
			g.asRows[n.span.Affine.Number] = rowsAgain
			return
		}
	}
}

// enter executes a run's machine code. It returns false, without effect, if the run has to be interpreted: an address
// needs a closer examination, or its lanes are apart.
func (g runner) enter(n *native) bool {
	a, f := &g.act, &g.w.frame
	if groups := n.span.Groups; len(groups) > 0 {
		if !a.dense || a.lo != a.from {
			return false
		}
		for i := range groups {
			if _, ok := g.prepare(&groups[i], &f.Accesses[i]); !ok {
				return false
			}
		}
	}
	entry := n.masked
	if a.whole {
		entry = n.whole
	}
	g.launch(entry)
	return true
}

// launch executes machine code for the active lanes.
func (g runner) launch(entry code.Entry) {
	a, f := &g.act, &g.w.frame
	lo := a.from
	f.Rows32, f.Rows64, f.Singles = unsafe.Add(g.files[ir.Row32].base, lo*4), unsafe.Add(g.files[ir.Row64].base, lo*8), g.files[ir.Single].base
	f.Predicates = unsafe.Add(unsafe.Pointer(unsafe.SliceData(g.preds)), lo/8)
	f.Active = unsafe.Add(unsafe.Pointer(&a.m), lo/8)
	f.Units = uint64(a.to-lo) / gen.UnitLanes
	entry.Call(unsafe.Pointer(f))
}

// maxReach bounds the distance between the addresses of an access group, so that machine code can compute it in 32 bits.
const maxReach = 1 << 30

// prepare checks all accesses of a group as reach does, and fills in the frame for them. It returns the part of its
// region that the group reaches, or false if any access needs the interpreter.
func (g runner) prepare(ag *gen.AccessGroup, to *gen.Access) (r extent, ok bool) {
	m := ag.First
	imm, scale := uint64(0), uint64(1)
	if m.Scale != 0 {
		imm, scale = g.uniform[m.Base.Slot], m.Scale
	}
	var low, high, bits uint64
	if ag.Bound >= 0 {
		high, bits = uint64(ag.Bound)*scale, scale
		to.Single = gen.Run{}
		to.Runs = unsafe.Pointer(&to.Single)
	} else if ag.Adds {
		if !g.act.whole {
			return r, false
		}
		g.fill(m.Address)
		addresses, step := g.row(m.Address)
		s, ok := g.shapeOf(m, addresses, step, scale)
		if !ok {
			return r, false
		}
		low, high, bits = s.low, s.high, s.bits
		to.Single = gen.Run{}
		to.Runs = unsafe.Pointer(&to.Single)
	} else if m.Address.Kind == ir.Single {
		first := g.oneAddress(m, scale)
		if ag.Contiguous || m.Write {
			return r, false
		}
		low, high, bits = first, first, first
		to.Single = gen.Run{First: first}
		to.Runs = unsafe.Pointer(&to.Single)
	} else {
		addresses, step := g.row(m.Address)
		s, ok := g.shapeOf(m, addresses, step, scale)
		if !ok || s.high-s.low > maxReach {
			return r, false
		}
		s.spell()
		n := g.act.hi - g.act.lo
		if to.Pattern = nil; s.runs[0].step == irregular {
			to.Pattern = g.suitsPattern(s, unsafe.Add(addresses, g.act.lo*step), n, ag)
		}
		if (ag.Contiguous || m.Write && to.Pattern == nil) && !s.suits(n, ag) {
			return r, false
		}
		low, high, bits = s.low, s.high, s.bits
		to.Runs = unsafe.Pointer(&s.runs[0])
		to.Addresses = unsafe.Add(addresses, g.act.lo*step)
	}
	c := &g.w.cache[m.Cache]
	off := imm - c.base
	low, high = low+off+uint64(ag.Low), high+off+uint64(ag.High)
	if high >= c.size || low > high || (bits|imm|ag.Offsets)&m.Align != 0 {
		return r, false
	}
	to.Base = uint64(uintptr(c.mem)) + off
	return extent{low, high}, true
}

// oneAddress returns the address of a single value, before the base and the offset are added.
func (g runner) oneAddress(m *ir.Memory, scale uint64) uint64 {
	address := g.uniform[m.Address.Slot]
	if m.Scale != 0 {
		if address = uint64(uint32(address)); m.SignedIndex {
			address = uint64(int64(int32(address)))
		}
	}
	return address * scale
}

// suits reports whether n addresses are those that machine code supports for an access group that has consecutive
// elements only, or that stores: there no two lanes store to one place.
func (s *shape) suits(n int, ag *gen.AccessGroup) bool {
	if !s.summed {
		s.sum(n)
	}
	if ag.Contiguous && s.common != int64(ag.Element) || !s.apart {
		return false
	}
	return !ag.First.StoresOnce() || !ag.First.Write || !s.mayRepeat(n)
}

// sum determines properties of all chunks of n addresses.
func (s *shape) sum(n int) {
	s.summed, s.common, s.apart = true, s.runs[0].step, true
	if s.line {
		s.apart = s.common != 0
		return
	}
	for i := range (n + chunk - 1) / chunk {
		step := s.runs[i].step
		if step == 0 || step == irregular {
			s.apart = false
		}
		if step != s.common {
			s.common = irregular
		}
	}
}
