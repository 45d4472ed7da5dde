package trace

// Ring is a CPU's trace buffer: a consumer index, a producer index, and the records. Both indexes count to twice the
// size of the records' area.
//
// It may have other readers. Each reader that consumes records advances the consumer index, and the hypervisor writes
// no further than that allows. So Ring keeps a position of its own, leaves the index to other readers while they
// advance it, and advances it itself when they leave half of the buffer full.
type Ring struct {
	mem    []byte
	data   []byte
	next   uint32       // our position
	left   uint32       // the consumer index when last read
	ours   bool         // we advance the consumer index
	shared bool         // a reader outside the set has advanced it, ever
	moved  *indexChange // the set's last change of it
	full   bool         // records after those read last may have found no room
	buf    []byte       // a copy of the records read last
}

const (
	consumed   = 0 // offsets of the indexes
	produced   = 4
	ringHeader = 8
	// mostRecord is how far past its index the hypervisor may be writing.
	mostRecord = 128
)

// NewRing returns the Ring of a mapped buffer: from its beginning if it is fresh, else from now on.
func NewRing(mem []byte, fresh bool) *Ring {
	r := &Ring{mem: mem, data: mem[ringHeader:], ours: fresh, moved: &indexChange{}}
	if !fresh {
		r.next, r.left = word(mem, produced).Load(), word(mem, consumed).Load()
	}
	return r
}

// distance returns the number of bytes between two positions; ok is false unless both are valid and at most the
// buffer's size apart.
func (r *Ring) distance(from, to uint32) (n uint32, ok bool) {
	size := uint32(len(r.data))
	if from >= 2*size || to >= 2*size {
		return 0, false
	}
	if n = to - from; to < from {
		n += 2 * size
	}
	return n, n <= size
}

// Read returns the records since the last Read, which are valid until the next; lost reports that some are missing.
func (r *Ring) Read() (records []byte, lost bool) {
	to := word(r.mem, produced).Load()
	n, ok := r.distance(r.next, to)
	if ok && n > 0 {
		r.copyOut(r.next, n)
		ok = r.ours && word(r.mem, consumed).Load() == r.left || r.intact()
	}
	held, fits := r.distance(word(r.mem, consumed).Load(), to)
	// Room freed since by another reader of the set has not been written to yet.
	r.full = n > 0 && (fits && held+mostRecord > uint32(len(r.data)) || r.moved.full && r.moved.to == to)
	r.next = to
	r.take(to)
	if !ok {
		return nil, true
	}
	return r.buf[:n], false
}

func (r *Ring) copyOut(from, n uint32) {
	size := uint32(len(r.data))
	from %= size
	r.buf = append(r.buf[:0], r.data[from:min(from+n, size)]...)
	if from+n > size {
		r.buf = append(r.buf, r.data[:from+n-size]...)
	}
}

// intact reports that the copied records can't have been overwritten before the copy, which is possible where other
// readers free room.
func (r *Ring) intact() bool {
	n, ok := r.distance(r.next, word(r.mem, produced).Load())
	return ok && n+mostRecord <= uint32(len(r.data))
}

// take frees room up to a position, unless another reader does.
func (r *Ring) take(to uint32) {
	if now := word(r.mem, consumed).Load(); now != r.left {
		r.left, r.ours = now, false
		if !r.moved.made || r.moved.to != now {
			r.shared = true
		}
	}
	n, ok := r.distance(r.left, to)
	if !r.ours && ok && n <= uint32(len(r.data))/2 {
		return
	}
	if r.ours = to < 2*uint32(len(r.data)); r.ours {
		*r.moved = indexChange{to, true, r.full}
		word(r.mem, consumed).Store(to)
		r.left = to
	}
}
