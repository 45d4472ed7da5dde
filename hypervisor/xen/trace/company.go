package trace

import (
	"sync"

	"pegasus/hypervisor/xen/control"
)

// Company are the readers of one process, who know of each other: that one of them takes records doesn't
// look to the others like somebody else's taking, and Xen is told to note no more when the last one goes, not
// the first. Its zero value is of nobody yet.
type Company struct {
	mu     sync.Mutex // held while one of them takes
	size   int
	was    control.Tracing // before the first came
	events uint32          // that Xen notes for them; 0: nothing was changed
	shared bool            // one that has gone has seen somebody else take
	moves  []*move         // by CPU
}

// move is where the first word of a CPU's buffer was moved last by one of the company.
type move struct {
	to   uint32
	made bool
	full bool // as it was before
}

// Open is for one reader more; see the function of that name.
func (c *Company) Open(x Xen, m Mapper, events uint32, pages int) (b *Buffers, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b = &Buffers{xen: x, mapper: m, company: c}
	if b.was, err = x.Tracing(); err != nil {
		return nil, err
	}
	switch {
	case c.size == 0:
		c.was, c.events, c.shared, c.moves = b.was, 0, false, nil
	case b.was.Events != c.events: // somebody else has other wishes since
		c.was.Events = b.was.Events
	}
	c.size++
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	now := b.was
	c.events = events
	if b.was.Frame != 0 && b.was.Events != everything {
		c.events |= b.was.Events
	}
	// Before there are buffers, since making them begins to fill them.
	if err := x.TraceEvents(c.events); err != nil {
		return nil, err
	}
	if err := x.TraceCPUs(); err != nil {
		return nil, err
	}
	if b.was.Frame == 0 {
		if err := x.TraceSize(pages); err != nil {
			return nil, err
		}
		if now, err = x.Tracing(); err != nil {
			return nil, err
		}
	}
	if err := b.mapAll(now); err != nil {
		return nil, err
	}
	if b.was.Frame != 0 {
		return b, x.Trace(true)
	}
	return b, nil
}

// move is a CPU's.
func (c *Company) move(cpu int) *move {
	for len(c.moves) <= cpu {
		c.moves = append(c.moves, &move{})
	}
	return c.moves[cpu]
}

// close lets go of a reader's buffers. The company's lock is held.
func (b *Buffers) close() error {
	c := b.company
	if b.closed {
		return nil
	}
	b.closed = true
	c.shared = c.shared || b.shared()
	for _, mem := range b.mapped {
		b.mapper.Unmap(mem)
	}
	b.mapped, b.rings = nil, nil
	if c.size--; c.size > 0 || c.events == 0 {
		return nil
	}
	if now, err := b.xen.Tracing(); err != nil || now.Frame == 0 || now.Events != c.events { // somebody has other wishes since
		return err
	}
	if !c.shared {
		if err := b.xen.Trace(false); err != nil {
			return err
		}
	}
	return b.xen.TraceEvents(c.was.Events)
}
