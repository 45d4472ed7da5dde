package workload

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Address is the address of an arena on the device. Peers map it there, too.
const Address = 1 << 40

// Arena is device memory that other processes can map. It is a lane.Memory.
type Arena struct {
	File    *os.File
	Size    int
	mem     []byte
	buffers []Buffer
	next    int
}

// Buffer is an allocation.
type Buffer struct {
	Address uint64
	Mem     []byte
}

// NewArena makes an arena of size bytes.
func NewArena(size int) (*Arena, error) {
	fd, err := unix.MemfdCreate("device", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	a := &Arena{File: os.NewFile(uintptr(fd), "device"), Size: size}
	if err := a.File.Truncate(int64(size)); err != nil {
		a.File.Close()
		return nil, err
	}
	if a.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		a.File.Close()
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return a, nil
}

// Close unmaps the memory.
func (a *Arena) Close() error {
	if err := unix.Munmap(a.mem); err != nil {
		return err
	}
	return a.File.Close()
}

// Region returns the allocation that contains an address.
func (a *Arena) Region(addr uint64) (base uint64, mem []byte) {
	for _, b := range a.buffers {
		if addr-b.Address < uint64(len(b.Mem)) {
			return b.Address, b.Mem
		}
	}
	return 0, nil
}

// Beside returns nothing: the workload's kernels access no memory beside their buffers.
func (a *Arena) Beside(uint64, uint64) []byte { return nil }

// alloc allocates memory on pages of its own.
func (a *Arena) alloc(size, _ uint64) (addr uint64, mem []byte, err error) {
	at := a.next
	if uint64(a.Size-at) < size {
		return 0, nil, fmt.Errorf("no room for %d bytes", size)
	}
	a.next = min(a.Size, (at+int(size)+4095)&^4095)
	b := Buffer{Address + uint64(at), a.mem[at:][:size:size]}
	a.buffers = append(a.buffers, b)
	return b.Address, b.Mem, nil
}
