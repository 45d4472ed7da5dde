package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
)

// noMemory is a SharedMemory without function.
type noMemory struct {
	SharedMemory
	most uint64
}

func (noMemory) Shared() bool        { return false }
func (noMemory) Remove(string) error { return os.ErrNotExist }
func (g noMemory) MostArena() uint64 { return g.most }
func (noMemory) Close()              {}

// Memory that is unplugged ends its session, not the agent.
func TestUnplugged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(path, make([]byte, region.PageBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := callbuf.Map(f, region.PageBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer callbuf.Unmap(mem)
	use := func() (err error) {
		defer region.CatchFault(&err, ErrUnplugged)()
		mem[0]++
		return nil
	}
	if err := use(); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := use(); !errors.Is(err, ErrUnplugged) {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a mistake of ours is taken for that")
		}
	}()
	func() (err error) {
		defer region.CatchFault(&err, ErrUnplugged)()
		var nobody *process
		_ = nobody.number
		return nil
	}()
}

// A session that has ended does nothing more, and requests to it fail.
func TestOver(t *testing.T) {
	area, err := unix.Mmap(-1, 0, region.ControlBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{
		agent: Agent{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, memory: noMemory{}, area: area,
		events: make(chan func()), over: make(chan struct{}), processes: map[uint32]*process{},
	}
	s.end()
	if s.post(func() {}) {
		t.Error("somebody does it")
	}
}

// fleeting is memory that cannot be announced to the host.
type fleeting struct {
	noMemory
	area []byte
}

var errMute = errors.New("nobody can be told")

func (f *fleeting) Find(*FDStore) (SharedMemory, error) { return f, nil }
func (f *fleeting) OpenBell() (bell.Conn, error)        { return nil, errMute }
func (f *fleeting) Resume(Record) ([]byte, error)       { return nil, errMute }
func (f *fleeting) Announce(uint64) error               { return errMute }

func (f *fleeting) Begin() (area []byte, err error) {
	f.area, err = unix.Mmap(-1, 0, region.ControlBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return f.area, err
}

// A session that fails to start leaves nothing mapped: the agent retries.
func TestNothingStays(t *testing.T) {
	f := &fleeting{}
	a := Agent{Machine: f, Dir: filepath.Join(t.TempDir(), "region"), Log: slog.New(slog.DiscardHandler)}
	port := bell.Listen(t.Context(), f.OpenBell, false, func(error) {})
	if _, err := a.prepare(port, &FDStore{}); !errors.Is(err, errMute) {
		t.Fatal(err)
	}
	if err := unix.Msync(f.area, unix.MS_ASYNC); err != unix.ENOMEM {
		t.Errorf("the control area is mapped still: %v", err)
		unix.Munmap(f.area)
	}
}
