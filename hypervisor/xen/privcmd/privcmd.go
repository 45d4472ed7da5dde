// Package privcmd calls the hypervisor Xen from Dom0, through Linux's privcmd device. It checks nothing.
//
// Callers: the daemon, as root of Dom0, through hypervisor/xen/control and others that build the calls.
//
// Trust boundary: the hypervisor and the callers are trusted.
package privcmd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pegasus/internal/ioctl"
)

// Hypercalls calls the hypervisor as root of Dom0. Not safe for concurrent use.
type Hypercalls struct {
	calls, memory *os.File
	mem           []byte
}

// callMemory is the memory of a call: its argument on the first page, and the targets of its pointers behind.
const callMemory = 17 * 4096

// Open opens the devices and maps the memory for calls.
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

// Close closes the devices and unmaps the memory.
func (h *Hypercalls) Close() error {
	h.calls.Close()
	h.memory.Close()
	return unix.Munmap(h.mem)
}

// Memory returns the memory accessible to the hypervisor: it doesn't move, and stays present.
func (h *Hypercalls) Memory() []byte { return h.mem }

// Address returns the address of Memory.
func (h *Hypercalls) Address() uint64 { return addressOf(h.mem) }

const ioctlHypercall = 0x00305000

// Call calls the hypervisor, and returns its result or error.
func (h *Hypercalls) Call(op uint64, args ...uint64) (int64, error) {
	var a [6]uint64
	a[0] = op
	copy(a[1:], args)
	r, err := ioctl.Call(h.calls, ioctlHypercall, &a)
	return int64(r), err
}

func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: is this Dom0 of Xen, with its modules loaded?", err)
	}
	return f, nil
}
