package kvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/hub"
)

// Memory is a mapped region. It implements hub.Memory.
type Memory struct {
	file *os.File
	mem  []byte
	at   wire.Pointer // of the control area that was taken
	lent table
	port portServer
}

var _ hub.Memory = (*Memory)(nil)

var errTaken = errors.New("it has a hub already")

// Open maps a region. A region has one hub, which locks the file. The workers that it is lent to share the open file,
// and so the lock: after the death of a hub there is no other before they have all ended.
func Open(path string) (m *Memory, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errTaken
		}
		return nil, fmt.Errorf("region %s: %w", path, err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < minRegion || st.Size()%regionUnit != 0 {
		return nil, fmt.Errorf("region %s has %d bytes: not one that was made for us", path, st.Size())
	}
	mem, err := callbuf.Map(f, uint64(st.Size()))
	if err != nil {
		return nil, err
	}
	m = &Memory{file: f, mem: mem, port: portServer{region: f}}
	if !wire.Marked(m.lastPage()) {
		m.Close()
		return nil, fmt.Errorf("region %s: it isn't marked as one", path)
	}
	return m, nil
}

// Close releases the region.
func (m *Memory) Close() {
	m.port.close()
	callbuf.Unmap(m.mem)
	m.file.Close()
}

// Bytes returns its size.
func (m *Memory) Bytes() uint64 { return uint64(len(m.mem)) }

func (m *Memory) lastPage() []byte { return m.mem[len(m.mem)-wire.PageBytes:] }

// pointer returns the guest's current pointer to its control area.
func (m *Memory) pointer() (wire.Pointer, error) {
	var b [wire.SectorBytes]byte
	copy(b[:], m.lastPage()[wire.PointerOffset:])
	return wire.ParsePointer(b[:], m.Bytes())
}

// setUsed records for the agent whether the region is in use.
func (m *Memory) setUsed(yes bool) {
	var word [8]byte
	if yes {
		word[0] = 1
	}
	copy(m.lastPage()[wire.InUse:], word[:])
}

// Take implements hub.Memory.
func (m *Memory) Take() []byte {
	p, err := m.pointer()
	m.setUsed(err == nil)
	if err != nil {
		return nil
	}
	m.at, m.lent = p, table{limit: m.Bytes() - wire.PageBytes}
	if err := m.lent.add(nobody, callbuf.Extents{{Offset: p.Offset, Bytes: wire.ControlBytes}}); err != nil {
		return nil // unreachable: the pointer was checked
	}
	return m.mem[p.Offset : p.Offset+wire.ControlBytes]
}

// nobody is an invalid process number, which owns the control area.
const nobody = 0

// Same implements hub.Memory.
func (m *Memory) Same() bool {
	p, _ := m.pointer()
	return p == m.at
}

// Lend implements hub.Memory.
func (m *Memory) Lend(to uint32, l callbuf.Layout, answer wire.Message) (s hub.Segment, err error) {
	if answer.Kind != wire.Lend || to == nobody {
		return s, fmt.Errorf("message %v for process %d: not allowed with a lent region", answer.Kind, to)
	}
	parts, err := wire.ParseLend(answer.Body)
	if err != nil {
		return s, err
	}
	if len(parts) == 0 {
		return s, hub.ErrNoRoom
	}
	if err := parts.Check(l.SegmentBytes, m.Bytes()); err != nil {
		return s, err
	}
	if err := m.lent.add(to, parts); err != nil {
		return s, err
	}
	return hub.Segment{File: m.file, Parts: parts, Header: m.mem[parts[0].Offset:][:wire.PageBytes]}, nil
}

// TakeBack implements hub.Memory.
func (m *Memory) TakeBack(to uint32) {
	if to != nobody {
		m.lent.takeBack(to)
	}
}

// NoRoom implements hub.Memory.
func (m *Memory) NoRoom(bytes uint64) error {
	return fmt.Errorf("the machine's region has no room for a call buffer of %d bytes: give it a larger one, or its domain a smaller arena", bytes)
}

// MostArena implements hub.Memory: the region's size is the only limit.
func (m *Memory) MostArena() uint64 { return 0 }

// Rouses implements hub.Memory.
func (m *Memory) Rouses() bool { return true }

// Port implements hub.Memory.
func (m *Memory) Port() (open func() (bell.Conn, error), reopen bool) {
	return func() (bell.Conn, error) {
		if path, serves := servedPort(m.file.Name()); serves {
			return m.port.accept(path)
		}
		c, err := dialPort(m.file.Name())
		if err != nil {
			return nil, err
		}
		return c, nil
	}, true
}

// Watch implements hub.Memory. A region that comes or goes may be this one.
func (m *Memory) Watch(ctx context.Context, changed func()) error {
	changes, err := watch(ctx, filepath.Dir(m.file.Name()))
	if err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-changes:
				changed()
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// Over implements hub.Memory.
func (m *Memory) Over() string {
	if m.deserted() {
		return "the region is gone"
	}
	return ""
}

// deserted reports whether the region's path is missing, or another file: the machine was stopped. The file may still
// have another name, which QEMU uses.
func (m *Memory) deserted() bool {
	var ours, there unix.Stat_t
	if unix.Fstat(int(m.file.Fd()), &ours) != nil {
		return false
	}
	err := unix.Lstat(m.file.Name(), &there)
	return errors.Is(err, unix.ENOENT) || err == nil && (there.Ino != ours.Ino || there.Dev != ours.Dev)
}
