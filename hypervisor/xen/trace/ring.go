package trace

// Ring is a CPU's buffer: a word up to where its records were taken, one up to where there are
// some, and the records. Both words count to twice the size of what is behind them.
//
// It may have other readers. Whoever takes records moves the first word, and the hypervisor
// writes no further than that allows. So we keep a place of our own, leave the word to
// others who move it, and move it ourselves when they leave half of the buffer full.
type Ring struct {
	mem    []byte
	data   []byte
	next   uint32 // where we read on
	left   uint32 // where the first word was last
	ours   bool   // we move it
	shared bool   // somebody else than the company has moved it, ever
	moved  *move  // where one of the company did last
	full   bool   // so that there may have been no room for what came behind what was read last
	buf    []byte // what was read last
}

const (
	consumed   = 0 // where the words are
	produced   = 4
	ringHeader = 8
	// mostRecord is how far behind its word the hypervisor may be writing.
	mostRecord = 128
)

// NewRing is the ring in a mapped buffer: from its beginning if it is fresh, else from now on.
func NewRing(mem []byte, fresh bool) *Ring {
	r := &Ring{mem: mem, data: mem[ringHeader:], ours: fresh, moved: &move{}}
	if !fresh {
		r.next, r.left = word(mem, produced).Load(), word(mem, consumed).Load()
	}
	return r
}

// distance is how far it is from one place to another, if both are places and no more than the
// buffer lies between.
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

// Read returns the records since the last Read, which are valid until the next; lost says that
// there were some that it doesn't return.
func (r *Ring) Read() (records []byte, lost bool) {
	to := word(r.mem, produced).Load()
	n, ok := r.distance(r.next, to)
	if ok && n > 0 {
		r.copyOut(r.next, n)
		ok = r.ours && word(r.mem, consumed).Load() == r.left || r.intact()
	}
	held, fits := r.distance(word(r.mem, consumed).Load(), to)
	// Where another one of the company has given room since, nothing has been written into that yet.
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

// intact says that what was copied can't have been overwritten before, which it can where others
// give room.
func (r *Ring) intact() bool {
	n, ok := r.distance(r.next, word(r.mem, produced).Load())
	return ok && n+mostRecord <= uint32(len(r.data))
}

// take gives room for records up to a place, unless somebody else does.
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
		*r.moved = move{to, true, r.full}
		word(r.mem, consumed).Store(to)
		r.left = to
	}
}
