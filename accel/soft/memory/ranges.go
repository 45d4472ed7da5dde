package memory

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// MapGranule is the unit of mappings. The kernel's pages would do; programs expect that of a GPU.
const MapGranule = 2 << 20

// ErrRange is returned for addresses that are not as they have to be: reserved and
// free, or whole mappings.
var ErrRange = errors.New("no such range of addresses, or not of whole mappings")

// Physical is memory without an address: a file, or a part of one.
type Physical struct {
	fd            int
	offset, bytes uint64
	users         int    // mappings, and who holds it
	gone          func() // nobody uses it any more
}

// view is a piece of a Physical at addresses of a range.
type view struct {
	at, bytes uint64
	of        *Physical
	prot      int
}

// ranged is what a slab has that is a range of reserved addresses. Neighbouring views that can
// be used are one span: so work can cross from one into the next.
type ranged struct {
	Span
	views []view // in order
}

// NewPhysical makes n bytes of zeroed memory without an address, multiple of MapGranule.
// gone is called when it was released and is mapped nowhere.
func (s *Space) NewPhysical(n uint64, gone func()) (*Physical, error) {
	fd, err := newFile("pegasus-device-memory", n)
	if err != nil {
		return nil, err
	}
	return s.keep(&Physical{fd: fd, bytes: n, users: 1, gone: gone}), nil
}

// Import makes a part of a file such memory. The file stays the caller's.
func (s *Space) Import(fd int, offset, n uint64, gone func()) (*Physical, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("import device memory: %w", err)
	}
	return s.keep(&Physical{fd: own, offset: offset, bytes: n, users: 1, gone: gone}), nil
}

func (s *Space) keep(p *Physical) *Physical {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.physicals == nil {
		s.physicals = map[*Physical]struct{}{}
	}
	s.physicals[p] = struct{}{}
	return p
}

// Release gives memory without an address up.
func (s *Space) Release(p *Physical) {
	s.mu.Lock()
	gone := s.let(p)
	s.mu.Unlock()
	gone()
}

// let has one user less, and returns what is to be called without the lock.
func (s *Space) let(p *Physical) func() {
	if p.users--; p.users > 0 {
		return func() {}
	}
	delete(s.physicals, p)
	unix.Close(p.fd)
	return p.gone
}

// Reserve keeps n addresses free, multiple of MapGranule, at wish if that can be had.
func (s *Space) Reserve(n, alignment, wish uint64) (uint64, error) {
	if n == 0 || n%MapGranule != 0 || n > s.size || alignment&(alignment-1) != 0 || alignment > s.size {
		return 0, ErrRange
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := (n + SlabSize - 1) &^ (SlabSize - 1)
	var run *extent
	if wish != 0 && wish%SlabSize == 0 && (alignment == 0 || wish%alignment == 0) {
		run = s.runs.allocAt(wish, whole)
	}
	if run == nil {
		if alignment > SlabSize { // runs are aligned to that
			whole += alignment
		}
		run = s.runs.alloc(whole)
	}
	if run == nil {
		return 0, unix.ENOMEM
	}
	start := run.start
	if alignment != 0 {
		start = (start + alignment - 1) &^ (alignment - 1)
	}
	l := &slab{run: run, fd: -1, mem: bytesAt(run.start, run.size), shared: true, count: 1, ranged: &ranged{Span: Span{start, start + n}}}
	l.chunks = make([]chunk, run.size/chunkSize)
	for a := run.start; a < run.start+run.size; a += SlabSize {
		s.slabs[(a-s.base)/SlabSize].Store(l)
	}
	return start, nil
}

// Unreserve ends what Reserve began.
func (s *Space) Unreserve(at uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.at(at)
	if l == nil || l.ranged == nil || l.ranged.Start != at || len(l.ranged.views) != 0 {
		return ErrRange
	}
	for a := l.run.start; a < l.run.start+l.run.size; a += SlabSize {
		s.slabs[(a-s.base)/SlabSize].Store(nil)
	}
	s.runs.release(l.run)
	return nil
}

// within is the range that [at, at+n) lies in.
func (s *Space) within(at, n uint64) *slab {
	l := s.at(at)
	if l == nil || l.ranged == nil || n == 0 || at%MapGranule != 0 || n%MapGranule != 0 {
		return nil
	}
	if r := l.ranged; at < r.Start || at >= r.End || n > r.End-at {
		return nil
	}
	return l
}

// place is where in the list a view at an address is, or would be.
func (r *ranged) place(at uint64) int {
	i, _ := slices.BinarySearchFunc(r.views, at, func(v view, at uint64) int {
		switch {
		case v.at < at:
			return -1
		case v.at > at:
			return 1
		}
		return 0
	})
	return i
}

// whole is which views [at, at+n) is made of, if it is.
func (r *ranged) whole(at, n uint64) (from, to int, ok bool) {
	from = r.place(at)
	for to = from; to < len(r.views) && r.views[to].at == at && r.views[to].bytes <= n; to++ {
		at += r.views[to].bytes
		n -= r.views[to].bytes
	}
	return from, to, n == 0
}

// Map puts n bytes of p from offset on at an address where nothing is. They can't be used yet.
func (s *Space) Map(at, n, offset uint64, p *Physical) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.within(at, n)
	if l == nil || offset%MapGranule != 0 || offset > p.bytes || n > p.bytes-offset {
		return ErrRange
	}
	r := l.ranged
	i := r.place(at)
	if i > 0 && r.views[i-1].at+r.views[i-1].bytes > at || i < len(r.views) && r.views[i].at < at+n {
		return ErrRange
	}
	if err := mapAt(at, n, unix.PROT_NONE, unix.MAP_SHARED|unix.MAP_NORESERVE|unix.MAP_FIXED, p.fd, p.offset+offset); err != nil {
		return fmt.Errorf("map device memory: %w", err)
	}
	r.views = slices.Insert(r.views, i, view{at: at, bytes: n, of: p})
	p.users++
	return nil
}

