package callbuf

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"pegasus/internal/ioctl"
)

// MapParts maps parts of a file one behind the other, at any address. UnmapParts undoes it.
func MapParts(f *os.File, parts Extents) ([]byte, error) {
	mem, err := mapParts(f, parts, 0)
	if err != nil {
		return nil, fmt.Errorf("map segment: %w", err)
	}
	return mem, nil
}

// MapPartsAt maps the parts at an address, unless a mapping exists there already.
func MapPartsAt(f *os.File, parts Extents, base uint64) ([]byte, bool) {
	mem, err := mapParts(f, parts, uintptr(base))
	return mem, err == nil
}

// mapParts reserves the addresses of all parts, and maps each part over its own. The slice is valid until it
// is unmapped: the mapping is made here and has that length.
func mapParts(f *os.File, parts Extents, base uintptr) ([]byte, error) {
	total := uintptr(parts.Bytes())
	flags := uintptr(unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE)
	if base != 0 {
		flags |= unix.MAP_FIXED_NOREPLACE
	}
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, base, total, unix.PROT_NONE, flags, ^uintptr(0), 0)
	if errno != 0 {
		return nil, errno
	}
	mem := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), total)
	if base != 0 && at != base { // a kernel before 4.17 took the flag for a hint
		UnmapParts(mem)
		return nil, unix.EEXIST
	}
	err := ioctl.Uninterrupted(func() error { // the file may have pages of another domain of Xen
		to := at
		for _, p := range parts {
			_, _, errno := unix.Syscall6(unix.SYS_MMAP, to, uintptr(p.Bytes), unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_SHARED|unix.MAP_FIXED, f.Fd(), uintptr(p.Offset))
			if errno != 0 {
				return errno
			}
			to += uintptr(p.Bytes)
		}
		return nil
	})
	if err != nil {
		UnmapParts(mem)
		return nil, err
	}
	return mem, nil
}

// UnmapParts undoes MapParts and MapPartsAt.
func UnmapParts(mem []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
