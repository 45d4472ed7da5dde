package kvm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/region"
	"pegasus/guest/agent"
)

// device is the region in the guest's kernel: a block device with mappable memory, and its offset in the region.
type device struct {
	path   string
	bytes  uint64
	offset uint64 // of its first byte in the region
}

const (
	ndDevices = "/sys/bus/nd/devices"
	ndDriver  = "/sys/bus/nd/drivers/nd_pmem"
)

// deviceTime is how long the kernel may take to create a device.
const deviceTime = 10 * time.Second

// openDevice finds the machine's region among its NVDIMMs, by the host's mark, and creates from it a device with
// memory that can be mapped. Other NVDIMMs are not touched.
func openDevice() (*device, error) {
	spaces, err := filepath.Glob(ndDevices + "/namespace*")
	if err != nil {
		return nil, err
	}
	if len(spaces) == 0 {
		loadModules()
		return nil, agent.ErrNone
	}
	var last error
	for _, path := range spaces {
		d, err := tryNamespace(filepath.Base(path))
		if err == nil {
			return d, nil
		}
		last = fmt.Errorf("no region of Pegasus: %s: %w", filepath.Base(path), err)
	}
	return nil, last
}

// loadModules makes the kernel probe for NVDIMMs, if it did not at boot. Modules that are built in or missing are no
// error here.
var loadModules = sync.OnceFunc(func() { agent.Command(agent.ModulesTime, "modprobe", "-a", "-q", "nfit", "nd_pmem") })

func tryNamespace(name string) (*device, error) {
	holder := holderOf(name)
	if err := checkMark(holder); err != nil {
		return nil, err
	}
	if holder == name { // raw: files of a file system on it can't be mapped directly
		if err := claim(name); err != nil {
			return nil, err
		}
		holder = holderOf(name)
	}
	return describe(name, holder)
}

// holderOf returns the device that has a namespace: itself, or its pfn device.
func holderOf(name string) string {
	holder, err := read(name, "holder")
	if err != nil || holder == "" {
		return name
	}
	return holder
}

// read and write access a device's attributes in sysfs.
func read(device, attribute string) (string, error) {
	b, err := os.ReadFile(filepath.Join(ndDevices, device, attribute))
	return strings.TrimSpace(string(b)), err
}

func write(device, attribute, value string) error {
	return os.WriteFile(filepath.Join(ndDevices, device, attribute), []byte(value), 0)
}

// block returns the block device of a namespace or of its holder.
func block(device string) (string, error) {
	all, err := filepath.Glob(filepath.Join(ndDevices, device, "block/*"))
	if err != nil || len(all) != 1 {
		return "", fmt.Errorf("%s has no block device", device)
	}
	return "/dev/" + filepath.Base(all[0]), nil
}

// checkMark verifies the host's mark in the last page: memory without it belongs to another user.
func checkMark(holder string) error {
	path, err := block(holder)
	if err != nil {
		return err
	}
	b, err := readMark(path)
	if err != nil {
		return err
	}
	if !region.Marked(b) {
		return errUnmarked
	}
	return nil
}

var errUnmarked = errors.New("the host hasn't marked it as a region")

// readMark returns the last page as the host has written it.
func readMark(path string) ([]byte, error) { return readLast(path, 0) }

// pointer returns the published location of the control area.
func (d *device) pointer() (region.Pointer, error) {
	b, err := readLast(d.path, region.PointerOffset)
	if err != nil {
		return region.Pointer{}, err
	}
	return region.ParsePointer(b, d.offset+d.bytes)
}

// readLast returns a sector of the last page.
func readLast(path string, offset int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	var b [region.SectorBytes]byte
	return b[:], direct(b[:], func(page []byte) error {
		_, err := f.ReadAt(page, size-region.PageBytes+offset)
		return err
	})
}

// direct reads or writes a sector through memory aligned for O_DIRECT.
func direct(sector []byte, do func(aligned []byte) error) error {
	page, err := unix.Mmap(-1, 0, region.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(page)
	copy(page, sector)
	err = do(page[:len(sector)])
	copy(sector, page)
	return err
}

// claim puts a raw namespace into pfn mode, in which the kernel has page structures for its memory, stored in the
// machine's own.
func claim(name string) error {
	parent, err := filepath.EvalSymlinks(filepath.Join(ndDevices, name))
	if err != nil {
		return err
	}
	pfn, err := read(filepath.Base(filepath.Dir(parent)), "pfn_seed")
	if err != nil {
		return fmt.Errorf("this kernel can't map persistent memory (no pfn_seed): %w", err)
	}
	if err := os.WriteFile(ndDriver+"/unbind", []byte(name), 0); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("unbind: %w", err)
	}
	for _, s := range [...]struct{ attribute, value string }{
		{"uuid", newUUID()}, {"mode", "ram"}, {"align", "4096"}, {"namespace", name},
	} {
		if err := write(pfn, s.attribute, s.value); err != nil {
			return fmt.Errorf("%s of %s: %w", s.attribute, pfn, err)
		}
	}
	if err := os.WriteFile(ndDriver+"/bind", []byte(pfn), 0); err != nil {
		return fmt.Errorf("bind %s: %w", pfn, err)
	}
	return nil
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// describe waits for the block device and determines its offset.
func describe(name, holder string) (*device, error) {
	if holder == name {
		return nil, errors.New("the kernel didn't take it as persistent memory that can be mapped")
	}
	from, err := number(name, "resource")
	if err != nil {
		return nil, err
	}
	data, err := number(holder, "resource")
	if err != nil {
		return nil, err
	}
	size, err := number(holder, "size")
	if err != nil {
		return nil, err
	}
	if data < from {
		return nil, fmt.Errorf("its memory at %#x begins before itself at %#x", data, from)
	}
	for end := time.Now().Add(deviceTime); ; time.Sleep(10 * time.Millisecond) {
		path, err := block(holder)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err == nil {
			return &device{path: path, bytes: size, offset: data - from}, nil
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
}

func number(device, attribute string) (uint64, error) {
	text, err := read(device, attribute)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 0, 64)
}

// setPointer publishes the location of the control area; nil withdraws it.
func (d *device) setPointer(p *region.Pointer) error {
	f, err := os.OpenFile(d.path, os.O_RDWR|unix.O_DIRECT|unix.O_SYNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [region.SectorBytes]byte
	if p != nil {
		copy(b[:], p.Append(nil))
	}
	err = direct(b[:], func(sector []byte) error {
		_, err := f.WriteAt(sector, int64(d.bytes-region.PageBytes+region.PointerOffset))
		return err
	})
	if err != nil {
		return fmt.Errorf("tell the host where the control area is: %w", err)
	}
	return nil
}
