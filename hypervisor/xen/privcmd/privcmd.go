// Package privcmd calls the hypervisor Xen from Dom0, by the device that Linux has for that. It
// decides nothing.
//
// Who calls it: the daemon, as root of Dom0, through hypervisor/xen/control and others that know
// what to say.
package privcmd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Hypercalls is how root of Dom0 calls the hypervisor. One goroutine uses it.
type Hypercalls struct {
	calls, memory *os.File
	mem           []byte
}

// callMemory is the memory that a call can hand over: its argument on the first page, and what it
// points to behind.
const callMemory = 17 * 4096

// Open is for calls.
func Open() (*Hypercalls, error) {
	calls, err := open("/dev/xen/privcmd")
	if err != nil {
		return nil, err
	}
	memory, err := open("/dev/xen/hypercall")
	if err != nil {
		calls.Close()
		return nil, err
	}
	h := &Hypercalls{calls: calls, memory: memory}
	if h.mem, err = unix.Mmap(int(memory.Fd()), 0, callMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		calls.Close()
		memory.Close()
		return nil, fmt.Errorf("memory for hypercalls: %w", err)
	}
	return h, nil
}

// Close ends it.
func (h *Hypercalls) Close() error {
	h.calls.Close()
	h.memory.Close()
	return unix.Munmap(h.mem)
}

// Memory is what the hypervisor can reach: it doesn't move, and stays present.
func (h *Hypercalls) Memory() []byte { return h.mem }

// Address is where Memory is.
func (h *Hypercalls) Address() uint64 { return addressOf(h.mem) }

const ioctlHypercall = 0x00305000

// Call calls the hypervisor. The result is what it returns, or its error.
func (h *Hypercalls) Call(op uint64, args ...uint64) (int64, error) {
	var a [6]uint64
	a[0] = op
	copy(a[1:], args)
	r, err := ioctl(h.calls, ioctlHypercall, &a)
	return int64(r), err
}

func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: is this Dom0 of Xen, with its modules loaded?", err)
	}
	return f, nil
}
