package engine

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The lengths of the pages in bytes.
const (
	enginesSize = (int(unsafe.Sizeof(enginesLayout{})) + 4095) &^ 4095
	memorySize  = (int(unsafe.Sizeof(memoryLayout{})) + 4095) &^ 4095
)

// newMemfd creates a zeroed memfd with a sealed length.
func newMemfd(name string, size int) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// newFile creates a zeroed file with all of its blocks allocated: a process that touches a missing block of a full file
// system is killed.
func newFile(path string, size int) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	if _, err = unix.Pwrite(fd, make([]byte, size), 0); err != nil {
		unix.Close(fd)
		unix.Unlink(path)
		return -1, err
	}
	return fd, nil
}

// checkFile checks that fd has size bytes.
func checkFile(fd, size int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Size < int64(size) {
		return fmt.Errorf("%d bytes: want at least %d", st.Size, size)
	}
	return nil
}

// checkMemfd checks that an access to size bytes of fd can't fault later.
func checkMemfd(fd, size int) error {
	if err := checkFile(fd, size); err != nil {
		return err
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return err
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("seals %#x: want a file that can't shrink", seals)
	}
	return nil
}

// mapFile maps fd, or closes it. The mapping is page-aligned, holds no Go pointers, and stays until it is unmapped, so that it may
// be used as a layout that is not longer.
func mapFile(fd, size int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map engine page: %w", err)
	}
	return mem, nil
}

func mapEngines(fd int) (*Engines, error) {
	mem, err := mapFile(fd, enginesSize)
	if err != nil {
		return nil, err
	}
	e := &Engines{mem: mem, l: (*enginesLayout)(unsafe.Pointer(&mem[0]))}
	e.init(fd)
	return e, nil
}

func mapMemory(fd int) (*Memory, error) {
	mem, err := mapFile(fd, memorySize)
	if err != nil {
		return nil, err
	}
	m := &Memory{mem: mem, l: (*memoryLayout)(unsafe.Pointer(&mem[0]))}
	m.init(fd)
	return m, nil
}

// Close unmaps the page. Neither it nor a Worker of it may be in use any more.
func (e *Engines) Close() error {
	e.l = nil
	err := unix.Munmap(e.mem)
	if e.fd >= 0 {
		err = firstError(err, unix.Close(e.fd))
	}
	return err
}

// Close unmaps the page. Neither it nor a Worker of it may be in use any more.
func (m *Memory) Close() error {
	m.l = nil
	return firstError(unix.Munmap(m.mem), unix.Close(m.fd))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// futexWait sleeps while *word is 1, for at most ns nanoseconds. It may return early.
func futexWait(word *atomic.Uint32, ns int64) (timedOut bool) {
	ts := unix.NsecToTimespec(ns)
	_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 0 /* FUTEX_WAIT, shared */, 1,
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	return e == unix.ETIMEDOUT
}

// futexWaitAt sleeps while *word is a value, for at most ns nanoseconds. It may return early.
func futexWaitAt(word *atomic.Uint32, value uint32, ns int64) {
	ts := unix.NsecToTimespec(ns)
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 0 /* FUTEX_WAIT, shared */, uintptr(value),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// futexWakeAll wakes all threads that sleep on word.
func futexWakeAll(word *atomic.Uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 1 /* FUTEX_WAKE, shared */, 1<<30, 0, 0, 0)
}

// futexWake wakes one thread that sleeps on word.
func futexWake(word *atomic.Uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 1 /* FUTEX_WAKE, shared */, 1, 0, 0, 0)
}
