package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	wire "pegasus/callbuf/region"
)

// scribble corrupts the region for some seconds, as the machine's root, by turns, so that there
// is always something left to corrupt: the segments of running programs, the rings of agent and hub, and
// the pointer to these; with numbers that almost make sense. At last it corrupts the file
// system under them.
func scribble(seconds int) error {
	seed := uint64(time.Now().UnixNano())
	fmt.Println("seed", seed)
	s := scribbler{rng: rand.New(rand.NewPCG(seed, 0))}
	begin, whole := time.Now(), time.Duration(seconds)*time.Second
	if err := s.find(); err != nil {
		return err
	}
	size := int64(len(s.bar))
	if s.bar == nil {
		var err error
		if size, err = s.pmem.Seek(0, 2); err != nil {
			return err
		}
	}
	at := size - wire.PageBytes + wire.PointerOffset
	turns := []func(){s.segment, s.segment, s.control, func() { s.pointer(size, at) }}
	for turn := 0; time.Since(begin) < whole; turn++ {
		s.find() // segments come and go, and agents
		act := turns[turn%len(turns)]
		if time.Since(begin) > whole*5/6 {
			act = func() { s.device(size) }
		}
		honest := s.read(at)
		for end := time.Now().Add(whole / 36); time.Now().Before(end); s.writes++ {
			act()
		}
		s.write(honest, at)
	}
	fmt.Println("writes", s.writes)
	return nil
}

type scribbler struct {
	rng    *rand.Rand
	files  map[string][]byte // mapped
	pmem   *os.File
	bar    []byte // instead: all of a PCI device, mapped
	writes int
}

// find maps the present parts of the region.
func (s *scribbler) find() error {
	if s.bar != nil || s.findBar() {
		s.findParts()
		return nil
	}
	if s.pmem == nil {
		all, _ := filepath.Glob("/dev/pmem*")
		if len(all) == 0 {
			return errors.New("no region")
		}
		var err error
		if s.pmem, err = os.OpenFile(all[0], os.O_RDWR|unix.O_DIRECT, 0); err != nil {
			return err
		}
	}
	for _, mem := range s.files {
		unix.Munmap(mem)
	}
	s.files = map[string][]byte{}
	names, err := filepath.Glob(region + "/*")
	for _, name := range names {
		if mem := mapFile(name); mem != nil {
			s.files[name] = mem
		}
	}
	return err
}

// mapFile maps a file, immutable or not, or nothing.
func mapFile(name string) []byte {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^0x10)
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return nil
	}
	w, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	defer w.Close()
	mem, err := unix.Mmap(int(w.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return mem
}

// number returns a number that a careless check may accept.
func (s *scribbler) number() uint64 {
	switch s.rng.IntN(4) {
	case 0:
		return uint64(s.rng.IntN(20))
	case 1:
		return ^uint64(s.rng.IntN(20))
	case 2:
		return 1 << s.rng.IntN(64)
	default:
		return s.rng.Uint64()
	}
}

// segment writes into one of the segments, mostly into the words that both sides read.
func (s *scribbler) segment() {
	for name, mem := range s.files { // one by chance
		if filepath.Base(name) == controlName {
			continue
		}
		at := s.rng.IntN(4096/64) * 64
		if s.rng.IntN(4) == 0 {
			at = s.rng.IntN(len(mem) - 8)
		}
		binary.LittleEndian.PutUint64(mem[at:], s.number())
		return
	}
}

const controlName = "control"

// control writes a random message into a ring, and advances the rings' words; seldom it writes another word.
func (s *scribbler) control() {
	area := s.files[filepath.Join(region, controlName)]
	if len(area) < wire.ControlBytes {
		return
	}
	slot := area[wire.PageBytes+512*s.rng.IntN(2*wire.Slots):][:512]
	binary.LittleEndian.PutUint16(slot, uint16(s.rng.IntN(10)))
	binary.LittleEndian.PutUint16(slot[2:], uint16(s.rng.IntN(520)))
	binary.LittleEndian.PutUint32(slot[4:], uint32(s.rng.IntN(8)))
	for at := 8; at < 64; at += 8 {
		binary.LittleEndian.PutUint64(slot[at:], s.number())
	}
	for _, word := range []int{0x140, 0x200} { // sent up, taken down
		n := binary.LittleEndian.Uint32(area[word:])
		binary.LittleEndian.PutUint32(area[word:], n+uint32(s.rng.IntN(3)))
	}
	if s.rng.IntN(1000) == 0 {
		binary.LittleEndian.PutUint64(area[64*s.rng.IntN(16):], s.number())
	}
}

// pointer overwrites the pointer to the control area with that of another area, or with an invalid one.
func (s *scribbler) pointer(size, at int64) {
	p := wire.Pointer{Offset: s.number() &^ 4095, Boot: s.number()}
	if s.rng.IntN(2) == 0 {
		p.Offset = uint64(s.rng.Int64N(size)) &^ 4095
	}
	b := p.Append(nil)
	if s.rng.IntN(4) == 0 {
		b[s.rng.IntN(32)] ^= 1
	}
	s.write(b, at)
}

// device writes into the block device, mostly into the file system's metadata.
func (s *scribbler) device(size int64) {
	at := s.rng.Int64N(size / 512)
	if s.rng.IntN(2) == 0 {
		at = s.rng.Int64N(1 << 12)
	}
	b := make([]byte, 512)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], s.number())
	}
	s.write(b, at*512)
}

// read and write use direct I/O, which needs aligned memory, unless the region is a PCI device.
func (s *scribbler) read(at int64) []byte {
	if s.bar != nil {
		return bytes.Clone(s.bar[at:][:512])
	}
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil
	}
	defer unix.Munmap(page)
	s.pmem.ReadAt(page[:512], at)
	return bytes.Clone(page[:512])
}

func (s *scribbler) write(b []byte, at int64) {
	if s.bar != nil {
		copy(s.bar[at:], b)
		return
	}
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return
	}
	defer unix.Munmap(page)
	copy(page, b)
	s.pmem.WriteAt(page[:512], at)
}
