package trace

import (
	"sync"

	"pegasus/hypervisor/xen/control"
)

// SharedReaders is the set of readers in one process that share Xen's trace buffers: a reader doesn't mistake another's
// consumption for that of a foreign program, and tracing is restored when the last reader closes, not the first. The
// zero value is empty and ready to use. Safe for concurrent use.
type SharedReaders struct {
	mu     sync.Mutex // held while a reader consumes records
	size   int
	was    control.Tracing // before the first reader
	events uint32          // enabled in Xen for the readers; 0: not changed
	shared bool            // a closed reader has seen a foreign consumer
	moves  []*indexChange  // by CPU
}

// indexChange is the last change of a CPU's consumer index by a reader of the set.
type indexChange struct {
	to   uint32
	made bool
	full bool // the buffer was full before
}

// Open adds a reader; see the function Open.
func (c *SharedReaders) Open(x Xen, m Mapper, events uint32, pages int) (b *Buffers, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b = &Buffers{xen: x, mapper: m, readers: c}
	if b.was, err = x.Tracing(); err != nil {
		return nil, err
	}
	switch {
	case c.size == 0:
		c.was, c.events, c.shared, c.moves = b.was, 0, false, nil
	case b.was.Events != c.events: // a foreign program has changed the events since
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
	// Before the buffers are created, since that begins to fill them.
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

// move returns the last change of a CPU's consumer index.
func (c *SharedReaders) move(cpu int) *indexChange {
	for len(c.moves) <= cpu {
		c.moves = append(c.moves, &indexChange{})
	}
	return c.moves[cpu]
}

// close releases a reader's buffers. The caller holds the set's lock.
func (b *Buffers) close() error {
	c := b.readers
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
	if now, err := b.xen.Tracing(); err != nil || now.Frame == 0 || now.Events != c.events { // a foreign program has changed the events since
		return err
	}
	if !c.shared {
		if err := b.xen.Trace(false); err != nil {
			return err
		}
	}
	return b.xen.TraceEvents(c.was.Events)
}