// Unmap ends the mappings that [at, at+n) is made of. Whoever uses them faults.
func (s *Space) Unmap(at, n uint64) error {
	s.mu.Lock()
	var gone []func()
	defer func() {
		s.mu.Unlock()
		for _, f := range gone {
			f()
		}
	}()
	l := s.within(at, n)
	if l == nil {
		return ErrRange
	}
	r := l.ranged
	from, to, ok := r.whole(at, n)
	if !ok {
		return ErrRange
	}
	for i := from; i < to; i++ {
		r.views[i].prot = unix.PROT_NONE
	}
	l.showViews(from, to)
	if err := reserve(at, n, true); err != nil {
		return fmt.Errorf("unmap device memory: %w", err)
	}
	for _, v := range r.views[from:to] {
		gone = append(gone, s.let(v.of))
	}
	r.views = slices.Delete(r.views, from, to)
	return nil
}

// Protect says what can be done with the mappings that [at, at+n) is made of.
func (s *Space) Protect(at, n uint64, read, write bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.within(at, n)
	if l == nil {
		return ErrRange
	}
	from, to, ok := l.ranged.whole(at, n)
	if !ok {
		return ErrRange
	}
	prot := unix.PROT_NONE
	if read {
		prot |= unix.PROT_READ
	}
	if write {
		prot |= unix.PROT_WRITE
	}
	if !read { // first from the table, then from the processor's
		l.setProt(from, to, prot)
	}
	if err := protect(at, n, prot); err != nil {
		return fmt.Errorf("protect device memory: %w", err)
	}
	if read {
		l.setProt(from, to, prot)
	}
	return nil
}

func (l *slab) setProt(from, to, prot int) {
	for i := from; i < to; i++ {
		l.ranged.views[i].prot = prot
	}
	l.showViews(from, to)
}

// showViews enters views that changed into the table, with those beside them.
func (l *slab) showViews(from, to int) {
	v := l.ranged.views
	joined := func(i int) bool { return i > 0 && i < len(v) && v[i-1].at+v[i-1].bytes == v[i].at }
	for joined(from) && v[from-1].prot != unix.PROT_NONE {
		from--
	}
	for joined(to) && v[to].prot != unix.PROT_NONE {
		to++
	}
	for i := from; i < to; {
		if v[i].prot == unix.PROT_NONE {
			l.hide(Span{v[i].at, v[i].at + v[i].bytes})
			i++
			continue
		}
		span := Span{v[i].at, v[i].at + v[i].bytes}
		for i++; i < to && joined(i) && v[i].prot != unix.PROT_NONE; i++ {
			span.End = v[i].at + v[i].bytes
		}
		l.show(span)
	}
}
