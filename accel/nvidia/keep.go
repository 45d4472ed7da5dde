//go:build cgo

package nvidia

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

const (
	// keepStep is the size of the parts, in bytes, that are copied between a segment and the domain's file.
	keepStep = 4 << 20
	// keepGrain is the granularity of the check for zeros, in bytes: zeros stay holes in the file.
	keepGrain = 64 << 10
)

var zeros [keepGrain]byte

// load copies the bytes that the file has to a segment's new memory.
func (own *segment) load(c *Context, at uint64) cuda.Result {
	if !own.Stored() { // the process that had them was killed
		if err := own.Clear(); err != nil {
			return own.fileFailed(c.dev, "clear", err)
		}
	}
	r := driver.Fill(c.ctx, at, 0, 0, 1, own.whole, 1, c.aside)
	if r == cuda.Success {
		r = driver.SyncStream(c.ctx, c.aside)
	}
	if r != cuda.Success {
		return r
	}
	mem, r := c.buffers.take(keepStep)
	if r != cuda.Success {
		return r
	}
	defer c.buffers.give(mem)
	for from := uint64(0); from < own.Bytes; {
		next, end, err := own.written(from)
		if err != nil {
			return own.fileFailed(c.dev, "find", err)
		}
		for from = next; from < end; {
			part := mem[:min(end-from, keepStep)]
			if _, err := own.File.ReadAt(part, int64(own.Offset+from)); err != nil {
				return own.fileFailed(c.dev, "read", err)
			}
			if r := own.timedCopy(c, accel.CopyIn, func() cuda.Result { return driver.CopyIn(c.ctx, at+from, part, c.aside) }); r != cuda.Success {
				return r
			}
			from += uint64(len(part))
		}
	}
	return cuda.Success
}

// written returns the next part, from a byte of the segment on, that the file has: [next, end), empty at the segment's
// end.
func (own *segment) written(from uint64) (next, end uint64, err error) {
	fd := int(own.File.Fd())
	at, err := unix.Seek(fd, int64(own.Offset+from), unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return own.Bytes, own.Bytes, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if next = uint64(at) - own.Offset; next >= own.Bytes {
		return own.Bytes, own.Bytes, nil
	}
	to, err := unix.Seek(fd, at, unix.SEEK_HOLE)
	return next, min(uint64(to)-own.Offset, own.Bytes), err
}

// save copies a segment's bytes to the file, which has none of them.
func (own *segment) save(c *Context, at uint64) cuda.Result {
	mem, r := c.buffers.take(keepStep)
	if r != cuda.Success {
		return r
	}
	defer c.buffers.give(mem)
	if err := own.Clear(); err != nil {
		return own.fileFailed(c.dev, "clear", err)
	}
	for from := uint64(0); from < own.Bytes; from += keepStep {
		part := mem[:min(own.Bytes-from, keepStep)]
		if r := own.timedCopy(c, accel.CopyOut, func() cuda.Result { return driver.CopyOut(c.ctx, part, at+from, c.aside) }); r != cuda.Success {
			return r
		}
		for i := 0; i < len(part); i += keepGrain {
			grain := part[i:min(i+keepGrain, len(part))]
			if bytes.Equal(grain, zeros[:len(grain)]) {
				continue
			}
			if _, err := own.File.WriteAt(grain, int64(own.Offset+from)+int64(i)); err != nil {
				return own.fileFailed(c.dev, "write", err)
			}
		}
	}
	return cuda.Success
}

// timedCopy copies a part of a segment, and charges the time.
func (own *segment) timedCopy(c *Context, class accel.Class, give func() cuda.Result) cuda.Result {
	d := c.dev
	began := d.clock()
	r := give()
	if r == cuda.Success {
		r = driver.SyncStream(c.ctx, c.aside)
	}
	u := accel.Usage{Class: class}
	if u.Start, u.End = d.charge(class, began, d.clock()); u.End > u.Start {
		if used := d.config.Used; used != nil {
			used(class, u.End-u.Start)
		}
		own.Used(u)
	}
	return r
}

func (own *segment) fileFailed(d *Device, what string, err error) cuda.Result {
	d.log.Error(what+" the stored bytes of a device segment", "bytes", own.Bytes, "offset", own.Offset, "err", err)
	return cuda.ErrorOperatingSystem
}
