// Package ptxc translates PTX to C, so that the software accelerator can be compared with a compiler's code
// for the same kernels.
//
// The benchmarks call it with PTX of their own. It supports the instructions that those kernels have, and
// refuses others: one thread is straight C with gotos; a kernel with barriers runs thread by thread from one
// barrier to the next, and the live registers there are kept for each thread in a struct. Approximate
// functions are those of libm. Nothing is checked at run time.
package ptxc

import (
	_ "embed"
	"fmt"
	"strings"

	"pegasus/accel/ptx"
)

// prelude is the beginning of all translations.
//
//go:embed prelude.h
var prelude string

// Translate writes the kernels of a module as C that package peer compiles.
func Translate(m *ptx.Module) (string, error) {
	var c strings.Builder
	c.WriteString(prelude)
	for _, f := range m.Kernels {
		body, err := f.Body()
		if err != nil {
			return "", err
		}
		t := &translator{out: &c, body: body, blocks: body.Blocks()}
		if err := t.kernel(); err != nil {
			return "", fmt.Errorf("kernel %s: %w", f.Name, err)
		}
	}
	c.WriteString("\nvoid peer_launch(const struct launch *l)\n{\n\tswitch (l->kernel) {\n")
	for i, f := range m.Kernels {
		fmt.Fprintf(&c, "\tcase %d: launch_%s(l); break;\n", i, f.Name)
	}
	c.WriteString("\t}\n}\n")
	return c.String(), nil
}

// translator writes one kernel.
type translator struct {
	out    *strings.Builder
	body   *ptx.Body
	blocks []ptx.Block
	label  map[uint64]int // of the block that begins with an instruction
	waits  []wait
}

// wait is a barrier: the block that it ends, and the live registers after it.
type wait struct {
	block int
	alive []int32
}

func (t *translator) kernel() error {
	if len(t.body.Units) != 1 {
		return fmt.Errorf("calls can't be translated")
	}
	t.label = map[uint64]int{}
	for k, b := range t.blocks {
		t.label[uint64(b.First)] = k
	}
	t.findWaits()
	name := t.body.Func.Name
	if t.body.Shared > 0 {
		fmt.Fprintf(t.out, "\nstatic _Alignas(64) unsigned char shared_%s[%d];\n", name, t.body.Shared)
	}
	t.threadStruct()
	t.printf("\nstatic inline __attribute__((always_inline)) void step_%s(struct thread_%[1]s *t, const unsigned char *params, SPECIAL_REGISTERS)\n{\n", name)
	for r, typ := range t.body.Regs {
		if used := t.used(int32(r)); used {
			t.printf("\t%s r%d;\n", cType(typ), r)
		}
	}
	if len(t.waits) > 0 {
		t.resume()
	}
	for k := range t.blocks {
		t.printf("B%d:;\n", k)
		for i := t.blocks[k].First; i < t.blocks[k].End; i++ {
			if err := t.inst(k, &t.body.Insts[i]); err != nil {
				return fmt.Errorf("line %d: %w", t.body.Insts[i].Line, err)
			}
		}
	}
	t.printf("}\n\n%s(%s)\n", map[bool]string{false: "LAUNCH", true: "LAUNCH_IN_STEPS"}[len(t.waits) > 0], name)
	return nil
}

func (t *translator) printf(format string, args ...any) { fmt.Fprintf(t.out, format, args...) }

func (t *translator) used(r int32) (yes bool) {
	for i := range t.body.Insts {
		t.body.Insts[i].Visit(func(other int32, _ bool) { yes = yes || other == r })
	}
	return yes
}

// threadStruct declares the registers that a thread keeps while it waits.
func (t *translator) threadStruct() {
	t.printf("\nstruct thread_%s {\n\tint at;\n", t.body.Func.Name)
	kept := map[int32]bool{}
	for _, w := range t.waits {
		for _, r := range w.alive {
			if !kept[r] {
				kept[r] = true
				t.printf("\t%s r%d;\n", cType(t.body.Regs[r]), r)
			}
		}
	}
	t.printf("};\n")
}

// resume continues where the thread waited.
func (t *translator) resume() {
	t.printf("\tswitch (t->at) {\n")
	for i, w := range t.waits {
		t.printf("\tcase %d:\n", i+1)
		for _, r := range w.alive {
			t.printf("\t\tr%d = t->r%[1]d;\n", r)
		}
		t.printf("\t\tgoto B%d;\n", w.block+1)
	}
	t.printf("\t}\n")
}

// barrier leaves the thread to wait at the end of block k.
func (t *translator) barrier(k int) {
	for i, w := range t.waits {
		if w.block != k {
			continue
		}
		for _, r := range w.alive {
			t.printf("\tt->r%d = r%[1]d;\n", r)
		}
		t.printf("\tt->at = %d;\n\treturn;\n", i+1)
	}
}

// findWaits finds the barriers and the live registers at each, by iteration to a fixed point.
func (t *translator) findWaits() {
	in := make([]map[int32]bool, len(t.blocks))
	for k := range in {
		in[k] = map[int32]bool{}
	}
	for changed := true; changed; {
		changed = false
		for k := len(t.blocks) - 1; k >= 0; k-- {
			alive := t.aliveBefore(k, in)
			changed = changed || len(alive) != len(in[k])
			in[k] = alive
		}
	}
	for k, b := range t.blocks {
		if isBarrier(&t.body.Insts[b.End-1]) {
			w := wait{block: k}
			for r := range t.body.Regs {
				if in[k+1][int32(r)] {
					w.alive = append(w.alive, int32(r))
				}
			}
			t.waits = append(t.waits, w)
		}
	}
}

// aliveBefore returns the registers that block k, or its successors, read before writing.
func (t *translator) aliveBefore(k int, in []map[int32]bool) map[int32]bool {
	alive := map[int32]bool{}
	b := &t.blocks[k]
	for _, s := range b.Succs {
		for r := range in[s] {
			alive[r] = true
		}
	}
	for i := b.End - 1; i >= b.First; i-- {
		inst := &t.body.Insts[i]
		inst.Visit(func(r int32, written bool) {
			if written && inst.Guard == ptx.None {
				delete(alive, r)
			}
		})
		inst.Visit(func(r int32, written bool) {
			if !written {
				alive[r] = true
			}
		})
	}
	return alive
}

func isBarrier(in *ptx.Inst) bool { return in.Op == opBar && in.EndsBlock() }

var opBar = ptx.OpOf("bar")

// cType returns the type of the C variable for a register.
func cType(t ptx.Type) string {
	switch {
	case t == ptx.Pred:
		return "_Bool"
	case t == ptx.F32:
		return "float"
	case t == ptx.F64:
		return "double"
	case t.Signed():
		return fmt.Sprintf("int%d_t", 8*t.Size())
	}
	return fmt.Sprintf("uint%d_t", 8*t.Size())
}
