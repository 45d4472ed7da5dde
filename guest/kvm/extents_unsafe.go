package kvm

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

// The kernel's FS_IOC_FIEMAP, linux/fiemap.h.
const (
	ioctlFiemap   = 0xc020660b
	fiemapSync    = 1
	extentLast    = 1
	badExtent     = 2 | 4 | 8 | 0x200 | 0x800 // unknown, not yet allocated, encoded, inline, not yet written
	maxFileExtent = 256
)

type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

type fiemap struct {
	start, length        uint64
	flags, mapped, count uint32
	_                    uint32
	extents              [maxFileExtent]fiemapExtent
}

// extents returns the ranges of a file's bytes on its device, in the file's order. The ioctl writes only into m: count
// is the room for extents.
func extents(f *os.File) (callbuf.Extents, error) {
	m := fiemap{length: ^uint64(0), flags: fiemapSync, count: maxFileExtent}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlFiemap, uintptr(unsafe.Pointer(&m))); errno != 0 {
		return nil, fmt.Errorf("where %s lies: %w", f.Name(), errno)
	}
	var all callbuf.Extents
	at := uint64(0)
	for i, x := range m.extents[:min(m.mapped, maxFileExtent)] {
		if x.logical != at || x.flags&badExtent != 0 {
			return nil, fmt.Errorf("%s has a hole at %d, or no memory of its own (flags %#x)", f.Name(), at, x.flags)
		}
		at += x.length
		if n := len(all); n > 0 && all[n-1].Offset+all[n-1].Bytes == x.physical {
			all[n-1].Bytes += x.length
		} else {
			all = append(all, callbuf.Extent{Offset: x.physical, Bytes: x.length})
		}
		if i+1 == int(m.mapped) && x.flags&extentLast == 0 {
			return nil, errors.New(f.Name() + " lies in too many pieces")
		}
	}
	return all, nil
}

// setImmutable sets or clears a file's immutable flag; no process can truncate an immutable file.
func setImmutable(f *os.File, yes bool) error {
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return fmt.Errorf("flags of %s: %w", f.Name(), err)
	}
	const immutable = 0x10 // FS_IMMUTABLE_FL
	next := flags &^ immutable
	if yes {
		next |= immutable
	}
	if next == flags {
		return nil
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, next); err != nil {
		return fmt.Errorf("flags of %s: %w", f.Name(), err)
	}
	return nil
}
