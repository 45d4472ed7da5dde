package kvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	wire "pegasus/callbuf/region"
)

// regionUnit is what a region's size is a multiple of: the guest's kernel maps
// persistent memory in such pieces.
const regionUnit = 2 << 20

// unfinished ends the name of a region that is being made.
const unfinished = ".new"

// minRegion holds the guest's own bookkeeping and a segment.
const minRegion = 16 << 20

// CheckSize says why a region can't have a size.
func CheckSize(bytes uint64) error {
	if bytes < minRegion || bytes%regionUnit != 0 {
		return errors.New("want a multiple of 2 MiB, from 16 MiB on")
	}
	return nil
}

// MakeRegion makes the file that becomes a machine's NVDIMM. All of its memory is
// taken at once: a guest that found none left later would be killed by a bus error.
// The file's group may write to it, for QEMU; -1 leaves the group as it is.
func MakeRegion(path string, bytes uint64, group int) (err error) {
	if err := CheckSize(bytes); err != nil {
		return fmt.Errorf("region of %d bytes: %w", bytes, err)
	}
	making := path + unfinished
	os.Remove(making)
	f, err := os.OpenFile(making, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	defer f.Close()
	defer func() {
		if err != nil {
			os.Remove(making)
		}
	}()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(bytes)); err != nil {
		return fmt.Errorf("make region %s of %d MiB: %w%s", path, bytes>>20, err, room(filepath.Dir(path)))
	}
	if _, err := f.WriteAt(wire.Mark(), int64(bytes-wire.PageBytes)); err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	if err := f.Chown(-1, group); err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	if err := f.Chmod(0o660); err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	if err := os.Rename(making, path); err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	return nil
}

// room says how much a directory has.
func room(dir string) string {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return ""
	}
	return fmt.Sprintf(": there is room for %d MiB; attach the machine with less --memory, or mount more there", fs.Bavail*uint64(fs.Bsize)>>20)
}

// MakeDir makes the directory of regions, and refuses one in which somebody else could
// put files: it may lie where all may write, and a file there is taken for a machine.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory: remove it", dir)
	case int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0:
		return fmt.Errorf("%s belongs to user %d with mode %#o, so that others could put machines there: remove it", dir, st.Uid, st.Mode&0o777)
	}
	return nil
}

// memory is a region as its hub has it.
type memory struct {
	file *os.File
	mem  []byte
}

var errTaken = errors.New("it has a hub already")

// openMemory maps a region. A region has one hub: it locks the file. The workers that it
// is lent to have the same open file, and so the same lock: after the death of a hub there
// is no other before they have all gone.
func openMemory(path string) (m *memory, err error) {
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
	m = &memory{f, mem}
	if !wire.Marked(m.lastPage()) {
		m.close()
		return nil, fmt.Errorf("region %s: it isn't marked as one", path)
	}
	return m, nil
}

func (m *memory) close() {
	callbuf.Unmap(m.mem)
	m.file.Close()
}

func (m *memory) bytes() uint64 { return uint64(len(m.mem)) }

func (m *memory) lastPage() []byte { return m.mem[len(m.mem)-wire.PageBytes:] }

// pointer is what the guest says of its control area now.
func (m *memory) pointer() (wire.Pointer, error) {
	var b [wire.SectorBytes]byte
	copy(b[:], m.lastPage()[wire.PointerOffset:])
	return wire.ParsePointer(b[:], m.bytes())
}

// setUsed tells the agent whether anything of the region is used.
func (m *memory) setUsed(yes bool) {
	var word [8]byte
	if yes {
		word[0] = 1
	}
	copy(m.lastPage()[wire.InUse:], word[:])
}

// deserted says whether the region's file is gone by name, or is another's: the machine was stopped.
// It may have another name still, by which QEMU has it.
func (m *memory) deserted() bool {
	var ours, there unix.Stat_t
	if unix.Fstat(int(m.file.Fd()), &ours) != nil {
		return false
	}
	err := unix.Lstat(m.file.Name(), &there)
	return errors.Is(err, unix.ENOENT) || err == nil && (there.Ino != ours.Ino || there.Dev != ours.Dev)
}
