package main

import (
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

// scribble spoils the region for some seconds, as the machine's root: first the control area
// and the segments of running programs, with numbers that almost make sense, then, for the last
// third, the file system under them.
func scribble(seconds int) error {
	seed := uint64(time.Now().UnixNano())
	fmt.Println("seed", seed)
	s := scribbler{rng: rand.New(rand.NewPCG(seed, 0))}
	begin, whole := time.Now(), time.Duration(seconds)*time.Second
	if err := s.find(); err != nil {
		return err
	}
	for n := 0; time.Since(begin) < whole; n++ {
		switch {
		case n%64 == 0:
			s.find() // segments come and go
		case n%8 == 0:
			s.pointer()
		case time.Since(begin) > whole*2/3 && n%16 == 3:
			s.device()
		default:
			s.memory()
		}
		s.writes++
	}
	fmt.Println("writes", s.writes)
	return nil
}

type scribbler struct {
	rng    *rand.Rand
	files  map[string][]byte // mapped; the control area first of all
	pmem   *os.File
	writes int
}

// find maps what there is now.
func (s *scribbler) find() error {
	if s.pmem == nil {
		all, _ := filepath.Glob("/dev/pmem*")
		if len(all) == 0 {
			return errors.New("no region")
		}
		var err error
		if s.pmem, err = os.OpenFile(all[0], os.O_RDWR|unix.O_DIRECT, 0); err != nil {
			return err
		}
		s.files = map[string][]byte{}
	}
	names, err := filepath.Glob(region + "/*")
	for _, name := range names {
		if s.files[name] != nil {
			continue
		}
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

// number is one that somebody may stumble over.
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

// memory writes into the control area or a segment.
func (s *scribbler) memory() {
	for name, mem := range s.files { // one by chance
		if filepath.Base(name) == "control" && s.rng.IntN(2) == 0 {
			s.message(mem)
			return
		}
		at := s.rng.IntN(len(mem) - 8)
		if s.rng.IntN(4) > 0 {
			at = s.rng.IntN(4096/64) * 64 // where the words are that both sides look at
		}
		binary.LittleEndian.PutUint64(mem[at:], s.number())
		return
	}
}

// message puts something like a message into the ring, and moves the ring's words.
func (s *scribbler) message(control []byte) {
	slot := control[wire.PageBytes+512*s.rng.IntN(2*wire.Slots):][:512]
	binary.LittleEndian.PutUint16(slot, uint16(s.rng.IntN(10)))
	binary.LittleEndian.PutUint16(slot[2:], uint16(s.rng.IntN(520)))
	binary.LittleEndian.PutUint32(slot[4:], uint32(s.rng.IntN(8)))
	for at := 8; at < 64; at += 8 {
		binary.LittleEndian.PutUint64(slot[at:], s.number())
	}
	for _, word := range []int{0x140, 0x200} { // sent up, taken down
		n := binary.LittleEndian.Uint32(control[word:])
		binary.LittleEndian.PutUint32(control[word:], n+uint32(s.rng.IntN(3)))
	}
}

// pointer tells the host of another control area, or of none.
func (s *scribbler) pointer() {
	size, err := s.pmem.Seek(0, 2)
	if err != nil {
		return
	}
	p := wire.Pointer{Offset: s.number() &^ 4095, Boot: s.number()}
	if s.rng.IntN(2) == 0 {
		p.Offset = uint64(s.rng.Int64N(size)) &^ 4095
	}
	b := p.Append(nil)
	if s.rng.IntN(4) == 0 {
		b[s.rng.IntN(32)] ^= 1
	}
	s.write(b, size-wire.PageBytes+wire.PointerOffset)
}

// device writes into the block device, mostly where the file system keeps its own.
func (s *scribbler) device() {
	size, err := s.pmem.Seek(0, 2)
	if err != nil {
		return
	}
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

// write is direct: from memory that is aligned.
func (s *scribbler) write(b []byte, at int64) {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return
	}
	defer unix.Munmap(page)
	copy(page, b)
	s.pmem.WriteAt(page[:512], at)
}
