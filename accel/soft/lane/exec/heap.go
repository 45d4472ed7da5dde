package exec

import (
	"math/bits"
	"sync"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
)

// Heap is the memory that kernels allocate from. Its bookkeeping lies outside that memory, where kernels may write
// anything. A page holds objects of one size, or is a part of a larger object.
type Heap struct {
	base uint64
	size uint64

	mu      sync.Mutex
	pages   []page         // by number
	free    []uint64       // pages that are free, a bit for each
	lowest  int            // no word of free before has a bit
	partial [numSizes]list // pages of each size that have room
}

// page is the state of a page, or of the large object that begins with it.
type page struct {
	kind       uint8 // size of its objects, or one of those below
	used       uint16
	taken      [heapPage / heapUnit / 64]uint64
	count      int32 // pages of a large object
	next, prev int32 // in the list of its size, 1 more than their numbers
}

// list begins with a page's number and 1; 0 is none.
type list int32

const (
	heapUnit = 16
	heapPage = 4096
)

// objectSizes are those of small objects, chosen to waste little of a page.
var objectSizes = [...]uint64{16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 400, 512, 672, 816, 1024, 1360, 2048}

const numSizes = 18

// Kinds of pages besides those of small objects.
const (
	freePage uint8 = numSizes + iota
	largePage
)

// NewHeap returns a heap of the size bytes at base, which is a multiple of 16.
func NewHeap(base, size uint64) *Heap {
	n := int(size / heapPage)
	h := &Heap{base: base, size: uint64(n) * heapPage, pages: make([]page, n), free: make([]uint64, (n+63)/64)}
	for i := range h.pages {
		h.pages[i].kind = freePage
	}
	h.release(0, n)
	return h
}

// Alloc returns the address of size bytes, or 0 if there is no room, or size is 0.
func (h *Heap) Alloc(size uint64) uint64 {
	if h == nil || size == 0 || size > h.size {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for kind, n := range objectSizes {
		if size <= n {
			return h.small(uint8(kind))
		}
	}
	n := int((size + heapPage - 1) / heapPage)
	first := h.find(n)
	if first < 0 {
		return 0
	}
	h.take(first, n)
	h.pages[first] = page{kind: largePage, count: int32(n)} // the others stay as free pages are
	return h.base + uint64(first)*heapPage
}

// Free frees an allocation of Alloc. It returns false for any other address.
func (h *Heap) Free(addr uint64) bool {
	if h == nil || addr < h.base || addr-h.base >= h.size {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i, off := int((addr-h.base)/heapPage), (addr-h.base)%heapPage
	p := &h.pages[i]
	switch {
	case p.kind == largePage && off == 0:
		h.release(i, int(p.count))
		return true
	case p.kind >= numSizes:
		return false
	}
	n := objectSizes[p.kind]
	k := off / n
	if off%n != 0 || p.taken[k/64]>>(k%64)&1 == 0 {
		return false
	}
	p.taken[k/64] &^= 1 << (k % 64)
	full := uint64(p.used) == heapPage/n
	p.used--
	switch {
	case p.used == 0:
		if !full {
			h.unlink(i)
		}
		h.release(i, 1)
	case full:
		h.link(i)
	}
	return true
}

// small allocates an object of one of the sizes.
func (h *Heap) small(kind uint8) uint64 {
	n := objectSizes[kind]
	i := int(h.partial[kind]) - 1
	if i < 0 {
		if i = h.find(1); i < 0 {
			return 0
		}
		h.take(i, 1)
		h.pages[i] = page{kind: kind}
		h.link(i)
	}
	p := &h.pages[i]
	k := 0
	for w, t := range p.taken {
		if t != ^uint64(0) {
			k = w*64 + bits.TrailingZeros64(^t)
			break
		}
	}
	p.taken[k/64] |= 1 << (k % 64)
	if p.used++; uint64(p.used) == heapPage/n {
		h.unlink(i)
	}
	return h.base + uint64(i)*heapPage + uint64(k)*n
}

// link puts a page that has room into the list of its size.
func (h *Heap) link(i int) {
	head := &h.partial[h.pages[i].kind]
	h.pages[i].prev, h.pages[i].next = 0, int32(*head)
	if *head != 0 {
		h.pages[*head-1].prev = int32(i + 1)
	}
	*head = list(i + 1)
}

func (h *Heap) unlink(i int) {
	p := &h.pages[i]
	if p.prev != 0 {
		h.pages[p.prev-1].next = p.next
	} else {
		h.partial[p.kind] = list(p.next)
	}
	if p.next != 0 {
		h.pages[p.next-1].prev = p.prev
	}
}

// find returns the first of n free pages, or -1.
func (h *Heap) find(n int) int {
	for h.lowest < len(h.free) && h.free[h.lowest] == 0 {
		h.lowest++
	}
	run := 0
	for i := h.lowest * 64; i < len(h.pages); i++ {
		if w := h.free[i/64]; w == 0 {
			run, i = 0, i|63
			continue
		} else if w>>(i%64)&1 == 0 {
			run = 0
			continue
		}
		if run++; run == n {
			return i - n + 1
		}
	}
	return -1
}

func (h *Heap) take(first, n int) {
	eachWord(first, n, func(i int, bits uint64) { h.free[i] &^= bits })
}

// release frees pages that were taken together.
func (h *Heap) release(first, n int) {
	h.pages[first] = page{kind: freePage}
	eachWord(first, n, func(i int, bits uint64) { h.free[i] |= bits })
	h.lowest = min(h.lowest, first/64)
}

// eachWord calls f for each word of a bitmap that n bits from first on lie in, with these bits.
func eachWord(first, n int, f func(i int, bits uint64)) {
	for end := first + n; first < end; {
		next := min(first|63+1, end)
		f(first/64, ^uint64(0)>>(64-(next-first))<<(first%64))
		first = next
	}
}

// dearHeap is the cost of an allocation, in common instructions: it may search the heap's pages.
const dearHeap = 64

// runMalloc executes malloc for one thread after the other.
func runMalloc(g *group, in *instr) {
	row, step := g.row(in.A)
	d, _ := g.row(in.Dst)
	for _, l := range g.act.lanes() {
		arith.Put64(d, int(l), g.w.run.launch.Heap.Alloc(arith.Get64(row, step, int(l))))
		if g.worked(dearHeap) {
			return
		}
	}
}

// runFree executes free. Freeing a null pointer is no error.
func runFree(g *group, in *instr) {
	row, step := g.row(in.A)
	for _, l := range g.act.lanes() {
		addr := arith.Get64(row, step, int(l))
		if addr != 0 && !g.w.run.launch.Heap.Free(addr) {
			g.fail(in.Line, int(l), ptx.ErrLaunchFailed, addr, "free of an address that malloc did not return, or that is free")
			return
		}
		if g.worked(dearHeap) {
			return
		}
	}
}
