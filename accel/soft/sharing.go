package soft

import (
	"os"

	"pegasus/cuda"
)

// Attach makes a part of a file accessible as device memory.
func (c *Context) Attach(file *os.File, offset, bytes uint64) (uint64, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return 0, r
	}
	d := c.dev
	addr, err := d.space.Attach(int(file.Fd()), offset, bytes)
	if err != nil {
		d.log.Error("attach shared device memory", "bytes", bytes, "err", err)
		return 0, cuda.ErrorOutOfMemory
	}
	d.mu.Lock()
	gone := c.destroyed.Begun
	if !gone {
		c.attached[addr] = struct{}{}
	}
	d.mu.Unlock()
	if gone {
		d.detachShared(addr)
		return 0, cuda.ErrorContextIsDestroyed
	}
	return addr, cuda.Success
}

// Detach removes an attachment once all work submitted earlier has ended, then calls done.
func (c *Context) Detach(addr uint64, done func()) cuda.Result {
	d := c.dev
	d.mu.Lock()
	_, ok := c.attached[addr]
	delete(c.attached, addr)
	d.mu.Unlock()
	if !ok {
		return cuda.ErrorInvalidValue
	}
	c.afterAll(func(cuda.Result) {
		d.detachShared(addr)
		done()
	})
	return cuda.Success
}

// ReserveSegments sets the bytes of device memory that the worker's domain has of its own.
func (d *Device) ReserveSegments(bytes uint64) bool { return d.worker.ReserveCommons(bytes) }
