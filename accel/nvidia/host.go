//go:build cgo

package nvidia

import (
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// hold is a word of pinned memory that a stream waits for.
type hold struct {
	word   driver.Word
	device uint64 // the device's address of it
}

// words are the unused words of a context. The poller and the streams' goroutines use them.
type words struct {
	ctx   *Context
	spare []*hold
}

const wordsAtOnce = 1024

func (w *words) take() (*hold, cuda.Result) {
	c := w.ctx
	d := c.dev
	d.mu.Lock()
	if n := len(w.spare); n > 0 {
		h := w.spare[n-1]
		w.spare = w.spare[:n-1]
		d.mu.Unlock()
		return h, cuda.Success
	}
	d.mu.Unlock()
	mem, at, r := driver.AllocHost(c.ctx, wordsAtOnce*driver.WordBytes) // freed with the context
	if r != cuda.Success {
		return nil, r
	}
	for i := uint64(0); i < uint64(len(mem)); i += driver.WordBytes {
		w.give(&hold{driver.WordAt(mem[i:]), at + i})
	}
	return w.take()
}

func (w *words) give(h *hold) {
	c := w.ctx
	c.dev.mu.Lock()
	w.spare = append(w.spare, h)
	c.dev.mu.Unlock()
}

// hostFunc holds the stream until the operation's function has finished.
func (s *Stream) hostFunc(p *inflightOp) (r cuda.Result) {
	c := s.ctx
	if p.end, r = s.recorded(); r != cuda.Success {
		return r
	}
	if p.hold, r = c.words.take(); r != cuda.Success {
		return c.forget(p, r)
	}
	driver.Reset(p.hold.word)
	if r = driver.Hold(c.ctx, s.h, p.hold.word, p.hold.device, c.dev.byDevice); r != cuda.Success {
		c.words.give(p.hold)
		return c.forget(p, r)
	}
	if p.past, r = s.recorded(); r != cuda.Success {
		driver.Release(p.hold.word) // and it is never used again: a wait for it is pending
		return c.forget(p, r)
	}
	s.append(p)
	return cuda.Success
}

// awaitHost has the function of an operation run, which is due, and waits until it has finished.
func (p *inflightOp) awaitHost() {
	c := p.ctx
	d := c.dev
	d.mu.Lock()
	wanted := !p.release
	d.mu.Unlock()
	if wanted {
		p.due(c.Err(), p.finished)
	}
	d.mu.Lock()
	for !p.release {
		d.changed.Wait()
	}
	d.held--
	d.changed.Broadcast()
	d.mu.Unlock()
	_, _, r := driver.Await(c.ctx, nil, nil, p.past)
	c.waited(r)
	c.words.give(p.hold) // its wait has ended
}

// finished is called when the function has finished, and maybe more often.
func (p *inflightOp) finished() {
	p.ctx.dev.mu.Lock()
	defer p.ctx.dev.mu.Unlock()
	p.letGo()
}

// letGo releases the stream. d.mu is held.
func (p *inflightOp) letGo() {
	if !p.release {
		p.release = true
		driver.Release(p.hold.word)
		p.ctx.dev.changed.Broadcast()
	}
}

// letGo releases all streams that are, or would be, held. d.mu is held.
func (c *Context) letGo() {
	for s := range c.active {
		for p := s.first; p != nil; p = p.next {
			if p.hold != nil {
				p.letGo()
			}
		}
	}
}
