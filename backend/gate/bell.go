package gate

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

// Bell is the doorbell by which the workers of one accelerator wake its scheduler loop.
type Bell struct {
	file *os.File
	mem  []byte
	at   *bellLayout
}

// NewBell allocates a Bell.
func NewBell() (*Bell, error) {
	f, err := newFile("pegasus-bell", bellBytes)
	if err != nil {
		return nil, err
	}
	mem, err := mapFile(f, bellBytes)
	if err != nil {
		f.Close()
		return nil, err
	}
	b := &Bell{f, mem, bellAt(mem)}
	b.at.magic, b.at.version = bellMagic, bellVersion
	return b, nil
}

// OpenBell maps a Bell that another process allocated, and takes ownership of the file if it returns no error.
func OpenBell(f *os.File) (*Bell, error) {
	mem, err := mapFile(f, bellBytes)
	if err != nil {
		return nil, err
	}
	b := &Bell{f, mem, bellAt(mem)}
	if b.at.magic != bellMagic || b.at.version != bellVersion {
		unix.Munmap(mem)
		return nil, fmt.Errorf("%w: bell", ErrPage)
	}
	return b, nil
}

// File returns the memfd, to be passed to workers. The Bell keeps ownership.
func (b *Bell) File() *os.File { return b.file }

// Free unmaps the Bell in this process.
func (b *Bell) Free() error {
	b.file.Close()
	return unix.Munmap(b.mem)
}

// Ring wakes the goroutine in Listen, in any process.
func (b *Bell) Ring() {
	b.at.rung.Add(1)
	callbuf.FutexWake(&b.at.rung, 1<<30)
}

// Rung returns the number of rings. A caller reads it before it samples the Pages, and passes it to Listen after.
func (b *Bell) Rung() uint32 { return b.at.rung.Load() }

// Listen blocks until the bell has been rung since Rung returned seen, or timeout has passed; it may return early.
func (b *Bell) Listen(seen uint32, timeout time.Duration) {
	if b.at.rung.Load() == seen && timeout > 0 {
		callbuf.FutexWait(&b.at.rung, seen, timeout)
	}
}
