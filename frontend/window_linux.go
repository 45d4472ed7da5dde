package frontend

import "golang.org/x/sys/unix"

// window is a range of addresses that guest and worker agreed on. Addresses are plain numbers here: this
// package never dereferences them.
type window struct{ base, bytes uintptr }

// take maps the first candidate from index first on that is free in this process, and returns its index;
// len(bases) means none. A window that is held already stays.
func (w *window) take(first int, bases [4]uint64, bytes uintptr, mapAt func(base uintptr) error) int {
	if w.base != 0 {
		return first
	}
	for i := first; i < len(bases); i++ {
		if base := uintptr(bases[i]); base != 0 && mapAt(base) == nil {
			w.base, w.bytes = base, bytes
			return i
		}
	}
	return len(bases)
}

// drop unmaps the window.
func (w *window) drop() {
	if w.base != 0 {
		unix.Syscall(unix.SYS_MUNMAP, w.base, w.bytes, 0)
		w.base = 0
	}
}

// mapFileAt maps a file at exactly base, and returns an error if another mapping exists there.
func mapFileAt(base, bytes uintptr, fd int, offset uint64) error {
	return mmap(base, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, fd, offset)
}

// reserveAt reserves a range of addresses without access.
func reserveAt(base, bytes uintptr) error {
	return mmap(base, bytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE, -1, 0)
}

func mmap(base, bytes uintptr, prot, flags, fd int, offset uint64) error {
	got, _, errno := unix.Syscall6(unix.SYS_MMAP, base, bytes, uintptr(prot), uintptr(flags), uintptr(fd), uintptr(offset))
	switch {
	case errno != 0:
		return errno
	case got != base: // a kernel that treats the address as a hint
		unix.Syscall(unix.SYS_MUNMAP, got, bytes, 0)
		return unix.EEXIST
	}
	return nil
}
