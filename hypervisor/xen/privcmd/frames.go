package privcmd

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"pegasus/internal/ioctl"
)

// Hypervisor is the domain number that owns Xen's own memory.
const Hypervisor = 0x7ff2

const ioctlMapFrames = 0x00205004 // MMAPBATCH_V2

// maxFrames is the number of frames' numbers and results that fit into the memory for calls.
const maxFrames = (callMemory - 4096) / 12

// Map maps a domain's frames, one behind the other. The caller ends the mapping by Unmap.
func (h *Hypercalls) Map(domain uint16, frames []uint64, write bool) ([]byte, error) {
	if len(frames) == 0 || len(frames) > maxFrames {
		return nil, fmt.Errorf("map %d frames of domain %d: want 1 to %d", len(frames), domain, maxFrames)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(int(h.calls.Fd()), 0, 4096*len(frames), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d frames of domain %d: %w", len(frames), domain, err)
	}
	numbers := h.mem[4096:]
	results := numbers[8*len(frames):]
	for i, f := range frames {
		binary.LittleEndian.PutUint64(numbers[8*i:], f)
	}
	clear(results[:4*len(frames)])
	argument := [6]uint64{uint64(len(frames)) | uint64(domain)<<32, addressOf(mem), addressOf(numbers), addressOf(results)}
	if _, err = ioctl.Call(h.calls, ioctlMapFrames, &argument); err == nil {
		err = firstError(results, len(frames))
	}
	if err != nil {
		unix.Munmap(mem)
		return nil, fmt.Errorf("map %d frames of domain %d, from %#x on: %w", len(frames), domain, frames[0], err)
	}
	return mem, nil
}

// firstError returns the first of the results that isn't 0.
func firstError(results []byte, n int) error {
	for i := range n {
		if r := int32(binary.LittleEndian.Uint32(results[4*i:])); r != 0 {
			return fmt.Errorf("frame %d: %w", i, unix.Errno(-r))
		}
	}
	return nil
}

// Unmap ends a mapping.
func (h *Hypercalls) Unmap(mem []byte) error { return unix.Munmap(mem) }
