package exec

import (
	"fmt"
	"io"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// MaxString bounds each string that a kernel prints, the format included.
const MaxString = 4 << 10

// readText reads a string that ends with a zero, or is cut.
func readText(g *group, view *ir.Memory, addr uint64, lane int) (s []byte, ok bool) {
	for len(s) < MaxString {
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
	op, w := in.Detail.(*ir.Print), g.w
	ap, as := g.row(in.A)
	bp, bs := g.row(in.B)
	d, _ := g.row(in.Dst)
	for l := g.act.lo; l < g.act.hi; l++ {
		if !g.act.m.has(l) {
			continue
		}
		if g.watch() {
			return
		}
		format, args := arith.Get64(ap, as, l), &arguments{g: g, op: op, lane: l, at: arith.Get64(bp, bs, l)}
		if format == 0 {
			arith.Put32(d, l, ^uint32(0))
			continue
		}
		f, ok := readText(g, op.Text, format, l)
		if !ok {
			return
		}
		out := args.print(f)
		if g.fault != nil {
			return
		}
		arith.Put32(d, l, uint32(args.count))
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
	g.fail(in.Line, g.act.lo, ptx.ErrAssert, 0, why)
}

// readAssertion returns the asserted expression of a thread, and its position: file:line: function.
func readAssertion(g *group, in *instr, lane int) (expression []byte, where string, ok bool) {
	op := in.Detail.(*ir.Assert)
	var said [3][]byte
	for i, p := range [...]ir.Place{in.A, in.B, op.Function} {
		row, step := g.row(p)
		if said[i], ok = readText(g, op.Text, arith.Get64(row, step, lane), lane); !ok {
			return nil, "", false
		}
	}
	return said[0], fmt.Sprintf("%s:%d: %s", said[1], g.scalar(in.C, lane), said[2]), true
}

// arguments reads the arguments that a thread has packed for vprintf: each at a multiple of its size.
type arguments struct {
	g     *group
	op    *ir.Print
	lane  int
	at    uint64
	count int
}

// next returns the next argument, of 4 or 8 bytes; 0 after a fault.
func (a *arguments) next(wide bool) uint64 {
	a.count++
	view, size := a.op.Word, uint64(4)
	if wide {
		view, size = a.op.Long, 8
	}
	a.at = (a.at + size - 1) &^ (size - 1)
	v, _ := a.g.peek(view, a.at, a.lane)
	a.at += size
	return v
}
