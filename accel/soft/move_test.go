package soft

import (
	"bytes"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// Every byte arrives, and none beside it is touched.
func TestMove(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const room = 3 << 20
	src, dst := make([]byte, room), make([]byte, room)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for _, n := range []int{0, 1, 31, 4095, 4096, 4097, 65536 + 63, 1 << 20, 2<<20 + 1} {
		for i := range 16 {
			from, to := rng.IntN(room-n), rng.IntN(room-n)
			if i%2 == 1 { // a little ahead within a page
				to = min(from%4096+rng.IntN(40), room-n)
			}
			clear(dst)
			move(dst[to:to+n], src[from:from+n])
			if !bytes.Equal(dst[to:to+n], src[from:from+n]) {
				t.Fatalf("%d bytes from %d to %d came out wrong", n, from, to)
			}
			if left := bytes.Count(dst[:to], []byte{0}) + bytes.Count(dst[to+n:], []byte{0}); left != room-n {
				t.Fatalf("%d bytes from %d to %d: %d beside them changed", n, from, to, room-n-left)
			}
		}
	}
}

// A fault during the copy is a panic that contains the address, as in Go's own copy.
func TestMoveFaults(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Mprotect(mem[512<<10:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	other := make([]byte, len(mem))
	for _, way := range []struct{ dst, src []byte }{{other, mem}, {mem, other}} {
		func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if _, ok := recover().(interface{ Addr() uintptr }); !ok {
					t.Error("no fault")
				}
			}()
			move(way.dst, way.src)
		}()
	}
}
