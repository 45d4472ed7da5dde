package grant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pegasus/internal/ioctl"
)

// Grant is a set of contiguous pages of this domain that another domain may map. It has a file of its own: a
// process that has the file can map these pages, and no others.
type Grant struct {
	File *os.File
	Refs []Ref
	from uint64 // their offset in the file
}

const (
	ioctlAlloc = 0x00184705
	allocBytes = 16 // before the references

	grantWritable = 1
)

// MaxPages is the limit of one grant or mapping: its references must fit into the memory that the kernel
// copies them to.
const MaxPages = 1 << 16

// GrantPages allocates zeroed pages and grants them to another domain. The kernel's limit for all pages of a
// domain is in /sys/module/xen_gntalloc/parameters/limit.
func GrantPages(to Domain, pages int, writable bool) (*Grant, error) {
	if pages < 1 || pages > MaxPages {
		return nil, fmt.Errorf("grant %d pages: want 1 to %d", pages, MaxPages)
	}
	f, err := open("/dev/xen/gntalloc", 0)
	if err != nil {
		return nil, err
	}
	arg := make([]byte, allocBytes+4*max(pages, 2))
	ne := binary.NativeEndian
	ne.PutUint16(arg, uint16(to))
	if writable {
		ne.PutUint16(arg[2:], grantWritable)
	}
	ne.PutUint32(arg[4:], uint32(pages))
	if _, err := ioctl.Call(f, ioctlAlloc, &arg[0]); err != nil {
		f.Close()
		if err == unix.ENOSPC {
			err = fmt.Errorf("%w: /sys/module/xen_gntalloc/parameters/limit is how many pages there may be", err)
		}
		return nil, fmt.Errorf("grant %d pages to domain %d: %w", pages, to, err)
	}
	g := &Grant{File: f, Refs: make([]Ref, pages), from: ne.Uint64(arg[8:])}
	for i := range g.Refs {
		g.Refs[i] = Ref(ne.Uint32(arg[allocBytes+4*i:]))
	}
	return g, nil
}

// Offset returns the offset in its file at which a program maps the grant's first page.
func (g *Grant) Offset() uint64 { return g.from }

// Map maps the pages in this process.
func (g *Grant) Map() ([]byte, error) {
	return mmap(g.File, g.from, len(g.Refs), unix.PROT_READ|unix.PROT_WRITE)
}

// AtEnd makes the kernel clear a byte of the pages when no process in this domain has their file or maps them
// any more, for example because this process has died. The other domain may map them still.
func (g *Grant) AtEnd(offset uint64) error {
	return unmapNotify(g.File, g.from+offset, unmapClearByte, 0)
}

// Close closes the file. The grant lasts until its pages are unmapped on both sides.
func (g *Grant) Close() error { return g.File.Close() }

// Mapper maps pages that other domains grant. It has a file of its own: a process that has the file can map
// the pages that were added to it.
type Mapper struct {
	File *os.File
}

const (
	ioctlMap = 0x00184700
	mapBytes = 16 // before the references
)

// NewMapper returns a Mapper without pages.
func NewMapper() (*Mapper, error) {
	f, err := open("/dev/xen/gntdev", 0)
	if err != nil {
		return nil, err
	}
	return &Mapper{f}, nil
}

// Add adds pages that a domain grants, and returns the offset in the file at which they can be mapped: all at
// once, and only once, but they may be added several times. Whether the domain does grant them shows when
// they are mapped.
func (m *Mapper) Add(of Domain, refs []Ref) (offset uint64, err error) {
	if len(refs) < 1 || len(refs) > MaxPages {
		return 0, fmt.Errorf("map %d pages: want 1 to %d", len(refs), MaxPages)
	}
	arg := make([]byte, mapBytes+8*len(refs))
	ne := binary.NativeEndian
	ne.PutUint32(arg, uint32(len(refs)))
	for i, r := range refs {
		ne.PutUint32(arg[mapBytes+8*i:], uint32(of))
		ne.PutUint32(arg[mapBytes+8*i+4:], uint32(r))
	}
	if _, err := ioctl.Call(m.File, ioctlMap, &arg[0]); err != nil {
		return 0, fmt.Errorf("map %d pages of domain %d: %w", len(refs), of, err)
	}
	return ne.Uint64(arg[8:]), nil
}

// ErrNotGranted is returned for pages that a domain does not grant, or not with that access: a fault of the
// domain.
var ErrNotGranted = errors.New("the domain doesn't grant that")

// Map maps added pages in this process, with write access if writable, which the domain must have granted.
func (m *Mapper) Map(offset uint64, pages int, writable bool) ([]byte, error) {
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	mem, err := mmap(m.File, offset, pages, prot)
	if err == unix.EINVAL { // the kernel returns it for other causes, too, such as Xen's lack of space
		err = fmt.Errorf("%w (%w)", ErrNotGranted, err)
	}
	return mem, err
}

func mmap(f *os.File, offset uint64, pages, prot int) (mem []byte, err error) {
	err = ioctl.Uninterrupted(func() (err error) {
		mem, err = unix.Mmap(int(f.Fd()), int64(offset), pages*PageBytes, prot, unix.MAP_SHARED)
		return err
	})
	return mem, err
}

// AtUnmap makes the kernel clear the byte at an offset of the file, and send an event, when that page is
// unmapped, for example because this process has died.
func (m *Mapper) AtUnmap(offset uint64, p Port) error {
	return unmapNotify(m.File, offset, unmapClearByte|unmapSendEvent, p)
}

// unmapNotify is AtEnd and AtUnmap, for granted and mapped pages.
func unmapNotify(f *os.File, offset uint64, action uint32, p Port) error {
	var arg [16]byte
	ne := binary.NativeEndian
	ne.PutUint64(arg[:], offset)
	ne.PutUint32(arg[8:], action)
	ne.PutUint32(arg[12:], uint32(p))
	if _, err := ioctl.Call(f, ioctlUnmapNotify, &arg[0]); err != nil {
		return fmt.Errorf("register for the notice of unmapping: %w", err)
	}
	return nil
}

const (
	ioctlUnmapNotify = 0x00104707
	unmapClearByte   = 1
	unmapSendEvent   = 2
)

// Close closes the file. Mapped pages stay mapped.
func (m *Mapper) Close() error { return m.File.Close() }

// Map maps pages of a domain in this process. They stay mapped until unmap.
func Map(of Domain, refs []Ref, writable bool) (mem []byte, unmap func(), err error) {
	m, err := NewMapper()
	if err != nil {
		return nil, nil, err
	}
	defer m.Close() // mappings stay
	at, err := m.Add(of, refs)
	if err == nil {
		mem, err = m.Map(at, len(refs), writable)
	}
	if err != nil {
		return nil, nil, err
	}
	return mem, func() { unix.Munmap(mem) }, nil
}
