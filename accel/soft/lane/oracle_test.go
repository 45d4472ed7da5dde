package lane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel/ptx"
	"pegasus/accel/ptx/cases"
	"pegasus/accel/soft/lane/internal/programs"
	"pegasus/accel/soft/lane/internal/reference"
	"pegasus/test/seeds"
)

const (
	dataAddress = 0x7f00_0000_0000
	accAddress  = 0x7e00_0000_0000
)

// trial is a launch of a random or a recorded program.
type trial struct {
	seed            uint64 // of the values in memory
	threads, blocks int
}

// memory returns the initial memory of the kernel, and its arguments.
func (c trial) memory() (data, acc, params []byte) {
	r := rand.New(rand.NewPCG(c.seed, 1))
	data = programs.Values(r, programs.Stride*c.threads*c.blocks)
	args := programs.Values(r, 8*(programs.Args16+programs.Args32+programs.Args64))
	acc = append(programs.Values(r, programs.AccBytes), args...)
	params = binary.LittleEndian.AppendUint64(nil, dataAddress)
	params = binary.LittleEndian.AppendUint64(params, accAddress)
	at := 0
	for k, n := range []int{programs.Args16, programs.Args32, programs.Args64} {
		for range n {
			for len(params)%(2<<k) != 0 {
				params = append(params, 0)
			}
			params = append(params, args[at:at+2<<k]...)
			at += 8
		}
	}
	return data, acc, params
}

// expect returns the memory that the oracle leaves.
func (c trial) expect(src string) (data, acc []byte, err error) {
	k, err := reference.Parse(src)
	if err != nil {
		return nil, nil, err
	}
	data, acc, params := c.memory()
	err = k.Run(&reference.Launch{Grid: [3]int{c.blocks, 1, 1}, Block: [3]int{c.threads, 1, 1}, Params: params,
		Memory: map[uint64][]byte{dataAddress: data, accAddress: acc}})
	return data, acc, err
}

// differs runs a program on the engine, in blocks of a shape, and returns the offset at which the memory differs from
// the expected one.
func (c trial) differs(src string, shape [3]uint32, cores int, wantData, wantAcc []byte) (offset int, err error) {
	m, err := ptx.Parse([]byte(src))
	if err != nil {
		return 0, err
	}
	data, acc, params := c.memory()
	d := &device{bufs: []buffer{{dataAddress, aligned(data)}, {accAddress, aligned(acc)}}, next: 0x7d00_0000_0000}
	im, err := Load(m, d.alloc)
	if err != nil {
		return 0, err
	}
	k, err := im.Kernel(m.Kernels[0].Name)
	if err != nil {
		return 0, err
	}
	l := &Launch{Grid: x(c.blocks), Block: shape, Params: params, Cores: cores, Memory: d, Cancel: new(atomic.Bool)}
	stop := time.AfterFunc(time.Minute, func() { l.Cancel.Store(true) })
	defer stop.Stop()
	if f := k.Run(l); f != nil {
		return 0, f
	}
	for i, want := range [][]byte{wantData, wantAcc} {
		got := d.bufs[i].mem
		for at := 0; at < len(got); at += 8 {
			if !bytes.Equal(got[at:at+8], want[at:at+8]) {
				return at, fmt.Errorf("%s+%d has %x, want %x", []string{"data", "acc"}[i], at, binary.LittleEndian.Uint64(got[at:]), binary.LittleEndian.Uint64(want[at:]))
			}
		}
	}
	return 0, nil
}

// aligned is a copy that begins where a long may begin.
func aligned(mem []byte) []byte {
	d := device{}
	_, b, _ := d.alloc(uint64(len(mem)), 0)
	copy(b, mem)
	return b
}

// shapeOf splits a number of threads into three dimensions.
func shapeOf(r *rand.Rand, n int) [3]uint32 {
	s := [3]uint32{1, 1, 1}
	for f := 2; n > 1; f++ {
		for ; n%f == 0; n /= f {
			s[r.IntN(3)] *= uint32(f)
		}
	}
	return s
}

// tryProgram runs the random program of a seed, written down in each way. It
// reports whether the program is defined.
func tryProgram(t testing.TB, seed uint64) bool {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	p := programs.New(r)
	c := trial{seed, p.Threads, p.Blocks}
	data, acc, err := c.expect(p.Text(programs.Style{}))
	if errors.Is(err, reference.ErrUndefined) {
		return false
	}
	if err != nil {
		t.Fatalf("PEGASUS_TEST_SEED=%d: oracle: %v\n%s", seed, err, p.Text(programs.Style{}))
	}
	for way := range 4 {
		style := programs.Style{Loaded: way&1 != 0, Guards: way&2 != 0}
		shape, cores := shapeOf(r, p.Threads), 1+r.IntN(2)
		if _, err := c.differs(p.Text(style), shape, cores, data, acc); err == nil {
			continue
		}
		p = c.minimise(p, style, shape)
		src := p.Text(style)
		data, acc, _ := c.expect(src)
		at, err := c.differs(src, shape, 1, data, acc)
		t.Fatalf("PEGASUS_TEST_SEED=%d, blocks of %v: thread %d: %s: %v\n// threads %d blocks %d seed %d\n%s", seed, shape, at/programs.Stride, p.Where(at%programs.Stride), err, p.Threads, p.Blocks, seed, src)
	}
	return true
}

