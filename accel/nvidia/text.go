//go:build cgo

package nvidia

import (
	"bytes"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"pegasus/accel"
)

// The driver writes device printf output to this process's standard output, whenever a thread waits for work. This
// process reads that output back: after each kernel that may have printed, before the kernel's end is reported, so that
// a program finds the text when it has synchronised; and in a goroutine, so that the driver never runs out of room.

// text reads the output, for the context that last launched a kernel that may print.
type text struct {
	file *os.File // nil: the output is not read
	fd   int

	mu sync.Mutex
	of *Context
}

// contextText is the pending output of a context.
type contextText struct {
	prints bool // it has launched a kernel that may print
	kept   []byte
	waits  bool
	onText func(bool)
}

// maxText bounds the kept output that a program doesn't fetch: the driver by itself keeps as much.
const maxText = 1 << 20

// listen starts reading. The file is non-blocking.
func (t *text) listen(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	t.file = file
	if err := raw.Control(func(fd uintptr) { t.fd = int(fd) }); err != nil {
		return err
	}
	go raw.Read(func(uintptr) bool { return t.drain() })
	return nil
}

// drain reads all available output. It reports whether the file has ended.
func (t *text) drain() (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b [4096]byte
	for t.file != nil {
		n, err := unix.Read(t.fd, b[:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		case err != nil || n <= 0:
			return true
		case t.of != nil:
			t.of.text.add(b[:n])
		}
	}
	return true
}

func (t *contextText) add(b []byte) {
	t.kept = append(t.kept, b...)
	if n := len(t.kept) - maxText; n > 0 {
		t.kept = bytes.Clone(t.kept[n:]) // the oldest goes
	}
	t.notify()
}

// notify calls onText when output becomes available, or is used up.
func (t *contextText) notify() {
	if waits := len(t.kept) > 0; waits != t.waits && t.onText != nil {
		t.waits = waits
		t.onText(waits)
	}
}

// printing records that a context launches a kernel that may print. Earlier output belongs to the context that printed
// before.
func (t *text) printing(c *Context) {
	t.mu.Lock()
	other := t.of != c
	t.mu.Unlock()
	if other {
		t.drain()
	}
	t.mu.Lock()
	t.of = c
	c.text.prints = true
	t.mu.Unlock()
}

// mayPrint makes the end of an operation read the output first.
func (c *Context) mayPrint(p *inflightOp) {
	c.dev.text.printing(c)
	p.settle = func() { c.dev.text.drain() }
}

// forget drops the output of a context that has ended.
func (t *text) forget(c *Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == c {
		t.of = nil
	}
}

// close ends the reading.
func (t *text) close() {
	t.mu.Lock()
	file := t.file
	t.file = nil
	t.mu.Unlock()
	if file != nil {
		file.Close()
	}
}

// OnOutput sets the callback that reports when output becomes available, or is used up.
func (c *Context) OnOutput(call func(waits bool)) {
	t := &c.dev.text
	t.mu.Lock()
	defer t.mu.Unlock()
	c.text.onText = call
}

// MayPrint reports whether a kernel was launched that may print.
func (c *Context) MayPrint() bool {
	t := &c.dev.text
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.text.prints
}

// ReadOutput removes the oldest output.
func (c *Context) ReadOutput(to []byte) (n int, of accel.File, left uint64) {
	t := &c.dev.text
	t.mu.Lock()
	defer t.mu.Unlock()
	n = copy(to, c.text.kept)
	c.text.kept = c.text.kept[n:]
	if len(c.text.kept) == 0 {
		c.text.kept = nil
	}
	c.text.notify()
	return n, accel.Stdout, uint64(len(c.text.kept))
}

// printsText reports whether kernels of an image may print: they call a function of the driver by this name.
func printsText(image []byte) bool { return bytes.Contains(image, []byte("vprintf")) }
