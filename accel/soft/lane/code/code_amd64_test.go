package code

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"testing"
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/asm"
)

func place(t *testing.T, build func(c *asm.Code)) Entry {
	t.Helper()
	var c asm.Code
	build(&c)
	e, err := Place(c.Finish())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// needVectors skips a test of code with vectors on a processor that can't execute it.
func needVectors(t *testing.T) {
	t.Helper()
	if arith.VectorLevel < 2 {
		t.Skip("THE COMPILER IS NOT TESTED: the processor lacks AVX-512")
	}
}

// Code reads and writes its frame, and its constants.
func TestCall(t *testing.T) {
	e := place(t, func(c *asm.Code) {
		small := &asm.Label{}
		c.Load(asm.RAX, asm.At(asm.RDI, 0))
		c.RegMem(asm.ADD, asm.RAX, c.Word64(5))
		c.RegInt(asm.CMP, asm.RAX, 10)
		c.JumpIf(asm.IfBelow, small)
		c.StoreReg(asm.At(asm.RDI, 0), asm.RAX)
		c.Bind(small)
		c.Return()
	})
	for _, in := range []uint64{3, 4, 5, 8} {
		frame, want := in, in
		if in+5 >= 10 {
			want = in + 5
		}
		e.Call(unsafe.Pointer(&frame))
		if frame != want {
			t.Errorf("got %d, want %d", frame, want)
		}
	}
}

// Code computes with vectors and masks.
func TestCallVectors(t *testing.T) {
	needVectors(t)
	e := place(t, func(c *asm.Code) {
		c.Op2M(asm.BROADCASTD, 31, asm.At(asm.RDI, 0), asm.Masking{})
		c.Op3M(asm.PADDD, 31, 31, c.Word32(5), asm.Masking{})
		c.CompareM(asm.CMPUD, 1, 31, c.Word32(10), asm.Masking{}, asm.GT)
		c.Store(asm.STORED, asm.At(asm.RDI, 0), 31, asm.Under(1))
		c.Return()
	})
	for _, in := range []uint32{3, 8} {
		var frame [16]uint32
		frame[0] = in
		want := in
		if in+5 > 10 {
			want = in + 5
		}
		e.Call(unsafe.Pointer(&frame))
		if frame[0] != want {
			t.Errorf("got %d, want %d", frame[0], want)
		}
	}
}

// A fault in generated code is a panic of its caller, with the address, and the goroutine continues.
func TestFault(t *testing.T) {
	t.Run("register", func(t *testing.T) {
		testFault(t, func(c *asm.Code) { c.Load(asm.RAX, asm.At(asm.RAX, 0)) })
	})
	t.Run("vector", func(t *testing.T) {
		needVectors(t)
		testFault(t, func(c *asm.Code) { c.Op2M(asm.MOVD, 3, asm.At(asm.RAX, 0), asm.Masking{}) })
	})
}

// testFault calls code that loads from the address in RAX, which is not mapped.
func testFault(t *testing.T, load func(c *asm.Code)) {
	e := place(t, func(c *asm.Code) {
		c.Load(asm.RAX, asm.At(asm.RDI, 0))
		load(c)
		c.Return()
	})
	for range 100 {
		func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				fault, ok := recover().(interface{ Addr() uintptr })
				if !ok || fault.Addr() != 0xdead000 {
					t.Fatalf("got %v", fault)
				}
			}()
			frame := uint64(0xdead000)
			e.Call(unsafe.Pointer(&frame))
		}()
	}
}

// Signals for preemption and for the profiler arrive in generated code, and garbage is collected.
func TestSignals(t *testing.T) {
	e := place(t, func(c *asm.Code) {
		loop := &asm.Label{}
		c.Load(asm.RAX, asm.At(asm.RDI, 0))
		c.Bind(loop)
		c.RegInt(asm.SUB, asm.RAX, 1)
		c.JumpIf(asm.IfNotZero, loop)
		c.Return()
	})
	if err := pprof.StartCPUProfile(io.Discard); err == nil {
		defer pprof.StopCPUProfile()
	}
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	for range 300 {
		frame := uint64(1 << 20)
		e.Call(unsafe.Pointer(&frame))
	}
	close(stop)
	<-done
}

// No mapping is both writable and executable.
func TestMappings(t *testing.T) {
	if err := Prepare(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.Contains(line, "pegasus code") {
			modes[f[1]]++
		} else if strings.HasPrefix(f[1], "rwx") {
			t.Errorf("got %s", line)
		}
	}
	if modes["rw-s"] != 1 || modes["r-xs"] != 1 || len(modes) != 2 {
		t.Errorf("got %v, want one writable and one executable mapping", modes)
	}
}

// The capacity is a bound.
func TestFull(t *testing.T) {
	if _, err := Place(make([]byte, Size+1)); err != ErrFull {
		t.Errorf("got %v, want %v", err, ErrFull)
	}
}
