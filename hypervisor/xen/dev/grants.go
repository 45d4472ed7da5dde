package dev

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Grant is pages of this domain that another one may map, in one piece. It has a file of
// its own: whoever has that can map these pages, and no others.
type Grant struct {
	File *os.File
	Refs []Ref
	from uint64 // where they are in the file
}

const (
	ioctlAlloc = 0x00184705
	allocBytes = 16 // before the references

	grantWritable = 1
)

// MaxPages is the most pages of one grant or mapping: what the references of fit into the
// memory that the kernel copies them to.
const MaxPages = 1 << 16

// GrantPages makes pages, which are zero, and grants them to another domain. The kernel's
// limit for all of a domain is in /sys/module/xen_gntalloc/parameters/limit.
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
	if _, err := call(f, ioctlAlloc, &arg[0]); err != nil {
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

// Offset is where in its file a program maps the grant's first page.
func (g *Grant) Offset() uint64 { return g.from }

// Map maps the pages in this process.
func (g *Grant) Map() ([]byte, error) {
	return unix.Mmap(int(g.File.Fd()), int64(g.from), len(g.Refs)*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Close gives up the grant, which lasts until nobody maps its pages any more, on either side.
func (g *Grant) Close() error { return g.File.Close() }

// A Mapping is pages that another domain grants, in one piece, as a file to be mapped
// once, by whoever has it.
type Mapping struct {
	File  *os.File
	pages int
	from  uint64
}

const (
	ioctlMap = 0x00184700
	mapBytes = 16 // before the references
)

// MapRefs takes what a domain grants. Whether it does shows when the mapping is mapped.
func MapRefs(of Domain, refs []Ref) (*Mapping, error) {
	if len(refs) < 1 || len(refs) > MaxPages {
		return nil, fmt.Errorf("map %d pages: want 1 to %d", len(refs), MaxPages)
	}
	f, err := open("/dev/xen/gntdev", 0)
	if err != nil {
		return nil, err
	}
	arg := make([]byte, mapBytes+8*len(refs))
	ne := binary.NativeEndian
	ne.PutUint32(arg, uint32(len(refs)))
	for i, r := range refs {
		ne.PutUint32(arg[mapBytes+8*i:], uint32(of))
		ne.PutUint32(arg[mapBytes+8*i+4:], uint32(r))
	}
	if _, err := call(f, ioctlMap, &arg[0]); err != nil {
		f.Close()
		return nil, fmt.Errorf("map %d pages of domain %d: %w", len(refs), of, err)
	}
	return &Mapping{File: f, pages: len(refs), from: ne.Uint64(arg[8:])}, nil
}

// Offset is where in its file a program maps the mapping's first page.
func (m *Mapping) Offset() uint64 { return m.from }

// Map maps the pages in this process, to write to them if writable, as the domain has to allow.
// A reference that the domain doesn't grant is EINVAL.
func (m *Mapping) Map(writable bool) ([]byte, error) {
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	return unix.Mmap(int(m.File.Fd()), int64(m.from), m.pages*pageBytes, prot, unix.MAP_SHARED)
}

// Close gives up the mapping, once nobody maps it.
func (m *Mapping) Close() error { return m.File.Close() }
