package compile

import (
	"reflect"

	"pegasus/accel/soft/lane/ir"
)

// maxStable bounds the shapes of addresses that are kept beyond a block.
const maxStable = 64

// stableKey is what the shape of a row of addresses depends on, beside the row and the threads.
type stableKey struct {
	place  ir.Place
	scale  uint64
	signed bool
}

// keepShapes numbers the shapes of the addresses that blocks do not compute themselves, and lists for each block the
// shapes of those that it writes.
func keepShapes(p *ir.Program) {
	numbers := map[stableKey]int32{}
	for i := range p.Blocks {
		b := &p.Blocks[i]
		var own map[ir.Place]bool
		for k := range b.Code {
			m := &b.Code[k].Mem
			if m.Address.Kind != ir.Row32 && m.Address.Kind != ir.Row64 || m.Spin {
				continue
			}
			if own == nil {
				own = writtenPlaces(b)
			}
			if own[m.Address] {
				continue
			}
			key := stableKey{m.Address, m.Scale, m.SignedIndex}
			n, ok := numbers[key]
			if !ok && len(numbers) < maxStable {
				n = int32(len(numbers) + 1)
				numbers[key] = n
			}
			m.Stable = n
		}
	}
	if p.Stables = len(numbers); p.Stables == 0 {
		return
	}
	for i := range p.Blocks {
		b := &p.Blocks[i]
		own := writtenPlaces(b)
		for key, n := range numbers {
			if own[key.place] {
				b.Renews = append(b.Renews, n)
			}
		}
	}
}

// writtenPlaces returns the rows that a block may write, and some that it only reads.
func writtenPlaces(b *ir.Block) map[ir.Place]bool {
	own := map[ir.Place]bool{}
	note := func(p ir.Place) {
		if p.Kind == ir.Row32 || p.Kind == ir.Row64 {
			own[p] = true
		}
	}
	for i := range b.Code {
		in := &b.Code[i]
		note(in.Dst)
		note(in.Dst2)
		if in.Detail != nil {
			ir.Places(reflect.ValueOf(in.Detail), note)
		}
	}
	if b.Barrier != nil {
		ir.Places(reflect.ValueOf(b.Barrier), note)
	}
	if b.Call != nil {
		ir.Places(reflect.ValueOf(b.Call), note)
	}
	return own
}
