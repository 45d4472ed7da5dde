package kvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/region"
	"pegasus/guest/agent"
)

// bar is the region as a PCI device, QEMU's ivshmem-plain. Its memory is mapped through sysfs, without a driver or a
// file system. All pieces are parts of one file, which all of their processes have open.
type bar struct {
	path string
	file *os.File
	mem  []byte // the whole region
	room room
}

// FindShared returns the shared-memory devices of the machine at root, by their directories in sysfs.
func FindShared(root string) (found []string) {
	all, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	for _, dir := range all {
		if attribute(dir, "vendor") == "0x1af4" && attribute(dir, "device") == "0x1110" {
			found = append(found, dir)
		}
	}
	return found
}

func attribute(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b))
}

// openBar finds the machine's region among its shared-memory devices, by the host's mark. It writes to no other device.
func openBar() (*bar, error) {
	err := agent.ErrNone
	for _, dir := range FindShared("/") {
		b, why := tryBar(dir)
		if why == nil {
			return b, nil
		}
		err = fmt.Errorf("no region of Pegasus: PCI device %s: %w", filepath.Base(dir), why)
	}
	return nil, err
}

// tryBar maps a device's memory. It is mapped uncached, the kernel's default: write combining would permit the
// processor to reorder writes, too. Most hypervisors override this, and cache the memory.
func tryBar(dir string) (*bar, error) {
	path := filepath.Join(dir, "resource2")
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the kernel had no addresses for its memory when it was plugged in: switch the machine off and start it")
	}
	if err != nil {
		return nil, err
	}
	if st.Size() < minBar || st.Size()%region.PageBytes != 0 {
		return nil, fmt.Errorf("it has %d bytes, too few for a region", st.Size())
	}
	if err := enable(dir); err != nil {
		return nil, err
	}
	marked, err := hasMark(path, st.Size()-region.PageBytes)
	if err == nil && !marked {
		err = errUnmarked
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	mem, err := callbuf.Map(f, uint64(st.Size()))
	if err != nil {
		f.Close()
		return nil, err
	}
	return &bar{path: path, file: f, mem: mem, room: room{bytes: uint64(st.Size()) - region.PageBytes}}, nil
}

// minBar is smaller than any region.
const minBar = 1 << 20

// enable enables a device's memory accesses, which firmware may have left to a driver.
func enable(dir string) error {
	const command, memory = 4, 2 // in PCI's configuration space
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil || len(config) > command && config[command]&memory != 0 {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "enable"), []byte("1"), 0)
}

// hasMark reports whether a page of a file has the host's mark.
func hasMark(path string, at int64) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), at, region.PageBytes, unix.PROT_READ, unix.MAP_SHARED)
	if errors.Is(err, unix.EPERM) {
		return false, errors.New("the kernel is locked down, as by Secure Boot, and lets nobody map it: attach the machine with an NVDIMM")
	}
	if err != nil {
		return false, fmt.Errorf("map %s: %w", path, err)
	}
	defer unix.Munmap(page)
	return region.Marked(page), nil
}

func (b *bar) Name() string  { return b.path }
func (b *bar) Bytes() uint64 { return uint64(len(b.mem)) }
func (b *bar) Shared() bool  { return true }

func (b *bar) lastPage() []byte { return b.mem[len(b.mem)-region.PageBytes:] }

func (b *bar) mark() ([]byte, error) {
	return append([]byte(nil), b.lastPage()[:region.SectorBytes]...), nil
}

func (b *bar) pointer() (region.Pointer, error) {
	var sector [region.SectorBytes]byte
	copy(sector[:], b.lastPage()[region.PointerOffset:])
	return region.ParsePointer(sector[:], b.Bytes())
}

func (b *bar) setPointer(p *region.Pointer) error {
	var sector [region.SectorBytes]byte
	if p != nil {
		copy(sector[:], p.Append(nil))
	}
	copy(b.lastPage()[region.PointerOffset:], sector[:])
	return nil
}

func (b *bar) clear() error {
	b.room.parts = nil
	return nil
}

func (b *bar) controlArea() (mem []byte, offset uint64, err error) {
	e, err := b.room.take(controlName, region.ControlBytes)
	if err != nil {
		return nil, 0, err
	}
	clear(b.part(e))
	return b.mapControl(e)
}

func (b *bar) mapControl(e callbuf.Extent) (mem []byte, offset uint64, err error) {
	mem, err = unix.Mmap(int(b.file.Fd()), int64(e.Offset), int(e.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mem, e.Offset, err
}

// resume keeps the recorded parts. The control area is an agent's first allocation.
func (b *bar) resume(r agent.Record) (mem []byte, offset uint64, err error) {
	b.room.parts = nil
	control := callbuf.Extent{Bytes: region.ControlBytes}
	if err := b.room.keep(controlName, control); err != nil {
		return nil, 0, err
	}
	for name, e := range r.Parts() {
		if err := b.room.keep(name, e); err != nil {
			return nil, 0, err
		}
	}
	return b.mapControl(control)
}

// Create allocates a part, cleared, since it may contain another process's data.
func (b *bar) Create(name string, bytes uint64) (*agent.Allocation, error) {
	e, err := b.room.take(name, bytes)
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(b.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		b.room.give(name)
		return nil, err
	}
	clear(b.part(e))
	where, err := lend(callbuf.Extents{e})
	return &agent.Allocation{File: os.NewFile(uintptr(fd), b.path), Part: &e, Where: where}, err
}

func (b *bar) part(e callbuf.Extent) []byte { return b.mem[e.Offset:][:e.Bytes] }

func (b *bar) Remove(name string) error {
	b.room.give(name)
	return nil
}

func (b *bar) Gone() error {
	ours, err := b.file.Stat()
	if err != nil {
		return agent.ErrUnplugged
	}
	if there, err := os.Stat(b.path); err != nil || !os.SameFile(ours, there) {
		return agent.ErrUnplugged
	}
	return nil
}

func (b *bar) Close() {
	callbuf.Unmap(b.mem)
	b.file.Close()
}
