package memory

import (
	"bytes"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"pegasus/test/seeds"
)

// space reserves addresses for a space of n slabs.
func space(t testing.TB, n uint64) *Space {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, int((n+1)*SlabSize), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	base := (uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) + SlabSize - 1) &^ (SlabSize - 1)
	s, err := New(base, n*SlabSize, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func seed(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(seeds.Fixed(t), 0))
}

// Random programs against a model: allocations never overlap, are aligned,
// zeroed, found at every address and at none beyond, and all room comes back.
func TestRandomPrograms(t *testing.T) {
	r := seed(t)
	s := space(t, 16)
	type allocation struct {
		addr, n uint64
		fill    byte
		visible bool
	}
	var live []allocation
	sizes := []uint64{1, 511, 512, 513, 4096, 100_000, 300_000, 5 << 20, 70 << 20}
	for step := range 3000 {
		if r.IntN(5) < 3 && len(live) < 300 {
			n := sizes[r.IntN(len(sizes))]
			if n > 1<<20 && r.IntN(8) != 0 {
				n >>= 10
			}
			a := allocation{n: n, fill: byte(step | 1), visible: r.IntN(8) != 0}
			var err error
			if a.addr, err = s.Alloc(n, a.visible); err != nil {
				continue
			}
			if a.addr%Granule != 0 {
				t.Fatalf("address %#x", a.addr)
			}
			for _, b := range live {
				if a.addr < b.addr+RoundUp(b.n) && b.addr < a.addr+RoundUp(n) {
					t.Fatalf("%#x+%d overlaps %#x+%d", a.addr, n, b.addr, b.n)
				}
			}
			mem := s.Raw(a.addr, RoundUp(n))
			edge := mem[:min(len(mem), 1<<20)]
			if i := firstNonZero(edge); i >= 0 {
				t.Fatalf("byte %d of a new allocation is %d", i, edge[i])
			}
			for i := range edge {
				edge[i] = a.fill
			}
			mem[len(mem)-1] = a.fill
			live = append(live, a)
		} else if len(live) > 0 {
			i := r.IntN(len(live))
			a := live[i]
			mem := s.Raw(a.addr, RoundUp(a.n))
			if mem[0] != a.fill || mem[len(mem)-1] != a.fill {
				t.Fatalf("%#x was overwritten", a.addr)
			}
			if sp, ok := s.Find(a.addr + r.Uint64N(a.n)); ok != a.visible || ok && sp != (Span{a.addr, a.addr + RoundUp(a.n)}) {
				t.Fatalf("Find in %#x+%d: %v %v", a.addr, a.n, sp, ok)
			}
			if s.Slice(a.addr, RoundUp(a.n)+1) != nil {
				t.Fatal("a slice past the end of an allocation")
			}
			if n, err := s.Free(a.addr); err != nil || n != RoundUp(a.n) {
				t.Fatal(n, err)
			}
			if _, err := s.Free(a.addr); err != ErrAddress {
				t.Fatalf("second free: %v", err)
			}
			if _, ok := s.Find(a.addr); ok {
				t.Fatal("freed memory is found")
			}
			live = append(live[:i], live[i+1:]...)
		}
	}
	for _, a := range live {
		s.Free(a.addr)
	}
	if a, err := s.Alloc(15*SlabSize, true); err != nil {
		t.Fatalf("room lost: %v", err)
	} else {
		s.Free(a)
	}
}

func firstNonZero(b []byte) int {
	return bytes.IndexFunc(b, func(r rune) bool { return r != 0 })
}

