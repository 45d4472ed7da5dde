//go:build cgo

package nvidia

import (
	"bytes"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"pegasus/accel"
)

// What kernels print the driver writes to this process's standard output, whenever somebody waits for work. The other end of
// that is read here: at the end of each kernel that may have printed, before that is told, so that a program finds
// the text when it has synchronised; and by a goroutine, lest the driver find no room for more.

// text is what was read, for the context that launched such a kernel last.
type text struct {
	file *os.File // nil: nobody listens
	fd   int

	mu sync.Mutex
	of *Context
}

// told is what a context has for the program.
type told struct {
	prints bool // it has launched a kernel that may print
	kept   []byte
	waits  bool
	onText func(bool)
}

// maxText is how much is kept of what a program doesn't fetch: the driver keeps as much by itself.
const maxText = 1 << 20

// listen begins to read. The file is not blocking.
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

// drain takes all that there is to be read. It says whether that was the end.
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

func (t *told) add(b []byte) {
	t.kept = append(t.kept, b...)
	if n := len(t.kept) - maxText; n > 0 {
		t.kept = bytes.Clone(t.kept[n:]) // the oldest goes
	}
	t.tell()
}

// tell says when there begins, or ceases, to be text.
func (t *told) tell() {
	if waits := len(t.kept) > 0; waits != t.waits && t.onText != nil {
		t.waits = waits
		t.onText(waits)
	}
}

// printing notes that a context launches a kernel that may print. What others printed before is theirs.
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

// mayPrint has text looked for when a piece of work has ended.
func (c *Context) mayPrint(p *piece) {
	c.dev.text.printing(c)
	p.settle = func() { c.dev.text.drain() }
}

// forget is for a context that has ended: nobody fetches its text any more.
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

// OnText sets what is called when there begins, or ceases, to be text.
func (c *Context) OnText(call func(waits bool)) {
	t := &c.dev.text
	t.mu.Lock()
	defer t.mu.Unlock()
	c.text.onText = call
}

// MayTell says whether a kernel was launched that may print.
func (c *Context) MayTell() bool {
	t := &c.dev.text
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.text.prints
}

// ReadText takes the oldest text.
func (c *Context) ReadText(to []byte) (n int, of accel.File, left uint64) {
	t := &c.dev.text
	t.mu.Lock()
	defer t.mu.Unlock()
	n = copy(to, c.text.kept)
	c.text.kept = c.text.kept[n:]
	if len(c.text.kept) == 0 {
		c.text.kept = nil
	}
	c.text.tell()
	return n, accel.Stdout, uint64(len(c.text.kept))
}

// printsText says whether kernels of an image may print: they call a function of the driver's by this name.
func printsText(image []byte) bool { return bytes.Contains(image, []byte("vprintf")) }
