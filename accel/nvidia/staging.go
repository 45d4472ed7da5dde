//go:build cgo

package nvidia

import (
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// stagingBytes is the size of one of the two parts of a move that are in flight at a time.
const stagingBytes = 4 << 20

// stagingCopier copies between the device and any host memory, through two pinned staging buffers: while the driver
// copies one, the CPU copies the other.
type stagingCopier struct {
	ctx   *Context
	mem   [2][]byte
	ended [2]driver.Event // nil: no copy is in flight
}

func (c *Context) newStagingCopier() (s *stagingCopier, r cuda.Result) {
	s = &stagingCopier{ctx: c}
	for i := range s.mem {
		if s.mem[i], r = c.buffers.take(stagingBytes); r != cuda.Success {
			return s, s.close(r)
		}
	}
	return s, r
}

// close waits for the parts in flight. Buffers that may still be in use after an error are freed with the context.
func (s *stagingCopier) close(r cuda.Result) cuda.Result {
	for i := range s.mem {
		if waited := s.await(i); waited != cuda.Success {
			return waited
		}
	}
	for _, mem := range s.mem {
		if mem != nil {
			s.ctx.buffers.give(mem)
		}
	}
	return r
}

// send submits one of the two copies to the driver.
func (s *stagingCopier) send(i int, copy func() cuda.Result) cuda.Result {
	c := s.ctx
	e, r := c.events.take()
	if r != cuda.Success {
		return r
	}
	if r = copy(); r == cuda.Success {
		r = driver.Record(c.ctx, e, c.aside)
	}
	if r != cuda.Success {
		c.events.keep(e)
		driver.SyncStream(c.ctx, c.aside)
		return r
	}
	s.ended[i] = e
	return r
}

func (s *stagingCopier) await(i int) cuda.Result {
	e := s.ended[i]
	if e == nil {
		return cuda.Success
	}
	s.ended[i] = nil
	_, _, r := driver.Await(s.ctx.ctx, nil, nil, e)
	s.ctx.events.keep(e)
	return r
}

// copyAway copies device memory to host memory, and blocks until that is complete.
func (c *Context) copyAway(to []byte, at uint64) cuda.Result {
	s, r := c.newStagingCopier()
	if r != cuda.Success {
		return r
	}
	var before []byte // destination of the part in flight
	for i := 0; r == cuda.Success && (len(to) > 0 || before != nil); i ^= 1 {
		part := to[:min(len(to), stagingBytes)]
		to = to[len(part):]
		if len(part) > 0 {
			r = s.send(i, func() cuda.Result { return driver.CopyOut(c.ctx, s.mem[i][:len(part)], at, c.aside) })
			at += uint64(len(part))
		} else {
			part = nil
		}
		if r == cuda.Success && before != nil {
			if r = s.await(i ^ 1); r == cuda.Success {
				copy(before, s.mem[i^1])
			}
		}
		before = part
	}
	return s.close(r)
}

// copyBack copies host memory to device memory, and blocks until that is complete.
func (c *Context) copyBack(at uint64, from []byte) cuda.Result {
	s, r := c.newStagingCopier()
	if r != cuda.Success {
		return r
	}
	for i := 0; r == cuda.Success && len(from) > 0; i ^= 1 {
		if r = s.await(i); r != cuda.Success {
			break
		}
		n := copy(s.mem[i], from)
		to := at
		r = s.send(i, func() cuda.Result { return driver.CopyIn(c.ctx, to, s.mem[i][:n], c.aside) })
		at, from = at+uint64(n), from[n:]
	}
	return s.close(r)
}