// The next owner of memory reads zeros, at every size and alignment of the edges.
func TestNextOwnerReadsNothing(t *testing.T) {
	s := space(t, 4)
	secret := bytes.Repeat([]byte{0xa5}, 3<<20)
	for _, n := range []uint64{512, 1536, 4096, 200 << 10, 256 << 10, 257 << 10, 1<<20 + 512, 3 << 20, 65 << 20} {
		guard, _ := s.Alloc(512, true) // shifts the next allocation off the page boundary
		a, err := s.Alloc(n, true)
		if err != nil {
			t.Fatal(err)
		}
		mem := s.Slice(a, n)
		for off := 0; off < len(mem); off += copy(mem[off:], secret) {
		}
		after, _ := s.Alloc(512, true)
		s.Raw(after, 512)[0], s.Raw(guard, 512)[511] = 7, 7
		if _, err := s.Free(a); err != nil {
			t.Fatal(err)
		}
		if s.Raw(after, 512)[0] != 7 || s.Raw(guard, 512)[511] != 7 {
			t.Fatalf("%d: a neighbour was cleared too", n)
		}
		for range 40 { // everything that can be had now
			if b, err := s.Alloc(max(n/3, 512), true); err == nil {
				if bytes.Contains(s.Slice(b, max(n/3, 512)), secret[:1]) {
					t.Fatalf("%d: old content at %#x", n, b)
				}
				defer s.Free(b)
			}
		}
	}
}

// Freed memory is returned to the host.
func TestMemoryIsGivenBack(t *testing.T) {
	s := space(t, 4)
	a, err := s.Alloc(40<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	l := s.at(a)
	clear(s.Slice(a, 40<<20))
	var st unix.Stat_t
	if unix.Fstat(l.fd, &st); st.Blocks*512 < 40<<20 {
		t.Fatalf("%d blocks in use", st.Blocks)
	}
	s.Free(a)
	if unix.Fstat(l.fd, &st); st.Blocks != 0 {
		t.Fatalf("%d blocks in use after the free", st.Blocks)
	}
	open := func() int { d, _ := os.ReadDir("/proc/self/fd"); return len(d) }
	before := open()
	for range 20 {
		a, _ := s.Alloc(100<<20, true)
		b, _ := s.Alloc(60<<20, true)
		s.Free(a)
		s.Free(b)
	}
	if n := open(); n > before+1 {
		t.Fatalf("%d descriptors, %d before", n, before)
	}
}

// Lookups proceed while other goroutines allocate and free.
func TestLookupWhileChanging(t *testing.T) {
	s := space(t, 2)
	fixed, _ := s.Alloc(1000, true)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if sp, ok := s.Find(fixed + 999); !ok || sp.Start != fixed {
				t.Error("a live allocation was not found")
				return
			}
			s.Find(fixed + 5000)
		}
	})
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for range 2000 {
				a, _ := s.Alloc(700, true)
				b, _ := s.Alloc(90_000, true)
				if s.Slice(a, 700) == nil || s.Slice(b, 90_000) == nil {
					t.Error("a new allocation was not found")
				}
				s.Free(a)
				s.Free(b)
			}
		})
	}
	busy.Wait()
	close(stop)
	wg.Wait()
}

func TestHostMemory(t *testing.T) {
	s := space(t, 1)
	mem := make([]byte, 8192)
	base := uint64(uintptr(unsafe.Pointer(&mem[0])))
	s.SetHost(base, mem)
	if got := s.Slice(base+100, 8092); len(got) != 8092 || &got[0] != &mem[100] {
		t.Fatal("host memory is not found")
	}
	if s.Slice(base+100, 8093) != nil || s.Slice(base-1, 1) != nil {
		t.Fatal("beyond host memory")
	}
	for _, a := range []uint64{0, 1, ^uint64(0), 1 << 63} {
		if _, ok := s.Find(a); ok {
			t.Fatalf("found %#x", a)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	s := space(b, 1)
	var addr uint64
	for range 1000 {
		addr, _ = s.Alloc(2000, true)
	}
	for b.Loop() {
		s.Find(addr + 100)
	}
}

func BenchmarkAllocFree(b *testing.B) {
	s := space(b, 1)
	for b.Loop() {
		a, _ := s.Alloc(4096, true)
		s.Free(a)
	}
}
