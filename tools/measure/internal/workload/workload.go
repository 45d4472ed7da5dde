// Package workload contains the kernels for measuring the software accelerator: their modules, inputs and
// launches, the same in every run.
//
// A workload runs in the engine itself, without a driver or a daemon, or in another process that maps its
// memory.
package workload

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane"
	"pegasus/guest/bench/kernels"
)

//go:embed opencl/*.cl
var sources embed.FS

// Workload is a kernel, or several in a row, with its arguments in an arena.
type Workload struct {
	Name     string
	Module   *ptx.Module
	OpenCL   string // source of the same kernels, with the same parameters
	Launches []Launch
	// Tolerance is the relative error that approximate functions may cause; 0: results agree to the bit.
	Tolerance float64

	arena  *Arena
	image  *lane.Image
	result Buffer
	clear  []Buffer // before each run
}

// Launch is one launch of a workload.
type Launch struct {
	Kernel      string
	Grid, Block [3]uint32
	Params      []byte
}

// Names lists the workloads.
var Names = []string{"BlackScholes", "tiled matmul", "fast Walsh transform", "reduction", "histogram", "n-body"}

var makers = map[string]func(*builder){
	"BlackScholes":         blackScholes,
	"tiled matmul":         matmul,
	"fast Walsh transform": walsh,
	"reduction":            reduction,
	"histogram":            histogram,
	"n-body":               nbody,
}

// New makes a workload of that name, with inputs.
func New(name string) (*Workload, error) {
	arena, err := NewArena(64 << 20)
	if err != nil {
		return nil, err
	}
	b := &builder{Workload: &Workload{Name: name, arena: arena}, random: rand.New(rand.NewPCG(1, 2))}
	makers[name](b)
	if b.err != nil {
		arena.Close()
		return nil, fmt.Errorf("%s: %w", name, b.err)
	}
	return b.Workload, nil
}

// Arena returns the workload's memory.
func (w *Workload) Arena() *Arena { return w.arena }

// Close frees the workload's memory.
func (w *Workload) Close() error { return w.arena.Close() }

// Clear erases the results of a run.
func (w *Workload) Clear() {
	for _, b := range w.clear {
		clear(b.Mem)
	}
}

// Run executes the launches in the engine, on so many cores.
func (w *Workload) Run(cores int) error {
	for _, l := range w.Launches {
		k, err := w.image.Kernel(l.Kernel)
		if err != nil {
			return err
		}
		if f := k.Run(&lane.Launch{Grid: l.Grid, Block: l.Block, Params: l.Params, Cores: cores, Memory: w.arena}); f != nil {
			return f
		}
	}
	return nil
}

// Result returns a copy of the last run's result.
func (w *Workload) Result() []float32 {
	words := make([]float32, len(w.result.Mem)/4)
	for i := range words {
		words[i] = math.Float32frombits(binary.LittleEndian.Uint32(w.result.Mem[4*i:]))
	}
	return words
}

// Compare returns an error if two results differ by more than the tolerance.
func (w *Workload) Compare(got, want []float32) error {
	if len(got) != len(want) {
		return errors.New("results of two lengths")
	}
	for i := range got {
		if math.Float32bits(got[i]) == math.Float32bits(want[i]) {
			continue
		}
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= w.Tolerance*(1+math.Abs(float64(want[i])))) || w.Tolerance == 0 {
			return fmt.Errorf("%s: element %d is %v, and %v by the other way", w.Name, i, got[i], want[i])
		}
	}
	return nil
}

// builder makes a workload. The first error stays.
type builder struct {
	*Workload
	random *rand.Rand
	err    error
}

// module loads the module of that name.
func (b *builder) module(name string) {
	text, err := sources.ReadFile("opencl/" + name + ".cl")
	if err != nil {
		panic(err) // the file is part of this binary
	}
	b.OpenCL = string(text)
	if b.Module, b.err = ptx.Parse(kernels.PTX(name)); b.err == nil {
		b.image, b.err = lane.Load(b.Module, b.arena.alloc)
	}
}

// buffer has room for n words of 32 bits.
func (b *builder) buffer(n int) Buffer {
	addr, mem, err := b.arena.alloc(uint64(4*n), 0)
	if err != nil && b.err == nil {
		b.err = err
	}
	return Buffer{addr, mem}
}

// floats is a buffer of random numbers.
func (b *builder) floats(n int, low, high float32) Buffer {
	buf := b.buffer(n)
	for i := range len(buf.Mem) / 4 {
		binary.LittleEndian.PutUint32(buf.Mem[4*i:], math.Float32bits(low+(high-low)*b.random.Float32()))
	}
	return buf
}

// launch adds a launch with arguments packed as the kernel's parameters are.
func (b *builder) launch(kernel string, grid, block [3]uint32, args ...any) {
	f := b.Module.Kernel(kernel)
	if f == nil || len(f.Params) != len(args) {
		b.err = fmt.Errorf("kernel %s has other parameters", kernel)
		return
	}
	var p []byte
	for i, a := range args {
		p = append(p, make([]byte, f.Params[i].Offset-len(p))...)
		if buf, ok := a.(Buffer); ok {
			a = buf.Address
		}
		if p, b.err = binary.Append(p, binary.LittleEndian, a); b.err != nil {
			return
		}
	}
	b.Launches = append(b.Launches, Launch{kernel, grid, block, p})
}

func x(n int) [3]uint32 { return [3]uint32{uint32(n), 1, 1} }
