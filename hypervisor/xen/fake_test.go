package xen

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/grant"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/hub"
)

// fake is a domU's memory in a file, with its granted pages.
type fake struct {
	t       testing.TB
	file    *os.File
	mem     []byte
	granted map[grant.Ref]bool
	reads   int             // number of pages read
	ends    []*net.UnixConn // of event channels
	open    int             // segments and control areas that are not released
	broken  error           // the host's error in mapping segments
}

const fakePages = 4096

func newFake(t testing.TB) *fake {
	t.Helper()
	fd, err := unix.MemfdCreate("domU", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, file: os.NewFile(uintptr(fd), "domU"), granted: map[grant.Ref]bool{}}
	t.Cleanup(func() { f.file.Close() })
	if err := f.file.Truncate(fakePages * grant.PageBytes); err != nil {
		t.Fatal(err)
	}
	if f.mem, err = callbuf.Map(f.file, fakePages*grant.PageBytes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { callbuf.Unmap(f.mem) })
	return f
}

// grant grants n pages, and returns their numbers.
func (f *fake) grant(from grant.Ref, n int) (refs []uint32) {
	for i := range n {
		r := from + grant.Ref(i)
		f.granted[r] = true
		refs = append(refs, uint32(r))
	}
	return refs
}

func (f *fake) page(r grant.Ref) []byte {
	return f.mem[int(r)*grant.PageBytes:][:grant.PageBytes]
}

var errNotGranted = errors.New("not granted")

func (f *fake) check(refs ...grant.Ref) error {
	for _, r := range refs {
		if !f.granted[r] {
			return errNotGranted
		}
	}
	return nil
}

func (f *fake) Read(r grant.Ref) ([]byte, error) {
	if err := f.check(r); err != nil {
		return nil, err
	}
	f.reads++
	return bytes.Clone(f.page(r)), nil
}

func (f *fake) parts(refs []grant.Ref) (all callbuf.Extents) {
	for _, r := range refs {
		all = append(all, callbuf.Extent{Offset: uint64(r) * grant.PageBytes, Bytes: grant.PageBytes})
	}
	return all
}

func (f *fake) Control(refs []grant.Ref, port grant.Port) (area []byte, c bell.Conn, unmap func(), err error) {
	if err := f.check(refs...); err != nil {
		return nil, nil, nil, err
	}
	if area, err = callbuf.MapParts(f.file, f.parts(refs)); err != nil {
		return nil, nil, nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "channel")
		end, err := net.FileConn(file)
		file.Close()
		if err != nil {
			return nil, nil, nil, err
		}
		ends[i] = end.(*net.UnixConn)
	}
	f.ends = append(f.ends, ends[1])
	f.t.Cleanup(func() { ends[1].Close() })
	area[wire.ControlAlive] = 1
	f.open++
	return area, ends[0], func() {
		f.open--
		area[wire.ControlAlive] = 0
		callbuf.UnmapParts(area)
	}, nil
}

func (f *fake) Segment(refs []grant.Ref, front int) (s hub.Segment, end func(), err error) {
	if err := f.check(refs[0]); err != nil || f.broken != nil {
		return s, nil, errors.Join(err, f.broken)
	}
	header, err := callbuf.MapParts(f.file, f.parts(refs[:1]))
	if err != nil {
		return s, nil, err
	}
	f.open++
	return hub.Segment{File: f.file, Parts: f.parts(refs), Header: header}, func() {
		f.open--
		callbuf.UnmapParts(header)
	}, nil
}

// area creates a control area of granted pages.
func (f *fake) area(from grant.Ref) {
	refs := f.grant(from, wire.ControlPages)
	clear(f.mem[int(from)*grant.PageBytes:][:wire.ControlBytes])
	wire.PutTable(f.page(from)[wire.ControlTable:], refs[1:], 0)
}

// tables writes the numbers of pages into tables, and returns the agent's message.
func (f *fake) tables(at grant.Ref, refs []uint32) wire.Message {
	first := at
	for len(refs) > 0 {
		f.granted[at] = true
		n, next := min(len(refs), wire.TableRefs), uint32(at)+1
		if n == len(refs) {
			next = 0
		}
		wire.PutTable(f.page(at), refs[:n], next)
		refs, at = refs[n:], at+1
	}
	return wire.Message{Kind: wire.Grant, Body: wire.GrantBody(uint32(first))}
}
