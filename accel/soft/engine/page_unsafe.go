package engine

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size is the length of a page in bytes.
const Size = (int(unsafe.Sizeof(layout{})) + 4095) &^ 4095

// newMemfd makes a zeroed memfd whose length can't change any more.
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

// checkMemfd makes sure that touching size bytes of fd can't fault later.
func checkMemfd(fd, size int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return err
	}
	if st.Size < int64(size) || seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%d bytes, seals %#x: want at least %d bytes that can't shrink", st.Size, seals, size)
	}
	return nil
}

// mapPage maps fd. The cast is right because the mapping is page-aligned, at
// least as long as layout, holds no Go pointers, and stays until Close.
func mapPage(fd int) (*Page, error) {
	mem, err := unix.Mmap(fd, 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map engine page: %w", err)
	}
	return &Page{fd: fd, mem: mem, l: (*layout)(unsafe.Pointer(&mem[0]))}, nil
}

// Close unmaps the page. Nobody may use it, or a Worker of it, any more.
func (p *Page) Close() error {
	p.l = nil
	return firstError(unix.Munmap(p.mem), unix.Close(p.fd))
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

// futexWake wakes whoever sleeps on word.
func futexWake(word *atomic.Uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 1 /* FUTEX_WAKE, shared */, 1, 0, 0, 0)
}
