package soft

import (
	"encoding/binary"
	"sync"

	"pegasus/accel"
	"pegasus/cuda"
)

// text is the unread output of a context's kernels: a ring of records in device memory, which counts against the quota
// as on any device. When it is full, new records overwrite the oldest.
type text struct {
	stdout, stderr textFile
	onText         func(waits bool)

	mu    sync.Mutex
	made  bool
	mem   []byte // nil: all is dropped
	first uint64 // position of the oldest record; grows beyond the end of mem
	used  uint64 // bytes of all records
}

// A record is a word, the file and the number of bytes that follow.
const (
	recordHeader = 4
	recordLength = 1<<24 - 1
)

// textFile is the writing end of a text, for kernels.
type textFile struct {
	t  *text
	of accel.File
}

func (t *text) init() {
	t.stdout, t.stderr = textFile{t, accel.Stdout}, textFile{t, accel.Stderr}
	t.onText = func(bool) {}
}

// OnOutput sets the callback that reports when output becomes available, or is used up.
func (c *Context) OnOutput(f func(waits bool)) { c.text.onText = f }

// MayPrint reports whether a kernel was launched that prints or asserts.
func (c *Context) MayPrint() bool { return c.text.inUse() }

func (t *text) inUse() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made
}

// makeText allocates the ring, unless that was done. Without memory for it kernels still run, and their output is lost.
func (c *Context) makeText() {
	t := &c.text
	if t.inUse() {
		return
	}
	n := c.limits[limitPrint]
	addr, r := uint64(0), cuda.ErrorOutOfMemory
	if n > 0 {
		addr, r = c.take(n, internal)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made = true; r == cuda.Success {
		t.mem = c.dev.space.Raw(addr, n)
	}
}

// close drops the text: its memory is about to be freed.
func (t *text) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mem, t.used = nil, 0
}

// Write appends a record, or drops one that is larger than the ring.
func (f *textFile) Write(b []byte) (int, error) {
	t := f.t
	t.mu.Lock()
	defer t.mu.Unlock()
	need := uint64(recordHeader + len(b))
	if need > uint64(len(t.mem)) || len(b) > recordLength {
		return len(b), nil
	}
	waited := t.used > 0
	for t.used+need > uint64(len(t.mem)) {
		n, _ := t.oldest()
		t.skip(recordHeader + n)
	}
	at := t.first + t.used
	t.header(at, len(b), f.of)
	t.put(at+recordHeader, b)
	if t.used += need; !waited {
		t.onText(true)
	}
	return len(b), nil
}

// ReadOutput removes the oldest text: as many records as fit and belong to one file. The rest of a partly read record may
// be overwritten before it is read; so a record is split only if it is larger than the buffer.
func (c *Context) ReadOutput(to []byte) (n int, of accel.File, left uint64) {
	t := &c.text
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == 0 {
		return 0, 0, 0
	}
	for _, of = t.oldest(); t.used > 0 && n < len(to); {
		length, file := t.oldest()
		if file != of || n > 0 && int(length) > len(to)-n {
			break
		}
		part := min(int(length), len(to)-n)
		t.get(to[n:n+part], t.first+recordHeader)
		n += part
		t.skip(uint64(part))
		if rest := int(length) - part; rest > 0 {
			t.header(t.first, rest, file)
			continue
		}
		t.skip(recordHeader)
	}
	if t.used == 0 {
		t.onText(false)
	}
	return n, of, t.used
}

// oldest returns the length and the file of the oldest record.
func (t *text) oldest() (length uint64, of accel.File) {
	var b [recordHeader]byte
	t.get(b[:], t.first)
	w := binary.LittleEndian.Uint32(b[:])
	return uint64(w & recordLength), accel.File(w >> 24)
}

func (t *text) header(at uint64, length int, of accel.File) {
	var b [recordHeader]byte
	binary.LittleEndian.PutUint32(b[:], uint32(of)<<24|uint32(length))
	t.put(at, b[:])
}

// skip drops n bytes from the ring's beginning.
func (t *text) skip(n uint64) { t.first, t.used = t.first+n, t.used-n }

// put and get copy to and from the ring, wrapping at its end.
func (t *text) put(at uint64, b []byte) {
	at %= uint64(len(t.mem))
	copy(t.mem, b[copy(t.mem[at:], b):])
}

func (t *text) get(b []byte, at uint64) {
	at %= uint64(len(t.mem))
	copy(b[copy(b, t.mem[at:]):], t.mem)
}
