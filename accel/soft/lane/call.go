package lane

import (
	"fmt"
	"io"

	"pegasus/accel/ptx"
)

// lowerCall lowers calls of functions that the engine provides. Operands are variables: results first, then arguments.
func lowerCall(l *lowerer, in *ptx.Inst) {
	c := &in.Args[0]
	returns, params := c.Elems[:c.Returns], c.Elems[c.Returns:]
	text := l.view(1)
	switch c.Func.Name {
	case "vprintf":
		d := l.temp(place{}, false)
		l.emit(irInstr{op: irPrint, d: d, a: l.passed(&params[0], ptx.U64), b: l.passed(&params[1], ptx.U64),
			detail: &printOp{text: text, word: l.view(4), long: l.view(8)}})
		l.giveBack(&returns[0], ptx.U32, d)
	case "__assertfail":
		l.emit(irInstr{op: irAssertFail, a: l.passed(&params[0], ptx.U64), b: l.passed(&params[1], ptx.U64),
			c: l.passed(&params[2], ptx.U32), detail: &assertOp{text: text, function: l.passed(&params[3], ptx.U64)}})
	case "malloc":
		d := l.temp(place{}, true)
		l.emit(irInstr{op: irMalloc, d: d, a: l.passed(&params[0], ptx.U64)})
		l.giveBack(&returns[0], ptx.U64, d)
	case "free":
		l.emit(irInstr{op: irFree, a: l.passed(&params[0], ptx.U64)})
	}
}

// passed returns a place with the value of a variable.
func (l *lowerer) passed(o *ptx.Operand, t ptx.Type) place {
	c, d := l.variable(o, t, false), l.temp(place{}, t.Size() == 8)
	c.op, c.d = irLoad, d
	l.emit(c)
	return d
}

// giveBack stores a value in a variable.
func (l *lowerer) giveBack(o *ptx.Operand, t ptx.Type, from place) {
	c := l.variable(o, t, true)
	c.op, c.b = irStore, from
	l.emit(c)
}

// variable returns an access to a variable.
func (l *lowerer) variable(o *ptx.Operand, t ptx.Type, write bool) irInstr {
	return l.access(&ptx.Inst{Type: t}, &ptx.Operand{Kind: ptx.Address, Reg: ptx.None, Var: o.Var, Imm: o.Imm}, write)
}

// view returns a way to read n bytes at a time of generic memory.
func (l *lowerer) view(n uint64) *memOperand {
	l.prog.caches++
	return &memOperand{space: ptx.Generic, size: n, align: n - 1, cache: int32(l.prog.caches - 1), line: l.line}
}

// maxString bounds each string that a kernel prints, the format included.
const maxString = 4 << 10

// readText reads a string that ends with a zero, or is cut.
func readText(g *group, view *memOperand, addr uint64, lane int) (s []byte, ok bool) {
	for len(s) < maxString {
		b, ok := g.peek(view, addr+uint64(len(s)), lane)
		if !ok {
			return nil, false
		}
		if b == 0 {
			break
		}
		s = append(s, byte(b))
	}
	return s, true
}

// runVprintf executes vprintf(format, arguments) for one thread after the
// other. It returns how many arguments were printed, or -1 without a format.
func runVprintf(g *group, in *instr) {
	op, w := in.detail.(*printOp), g.w
	ap, as := g.row(in.a)
	bp, bs := g.row(in.b)
	d, _ := g.row(in.d)
	for l := g.act.lo; l < g.act.hi; l++ {
		if !g.act.m.has(l) {
			continue
		}
		if g.watch() {
			return
		}
		format, args := get64(ap, as, l), &arguments{g: g, op: op, lane: l, at: get64(bp, bs, l)}
		if format == 0 {
			put32(d, l, ^uint32(0))
			continue
		}
		f, ok := readText(g, op.text, format, l)
		if !ok {
			return
		}
		out := args.print(f)
		if g.fault != nil {
			return
		}
		put32(d, l, uint32(args.count))
		w.run.print(w.run.launch.Stdout, out)
	}
}

// print writes text in one call at a time.
func (r *run) print(to io.Writer, text []byte) {
	if to == nil || len(text) == 0 {
		return
	}
	r.printing.Lock()
	defer r.printing.Unlock()
	to.Write(text)
}

// runAssertfail ends the launch with the arguments of __assertfail(message, file, line, function, size of a character)
// of the first thread, after each thread that has come with it has reported its own.
func runAssertfail(g *group, in *instr) {
	w, why := g.w, ""
	for l := g.act.lo; l < g.act.hi; l++ {
		if !g.act.m.has(l) {
			continue
		}
		expression, where, ok := readAssertion(g, in, l)
		if !ok {
			return
		}
		if why == "" {
			why = fmt.Sprintf("%s: assertion `%s' failed", where, expression)
		}
		w.run.print(w.run.launch.Stderr, fmt.Appendf(nil, "%s: block: [%d,%d,%d], thread: [%d,%d,%d] Assertion `%s` failed.\n",
			where, w.ctaid[0], w.ctaid[1], w.ctaid[2], g.tid[0][l], g.tid[1][l], g.tid[2][l], expression))
	}
	g.fail(in.line, g.act.lo, ptx.ErrAssert, 0, why)
}

// readAssertion returns the asserted expression of a thread, and its position: file:line: function.
func readAssertion(g *group, in *instr, lane int) (expression []byte, where string, ok bool) {
	op := in.detail.(*assertOp)
	var said [3][]byte
	for i, p := range [...]place{in.a, in.b, op.function} {
		row, step := g.row(p)
		if said[i], ok = readText(g, op.text, get64(row, step, lane), lane); !ok {
			return nil, "", false
		}
	}
	return said[0], fmt.Sprintf("%s:%d: %s", said[1], g.scalar(in.c, lane), said[2]), true
}

// arguments reads the arguments that a thread has packed for vprintf: each at a multiple of its size.
type arguments struct {
	g     *group
	op    *printOp
	lane  int
	at    uint64
	count int
}

// next returns the next argument, of 4 or 8 bytes; 0 after a fault.
func (a *arguments) next(wide bool) uint64 {
	a.count++
	view, size := a.op.word, uint64(4)
	if wide {
		view, size = a.op.long, 8
	}
	a.at = (a.at + size - 1) &^ (size - 1)
	v, _ := a.g.peek(view, a.at, a.lane)
	a.at += size
	return v
}
