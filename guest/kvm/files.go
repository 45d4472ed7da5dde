package kvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/region"
	"pegasus/guest/agent"
)

// tailBytes is the space behind the file system, which contains the last page.
const tailBytes = 64 << 10

// files is the file system on the region: the memory of its files is shared with the host.
type files struct {
	device *device
	dir    string
}

func (a *files) Name() string  { return a.device.path }
func (a *files) Bytes() uint64 { return a.device.bytes }
func (a *files) Shared() bool  { return false }
func (a *files) Gone() error   { return nil } // it cannot be unplugged
func (a *files) Close()        {}

func (a *files) mark() ([]byte, error)              { return readMark(a.device.path) }
func (a *files) pointer() (region.Pointer, error)   { return a.device.pointer() }
func (a *files) setPointer(p *region.Pointer) error { return a.device.setPointer(p) }

// clear makes an empty file system on the region and mounts it; if an earlier agent has mounted one, it removes that
// one's files instead.
func (a *files) clear() error {
	if err := os.MkdirAll(filepath.Dir(a.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(a.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	mounted, err := isMounted(a.dir)
	if err != nil {
		return err
	}
	if mounted {
		return a.removeAll()
	}
	d := a.device
	if err := mkfs(d.path, (d.bytes-tailBytes)/4096); err != nil {
		return err
	}
	if err := unix.Mount(d.path, a.dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOATIME, "dax=always"); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("mount %s: this kernel has no ext4", d.path)
		}
		return fmt.Errorf("mount %s with dax: %w", d.path, err)
	}
	return os.Chmod(a.dir, 0o700) // the root of the new file system, not the mount point
}

func isMounted(dir string) (bool, error) {
	var in, above unix.Stat_t
	if err := unix.Stat(dir, &in); err != nil {
		return false, err
	}
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
		return false, err
	}
	return in.Dev != above.Dev, nil
}

// removeAll removes all files. The memory of a file that is still mapped is freed when its last process has ended.
func (a *files) removeAll() error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := a.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *files) Remove(name string) error {
	path := filepath.Join(a.dir, name)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	err = setImmutable(f, false)
	f.Close()
	return errors.Join(err, os.Remove(path))
}

// regionFile is a file of the region.
type regionFile struct {
	*os.File
	parts callbuf.Extents // its ranges in the region
}

// Create makes a file of zeros. The receiving process cannot change the file's size or place.
func (a *files) Create(name string, bytes uint64) (*agent.Allocation, error) {
	f, err := a.make(name, bytes)
	if err != nil {
		return nil, err
	}
	where, err := lend(f.parts)
	if err == nil {
		err = setImmutable(f.File, true)
	}
	if err != nil {
		f.discard()
		return nil, err
	}
	return &agent.Allocation{File: f.File, Where: where}, nil
}

// make makes a file of zeros that only the agent's user can open.
func (a *files) make(name string, bytes uint64) (*regionFile, error) {
	path := filepath.Join(a.dir, name)
	o, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	f := &regionFile{File: o}
	if err = f.fill(bytes); err == nil {
		f.parts, err = a.places(o, bytes)
	}
	if err != nil {
		f.discard()
		return nil, err
	}
	return f, nil
}

// fill allocates a file's memory and fills it with zeros.
func (f *regionFile) fill(bytes uint64) error {
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(bytes)); err != nil {
		return fmt.Errorf("%d bytes of the region: %w", bytes, err)
	}
	if err := zero(f.File, bytes); err != nil {
		return err
	}
	return f.Sync()
}

// zero writes zeros: allocation alone is not enough. Memory that was only allocated is cleared on its first access in
// this machine, after the host has written to it.
func zero(f *os.File, bytes uint64) error {
	zeros := make([]byte, 1<<20)
	for at := uint64(0); at < bytes; at += uint64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(uint64(len(zeros)), bytes-at)], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// places returns a file's ranges in the region.
func (a *files) places(f *os.File, bytes uint64) (callbuf.Extents, error) {
	on, err := extents(f)
	if err != nil {
		return nil, err
	}
	for i := range on {
		on[i].Offset += a.device.offset
	}
	if got := on.Bytes(); got != bytes {
		return nil, fmt.Errorf("a file of %d bytes has %d on the region", bytes, got)
	}
	return on, nil
}

// discard removes a file that no process uses any more.
func (f *regionFile) discard() error {
	err := errors.Join(setImmutable(f.File, false), os.Remove(f.Name()))
	return errors.Join(err, f.Close())
}

// controlName is the file with the control area.
const controlName = "control"

// controlArea makes that file, and maps it.
func (a *files) controlArea() (mem []byte, offset uint64, err error) {
	f, err := a.make(controlName, region.ControlBytes)
	if err != nil {
		return nil, 0, err
	}
	return f.mapControl()
}

// resume keeps the files, and maps the previous agent's control area.
func (a *files) resume(agent.Record) (mem []byte, offset uint64, err error) {
	if mounted, err := isMounted(a.dir); err != nil || !mounted {
		return nil, 0, errors.Join(err, errors.New("the region isn't mounted"))
	}
	o, err := os.OpenFile(filepath.Join(a.dir, controlName), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, err
	}
	f := &regionFile{File: o}
	if f.parts, err = a.places(o, region.ControlBytes); err != nil {
		o.Close()
		return nil, 0, err
	}
	return f.mapControl()
}

func (f *regionFile) mapControl() (mem []byte, offset uint64, err error) {
	defer f.Close() // the mapping stays
	if len(f.parts) != 1 {
		return nil, 0, fmt.Errorf("the control area lies in %d pieces", len(f.parts))
	}
	mem, err = callbuf.Map(f.File, region.ControlBytes)
	return mem, f.parts[0].Offset, err
}
