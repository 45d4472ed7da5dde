package compile

import (
	"fmt"
	"slices"
	"sync/atomic"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// Addresses of functions: each image has a span of the window.
const (
	codeSpan  = 1 << 20
	maxImages = 1<<28 - 1
)

// Layout has the addresses of a module's variables and functions. It does not change after its creation.
type Layout struct {
	Module   *ptx.Module
	Address  map[*ptx.Var]uint64
	code     uint64                  // address of the first function
	samplers map[uint64]*ptx.Sampler // by address
	opaque   map[uint64]ptx.Opaque   // the kinds of variables of opaque types, by address
	consts   []span                  // where constants lie
}

// span is a range of addresses.
type span struct{ addr, size uint64 }

// Place places and initialises a module's variables in memory from alloc.
func Place(m *ptx.Module, alloc func(size, align uint64) (addr uint64, mem []byte, err error)) (*Layout, error) {
	l := &Layout{Module: m, Address: map[*ptx.Var]uint64{}, samplers: map[uint64]*ptx.Sampler{}, opaque: map[uint64]ptx.Opaque{},
		code: ir.CodeWindow + images.Add(1)%maxImages*codeSpan}
	mem := map[*ptx.Var][]byte{}
	for _, v := range m.Globals {
		addr, b, err := alloc(uint64(max(v.Size, 1)), uint64(max(v.Align, 16)))
		if err != nil {
			return nil, fmt.Errorf("place variable %s: %w", v.Name, err)
		}
		l.Address[v], mem[v] = addr, b
		if v.Opaque == ptx.SamplerRef {
			l.samplers[addr] = &v.Sampler
		}
		if v.Opaque != ptx.Plain {
			l.opaque[addr] = v.Opaque
		}
		if v.Space == ptx.Const {
			l.consts = append(l.consts, span{addr, uint64(v.Size)})
		}
		clear(b)
		copy(b, v.Init)
	}
	for _, v := range m.Globals {
		for _, r := range v.Refs {
			a := l.valueOf(&r)
			for i := range r.Size {
				mem[v][r.Offset+int64(i)] = byte(a >> (8*i + r.Shift))
			}
		}
	}
	return l, nil
}

var images atomic.Uint64 // that were loaded

// functionAddress returns the address of a function.
func (m *Layout) functionAddress(f *ptx.Func) uint64 {
	i, _ := slices.BinarySearchFunc(m.Module.Pointed, f.Name, func(g *ptx.Func, name string) int {
		switch {
		case g.Name < name:
			return -1
		case g.Name > name:
			return 1
		}
		return 0
	})
	return m.code + ir.CodeStep*uint64(i)
}

// valueOf returns the address that an initialiser refers to.
func (m *Layout) valueOf(r *ptx.Ref) uint64 {
	if r.Func != nil {
		return m.functionAddress(r.Func)
	}
	return m.Address[r.Var] + uint64(r.Add)
}
