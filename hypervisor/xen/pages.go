package xen

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/grant"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/hub"
)

// pages are the operations on pages that a domain grants.
type pages interface {
	reader
	// Control maps a control area, and binds the channel at a port of the domain, which is notified when unmap is
	// called, or this process ends. The caller owns the channel, too.
	Control(refs []grant.Ref, port grant.Port) (area []byte, c bell.Conn, unmap func(), err error)
	// Segment returns a segment of pages: of the first front of them, and of the rest. end releases it.
	Segment(refs []grant.Ref, front int) (s hub.Segment, end func(), err error)
}

// domain implements pages for a real domain.
type domain grant.Domain

func (d domain) Read(r grant.Ref) ([]byte, error) {
	page, err := copyPage(grant.Domain(d), r)
	return page, pageError(err)
}

func (d domain) Control(refs []grant.Ref, port grant.Port) (area []byte, c bell.Conn, unmap func(), err error) {
	channel, err := grant.BindChannel(grant.Domain(d), port)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			channel.Close()
		}
	}()
	m, err := grant.NewMapper()
	if err != nil {
		return nil, nil, nil, err
	}
	defer m.Close() // the mapping stays
	at, err := m.Add(grant.Domain(d), refs)
	if err != nil {
		return nil, nil, nil, err
	}
	if area, err = m.Map(at, len(refs), true); err != nil {
		return nil, nil, nil, fmt.Errorf("map the control area: %w", err)
	}
	unmap = func() { callbuf.Unmap(area) }
	if err = m.AtUnmap(at+wire.ControlAlive, channel.Port()); err != nil {
		unmap()
		return nil, nil, nil, err
	}
	area[wire.ControlAlive] = 1
	return area, channel, unmap, nil
}

func (d domain) Segment(refs []grant.Ref, front int) (s hub.Segment, end func(), err error) {
	s, end, err = d.segment(refs, front)
	return s, end, pageError(err)
}

// pageError adds to an error in mapping pages the remedy in Dom0, unless the domU doesn't grant them: the kernel needs
// memory of Dom0's for each.
func pageError(err error) error {
	switch {
	case err == nil, errors.Is(err, grant.ErrNotGranted):
		return err
	case errors.Is(err, unix.ENOMEM):
		err = fmt.Errorf("%w: give Dom0 more memory", err)
	case errors.Is(err, unix.EINVAL):
		err = fmt.Errorf("%w: raise /sys/module/xen_gntdev/parameters/limit", err)
	}
	return &hub.HostError{Err: err}
}

func (d domain) segment(refs []grant.Ref, front int) (s hub.Segment, end func(), err error) {
	header, unmap, err := grant.Map(grant.Domain(d), refs[:1], true)
	if err != nil {
		return s, nil, fmt.Errorf("map the header of a segment: %w", err)
	}
	m, err := grant.NewMapper()
	if err != nil {
		unmap()
		return s, nil, err
	}
	end = func() { unmap(); m.Close() }
	var parts callbuf.Extents
	for _, part := range [][]grant.Ref{refs[:front], refs[front:]} {
		if len(part) == 0 {
			continue
		}
		at, err := m.Add(grant.Domain(d), part)
		if err != nil {
			end()
			return s, nil, err
		}
		parts = append(parts, callbuf.Extent{Offset: at, Bytes: uint64(len(part)) * grant.PageBytes})
	}
	return hub.Segment{File: m.File, Parts: parts, Header: header}, end, nil
}