// minimise removes the parts of a program that the difference does not need.
func (c trial) minimise(p *programs.Program, style programs.Style, shape [3]uint32) *programs.Program {
	fails := func(p *programs.Program) bool {
		src := p.Text(style)
		data, acc, err := c.expect(src)
		if err != nil {
			return false
		}
		_, err = c.differs(src, shape, 1, data, acc)
		return err != nil
	}
	for size := p.Instructions() / 2; size > 0; size /= 2 {
		for first := 0; first < p.Instructions(); first += size {
			if q := p.Without(first, first+size); fails(q) {
				p = q
			}
		}
	}
	return p
}

// Random programs, in all spellings and shapes of launch, leave the same bits on the engine as an independent
// interpreter.
func TestOracle(t *testing.T) {
	eachEngine(t, testOracle)
}

func testOracle(t *testing.T) {
	n := 24
	if testing.Short() {
		n = 4
	}
	first := seeds.Fixed(t)
	defined := 0
	for i := range n {
		if tryProgram(t, first+uint64(i)) {
			defined++
		}
	}
	if defined < n*3/4 {
		t.Errorf("only %d of %d programs are defined", defined, n)
	}
}

func FuzzOracle(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { tryProgram(t, seed) })
}

// Programs that once showed a difference, reduced to the necessary parts.
func TestOracleCases(t *testing.T) {
	files, err := filepath.Glob("testdata/oracle/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var c trial
		if _, err := fmt.Sscanf(string(src), "// threads %d blocks %d seed %d", &c.threads, &c.blocks, &c.seed); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, acc, err := c.expect(string(src))
		if err != nil {
			t.Fatalf("%s: oracle: %v", name, err)
		}
		if _, err := c.differs(string(src), x(c.threads), 1, data, acc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The oracle returns the results worked out by hand for each form, too.
func TestOracleForms(t *testing.T) {
	forms := readForms(t)
	known := 0
	for i := range forms {
		f := &forms[i]
		got, err := oracleForm(f)
		switch {
		case errors.Is(err, reference.ErrUnknown):
		case err != nil || got != f.Want:
			t.Errorf("%s: got %x, %v", f.Name, got, err)
		default:
			known++
		}
	}
	if known < 450 {
		t.Errorf("the oracle knows only %d of the forms", known)
	}
}

// oracleForm lets the reference execute one instruction.
func oracleForm(f *cases.Form) (uint64, error) {
	d, selector, _ := strings.Cut(f.Destination, ".")
	if len(d) > 1 { // a register and a predicate
		return 0, reference.ErrUnknown
	}
	var b strings.Builder
	b.WriteString(".entry k(.param .u64 out) { .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %l<8>, %at; ld.param.u64 %at, [out];\n")
	args := []string{"%" + d + "7"}
	if selector != "" {
		args[0] += "." + selector
	}
	for i, s := range f.Sources {
		switch s.Kind {
		case '#':
			args = append(args, fmt.Sprintf("%s%#x", s.Sign, s.Bits))
			continue
		case 'p':
			fmt.Fprintf(&b, "mov.pred %%p%d, %d;\n", i, s.Bits)
		default:
			fmt.Fprintf(&b, "mov.%s %%%c%d, %#x;\n", registerTypes[s.Kind], s.Kind, i, s.Bits)
		}
		args = append(args, fmt.Sprintf("%s%%%c%d%s", s.Sign, s.Kind, i, s.Selector))
	}
	fmt.Fprintf(&b, "%s %s;\n", f.Instruction, strings.Join(args, ", "))
	switch d {
	case "p":
		b.WriteString("selp.b64 %l7, 1, 0, %p7;\n")
	case "h":
		b.WriteString("cvt.u64.u16 %l7, %h7;\n")
	case "r":
		b.WriteString("cvt.u64.u32 %l7, %r7;\n")
	}
	b.WriteString("st.global.b64 [%at], %l7; }\n")
	k, err := reference.Parse(b.String())
	if err != nil {
		return 0, err
	}
	out := make([]byte, 8)
	params := binary.LittleEndian.AppendUint64(nil, dataAddress)
	err = k.Run(&reference.Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: params, Memory: map[uint64][]byte{dataAddress: out}})
	return binary.LittleEndian.Uint64(out), err
}
