// Package overwrite writes over shared pages as a worker would that hostile code has taken over.
package overwrite

import (
	"encoding/binary"
	"math/rand/v2"
)

// Words writes n words into a page: random ones, extreme ones, those of another place of the page, and
// values near the one that is there. Old, if not nil, is an earlier copy of the page that some words are taken from.
func Words(page []byte, old []byte, r *rand.Rand, n int) {
	for range n {
		at := r.IntN(len(page)/8) * 8
		v := binary.LittleEndian.Uint64(page[at:])
		switch r.IntN(6) {
		case 0:
			v = r.Uint64()
		case 1:
			v = extreme[r.IntN(len(extreme))]
		case 2:
			v = binary.LittleEndian.Uint64(page[r.IntN(len(page)/8)*8:])
		case 3:
			v += r.Uint64N(64) - 32
		case 4:
			v = r.Uint64N(2 << r.IntN(63))
		case 5:
			if old != nil {
				v = binary.LittleEndian.Uint64(old[at:])
			}
		}
		if r.IntN(2) == 0 {
			binary.LittleEndian.PutUint64(page[at:], v)
		} else {
			binary.LittleEndian.PutUint32(page[at+4*r.IntN(2):], uint32(v))
		}
	}
}

var extreme = []uint64{0, 1, 2, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1}

// Word writes one word.
func Word(page []byte, at int, v uint32) { binary.LittleEndian.PutUint32(page[at:], v) }

// At reads one word.
func At(page []byte, at int) uint32 { return binary.LittleEndian.Uint32(page[at:]) }
