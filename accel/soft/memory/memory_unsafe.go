package memory

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const mapFixedNoReplace = 0x100000

// mapAt maps at a fixed address. Addresses of a space hold no Go memory: they
// were unused when the space reserved them, so no mapping of Go's is replaced.
func mapAt(addr, size uint64, prot, flags, fd int, offset uint64) error {
	got, _, e := unix.Syscall6(unix.SYS_MMAP, uintptr(addr), uintptr(size), uintptr(prot), uintptr(flags), uintptr(fd), uintptr(offset))
	if e != 0 {
		return e
	}
	if uint64(got) != addr { // a host kernel that doesn't support the flag takes the address as a hint
		unix.Syscall(unix.SYS_MUNMAP, got, uintptr(size), 0)
		return unix.EEXIST
	}
	return nil
}

// reserve maps [base, base+size) without access.
func reserve(base, size uint64, reserved bool) error {
	fixed := mapFixedNoReplace
	if reserved {
		fixed = unix.MAP_FIXED
	}
	return mapAt(base, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE|fixed, -1, 0)
}

func unreserve(base, size uint64) error {
	_, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(base), uintptr(size), 0)
	if e != 0 {
		return e
	}
	return nil
}

// newFile creates a file of size bytes, which keeps that size. A confined worker can't set the size of a file, but
// write to its end.
func newFile(name string, size uint64) (fd int, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make a file of %d bytes: %w", size, err)
	}
	if _, err = unix.Pwrite(fd, []byte{0}, int64(size)-1); err == nil {
		err = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(size))
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("make a file of %d bytes: %w", size, err)
	}
	return fd, nil
}

// protect sets the protection of mapped memory of the space.
func protect(addr, size uint64, prot int) error {
	if _, _, e := unix.Syscall(unix.SYS_MPROTECT, uintptr(addr), uintptr(size), uintptr(prot)); e != 0 {
		return e
	}
	return nil
}

// mapSlab creates a memfd of size bytes and maps it over a reserved range.
func mapSlab(addr, size uint64) (fd int, mem []byte, err error) {
	if fd, err = newFile("pegasus-device-memory", size); err != nil {
		return -1, nil, err
	}
	err = mapAt(addr, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE|unix.MAP_FIXED, fd, 0)
	if err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("map %d bytes at %#x: %w", size, addr, err)
	}
	return fd, bytesAt(addr, size), nil
}

// mapShared maps n bytes of a file over a reserved range.
func mapShared(addr, n uint64, fd int, offset uint64) ([]byte, error) {
	n = (n + pageSize - 1) &^ (pageSize - 1)
	_, _, e := unix.Syscall6(unix.SYS_MMAP, uintptr(addr), uintptr(n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_NORESERVE|unix.MAP_FIXED, uintptr(fd), uintptr(offset))
	if e != 0 {
		return nil, e
	}
	return bytesAt(addr, n), nil
}

// bytesAt returns the mapped memory at addr. It is not on Go's heap, so the collector ignores it; the conversion goes
// through a pointer to the number because there is no other way to turn an address into a pointer.
func bytesAt(addr, size uint64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
}

// unmapSlab makes the slab's range inaccessible again and releases its memory.
func unmapSlab(l *slab) error {
	return errors.Join(reserve(l.run.start, l.run.size, true), unix.Close(l.fd))
}

// AddressOf returns the device address of memory of the space, if it is that: an address is the same for device and
// host.
func (s *Space) AddressOf(mem []byte) (addr uint64, ok bool) {
	addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	return addr, addr-s.base < s.size
}
