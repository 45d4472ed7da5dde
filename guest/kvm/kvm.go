// Package kvm implements the memory that a virtual machine under QEMU shares with its host: an NVDIMM with a file
// system on it, or a PCI device, and a virtio-serial port.
//
// Callers: the agent (guest/agent), for which `pegasus-guest agent` supplies this package's Machine.
//
// Trust boundary: it trusts the host. On an NVDIMM it isolates the machine's processes from each other: each has a file
// of its own, which it can map and write, but neither extend nor truncate, and no access to the files of others.
package kvm

import (
	"errors"
	"fmt"
	"time"

	"pegasus/callbuf"
	"pegasus/callbuf/region"
	"pegasus/guest/agent"
)

// Machine is a virtual machine under QEMU.
type Machine struct {
	Dir string // where the file system is mounted
}

// Find finds the machine's region, by the host's mark.
func (m Machine) Find(*agent.FDStore) (agent.SharedMemory, error) {
	d, err := openDevice()
	if err == nil {
		return &sharedMemory{memory: &files{d, m.Dir}}, nil
	}
	b, other := openBar()
	switch {
	case other == nil:
		return &sharedMemory{memory: b}, nil
	case errors.Is(err, agent.ErrNone):
		return nil, other
	case errors.Is(other, agent.ErrNone):
		return nil, err
	}
	return nil, fmt.Errorf("%w; %w", err, other)
}

// sharedMemory implements agent.SharedMemory on a memory.
type sharedMemory struct {
	memory
	control uint64 // offset of the control area in the region
}

// memory is the region, either as files or as a PCI device.
type memory interface {
	Name() string
	Bytes() uint64
	Shared() bool
	Create(name string, bytes uint64) (*agent.Allocation, error)
	Remove(name string) error
	Gone() error
	Close()

	// mark returns the last page as the host has written it; pointer and setPointer access the guest's data there.
	mark() ([]byte, error)
	pointer() (region.Pointer, error)
	setPointer(*region.Pointer) error // nil: withdraws the control area

	// clear frees all allocations, and controlArea creates and maps the control area.
	clear() error
	controlArea() (mem []byte, offset uint64, err error)
	// resume keeps the allocations of the previous agent's processes, and maps its control area.
	resume(agent.Record) (mem []byte, offset uint64, err error)
}

// Begin frees the region and creates a control area.
func (g *sharedMemory) Begin() (control []byte, err error) {
	if err := release(g.memory); err != nil {
		return nil, err
	}
	if err := g.clear(); err != nil {
		return nil, err
	}
	if control, g.control, err = g.controlArea(); err != nil {
		return nil, fmt.Errorf("control area: %w", err)
	}
	return control, nil
}

// Announce publishes the location of the control area to the host.
func (g *sharedMemory) Announce(boot uint64) error {
	return g.setPointer(&region.Pointer{Offset: g.control, Boot: boot})
}

// Resume maps the previous agent's control area.
func (g *sharedMemory) Resume(r agent.Record) (control []byte, err error) {
	if control, g.control, err = g.resume(r); err != nil {
		return nil, err
	}
	published, err := g.pointer()
	if err == nil && published.Offset != g.control {
		err = errors.New("the host knows of another control area")
	}
	if err != nil {
		callbuf.Unmap(control)
		return nil, err
	}
	return control, nil
}

// NoRoom returns the message of a failed allocation.
func (*sharedMemory) NoRoom() region.Message {
	m, _ := lend(nil)
	return m
}

// Leave has no effect: all of it stays for the next agent.
func (*sharedMemory) Leave() error { return nil }

// MostArena returns 0: the host, which made the region, decides.
func (*sharedMemory) MostArena() uint64 { return 0 }

// lend returns the message with an allocation's location.
func lend(parts callbuf.Extents) (region.Message, error) {
	where, err := region.LendBody(parts)
	return region.Message{Kind: region.Lend, Body: where}, err
}

// useTime is how long the host may take to release the previous agent's allocations.
const useTime = 10 * time.Second

// release withdraws the control area, and blocks until the host uses no part of the region any more: memory that is
// free here must be free there.
func release(m memory) error {
	if err := m.setPointer(nil); err != nil {
		return err
	}
	for end := time.Now().Add(useTime); ; time.Sleep(20 * time.Millisecond) {
		b, err := m.mark()
		if err != nil || !region.Used(b) {
			return err
		}
		if time.Now().After(end) {
			return errors.New("the host doesn't let go of the region: is pegasusd running there?")
		}
	}
}
