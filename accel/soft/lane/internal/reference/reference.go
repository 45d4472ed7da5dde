// Package reference is a second, simple interpreter of PTX, for tests: the engine must leave the same memory contents
// as the reference. It shares no code with the engine, nor with the parser that the engine uses; it is written to be
// obviously right, not fast: integers are big.Int, floats are big.Float, and each thread of a warp executes an
// instruction alone.
//
// It trusts its input: the text comes from a test.
package reference

import (
	"errors"
	"fmt"
)

// ErrUndefined is returned if PTX does not define the program's result, for example because it reads the register of a
// thread that does not take part.
var ErrUndefined = errors.New("the result of the program is undefined")

// ErrUnknown is returned if the interpreter does not implement an instruction, or has its result only roughly.
var ErrUnknown = errors.New("the reference does not know it")

// Launch is one execution of a kernel.
type Launch struct {
	Grid, Block [3]int
	Params      []byte
	Memory      map[uint64][]byte // global memory by address
}

// problem ends an execution; Run returns it as an error.
type problem struct{ err error }

func fail(format string, args ...any) { panic(problem{fmt.Errorf(format, args...)}) }

// undefined ends an execution with a result that PTX does not define.
func undefined(why string) { panic(problem{fmt.Errorf("%w: %s", ErrUndefined, why)}) }

func unknown(in *inst) { panic(problem{fmt.Errorf("%s: %w", in.text, ErrUnknown)}) }

func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case problem:
		*err = p.err
	default:
		panic(p)
	}
}

// Parse parses the only kernel of a module.
func Parse(src string) (k *Kernel, err error) {
	defer caught(&err)
	k = parse(src)
	k.joins = postDominators(k.code)
	return k, nil
}

// Run executes the kernel, block after block.
func (k *Kernel) Run(l *Launch) (err error) {
	defer caught(&err)
	for z := range l.Grid[2] {
		for y := range l.Grid[1] {
			for x := range l.Grid[0] {
				runBlock(k, l, [3]int{x, y, z})
			}
		}
	}
	return nil
}
