// Package code holds generated machine code and calls it. The code lies in one memory file that is mapped twice: one
// mapping is writable, the other is executable. Both are made by Prepare, so that no executable mapping is needed later,
// when a worker is confined. The file is sealed: it cannot be mapped writable again.
//
// Generated code runs on the goroutine's stack, and uses none of it: while it runs, the stack pointer points to the
// return address into call. So Go's runtime attributes a fault in generated code to call, and with
// debug.SetPanicOnFault the fault is a panic. The runtime does not preempt a goroutine in generated code, so a call
// must be brief.
//
// Callers: accel/soft/lane/exec.
//
// Trust boundary: the package executes what Place is given. Package gen is responsible for that.
package code

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Size is the capacity for code, in bytes. The memory is taken as code is placed.
const Size = 64 << 20

// ErrFull is returned if there is no room for more code.
var ErrFull = errors.New("place machine code: the memory for code is full; the interpreter executes further kernels")

// arena is the memory for code. Code is placed one piece after the other, and not removed.
type arena struct {
	mu         sync.Mutex
	prepared   bool
	err        error
	writable   []byte
	executable *byte
	used       int
}

var all arena

// Prepare makes the mappings. It fails if the system permits no executable ones. Later calls return the same result.
func Prepare() error {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.prepare()
}

func (a *arena) prepare() error {
	if !a.prepared {
		a.prepared = true
		if a.writable, a.executable, a.err = mapTwice(Size); a.err != nil {
			a.err = fmt.Errorf("memory for machine code: %w", a.err)
		}
	}
	return a.err
}

// Entry is the address of placed code.
type Entry uintptr

// Place copies code to executable memory, at a multiple of 64 bytes.
func Place(code []byte) (Entry, error) {
	a := &all
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.prepare(); err != nil {
		return 0, err
	}
	at := (a.used + 63) &^ 63
	if len(code) > len(a.writable)-at {
		return 0, ErrFull
	}
	copy(a.writable[at:], code)
	a.touch(at, len(code))
	a.used = at + len(code)
	return Entry(uintptr(unsafe.Pointer(a.executable)) + uintptr(at)), nil
}

// touch reads each page of a piece of code by the executable mapping. Code may read constants under a mask; while their
// page is missing there, and no lane is read, each such instruction takes as long as a fault and leaves the page missing.
func (a *arena) touch(at, n int) {
	const page = 4096
	sum := byte(0)
	for i := at &^ (page - 1); i < at+n; i += page {
		sum |= *(*byte)(unsafe.Add(unsafe.Pointer(a.executable), i))
	}
	runtime.KeepAlive(sum)
}

// Used returns the number of bytes of code.
func Used() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.used
}

// Call executes code with a pointer to its frame in RDI. The code may use all registers but RSP and RBP, and no stack.
func (e Entry) Call(frame unsafe.Pointer) { call(uintptr(e), frame) }
