// Package xen is the host's side of a domU: the pages that it grants to Dom0, as the memory that its hub
// (hypervisor/hub) lends to the workers of its processes, and the Keeper of such hubs.
//
// In the domU an agent (guest/xen) grants a control area, and publishes its first page and its event channel in
// XenStore; see callbuf/region. For each process of the domU it grants a segment. The hub finds the segment's
// pages by tables. They go into a device's file of their own, which the worker maps: it can reach no other
// process's.
//
// Callers: `pegasusd hub`, a process of its own for each domU, and the daemon as Keeper.
//
// Trust boundary: hypervisor, XenStore and kernel of Dom0 are trusted. The domU may write anything into its pages and
// its part of XenStore, as fast as it can. That it grants a page twice under two numbers can't be detected: then its
// own processes share the page.
package xen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/grant"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/hub"
	"pegasus/xenstore"
)

// DomU identifies a hub's domU, and its limits.
type DomU struct {
	ID     grant.Domain
	Memory uint64 // bytes of all segments together; 0: DefaultMemory
	Arena  uint64 // bytes of the arena of each, as far as Memory goes; 0: DefaultArena
	// Lives reports whether the hypervisor has the domain, and it isn't dying. It is called when XenStore lacks the
	// domain: XenStore may have been restarted, and have lost its data. nil: XenStore is trusted.
	Lives func() (bool, error)
}

// A domU's defaults: an arena for each of three processes.
const (
	DefaultMemory = 64 << 20
	DefaultArena  = 16 << 20

	frontBytes = 4 << 20 // more than the part of a segment before its arena
)

// Memory is the pages that a domU grants. It implements hub.Memory.
type Memory struct {
	domU  DomU
	pages pages
	store *xenstore.Client
	log   *slog.Logger

	patience time.Duration // storeTime, except in tests

	channels chan bell.Conn // of the control area that was taken, once
	closed   chan struct{}

	// Owned by the watch's goroutine.
	missed int    // consecutive looks at which XenStore lacked the domU
	said   string // the last logged error

	mu      sync.Mutex
	offered offer  // by the current agent
	over    string // why the domU is not to be served any more

	// Owned by the hub's goroutine.
	tried    time.Time // time of the last attempt to take a control area
	taken    offer     // the offer of area; none: area is nil
	area     []byte
	channel  bell.Conn
	unmap    func()
	held     map[grant.Ref]bool // all pages in use
	segments map[uint32]*segment
	lent     int // pages
}

var _ hub.Memory = (*Memory)(nil)

// segment is a process's segment.
type segment struct {
	refs  []grant.Ref
	close func()
}

// Open starts to watch the offer of a domU's agent, which may not exist yet.
func Open(ctx context.Context, d DomU, dial xenstore.Dialer, log *slog.Logger) (*Memory, error) {
	soon, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	store, err := xenstore.DialAgain(soon, dial)
	if err != nil {
		return nil, err
	}
	return open(d, domain(d.ID), store, log), nil
}

func open(d DomU, p pages, store *xenstore.Client, log *slog.Logger) *Memory {
	if d.Memory == 0 {
		d.Memory = DefaultMemory
	}
	if d.Arena == 0 {
		d.Arena = DefaultArena
	}
	d.Arena = min(d.Arena, max(d.Memory, 2*frontBytes)-frontBytes) // so that there is room for one process
	return &Memory{
		domU: d, pages: p, store: store, log: log, patience: storeTime,
		channels: make(chan bell.Conn, 1), closed: make(chan struct{}), segments: map[uint32]*segment{},
	}
}

// tryEvery is the shortest interval between attempts to take a control area, which bounds the hub's work and log
// against any offers.
const tryEvery = time.Second

// Take implements hub.Memory.
func (m *Memory) Take() []byte {
	m.leave()
	o := m.offer()
	if o.none() || time.Since(m.tried) < tryEvery {
		return nil
	}
	m.tried = time.Now()
	if err := m.enter(o); err != nil {
		m.log.Warn("the domU's offer cannot be used", "page", o.control, "port", o.port, "err", err)
		return nil
	}
	return m.area
}

// enter maps a control area, and binds the channel that notifies the agent when that ends.
func (m *Memory) enter(o offer) (err error) {
	refs, err := controlPages(m.pages, o.control)
	if err != nil {
		return err
	}
	m.held = map[grant.Ref]bool{}
	if err := m.hold(refs); err != nil {
		return err
	}
	if m.area, m.channel, m.unmap, err = m.pages.Control(refs, o.port); err != nil {
		return err
	}
	m.taken = o
	m.channels <- m.channel
	return nil
}

// leave releases the control area, which is not used any more.
func (m *Memory) leave() {
	if m.area == nil {
		return
	}
	select {
	case <-m.channels:
	default:
	}
	m.unmap()
	m.channel.Close()
	m.area, m.channel, m.taken, m.held = nil, nil, offer{}, nil
}

// Same implements hub.Memory.
func (m *Memory) Same() bool { return m.offer() == m.taken }

// hold marks pages as in use: all of them, or none.
func (m *Memory) hold(refs []grant.Ref) error {
	for i, r := range refs {
		if m.held[r] {
			m.free(refs[:i])
			return fmt.Errorf("page %d is in use already", r)
		}
		m.held[r] = true
	}
	return nil
}

func (m *Memory) free(refs []grant.Ref) {
	for _, r := range refs {
		delete(m.held, r)
	}
}

// Lend implements hub.Memory. Missing grants are detected when the worker maps the pages.
func (m *Memory) Lend(to uint32, l callbuf.Layout, answer wire.Message) (none hub.Segment, err error) {
	if answer.Kind != wire.Grant || m.segments[to] != nil {
		return none, fmt.Errorf("message %v for process %d: want one grant of pages", answer.Kind, to)
	}
	table, err := wire.ParseGrant(answer.Body)
	if err != nil {
		return none, err
	}
	n := int(l.SegmentBytes / grant.PageBytes)
	if table == 0 || l.SegmentBytes > m.domU.Memory || uint64(m.lent+n)*grant.PageBytes > m.domU.Memory {
		return none, hub.ErrNoRoom
	}
	refs, err := segmentPages(m.pages, grant.Ref(table), n)
	if err != nil {
		return none, err
	}
	if err := m.hold(refs); err != nil {
		return none, err
	}
	s, end, err := m.pages.Segment(refs, int(l.ArenaOffset/grant.PageBytes))
	if err != nil {
		m.free(refs)
		return none, err
	}
	m.segments[to] = &segment{refs, end}
	m.lent += n
	return s, nil
}

// TakeBack implements hub.Memory.
func (m *Memory) TakeBack(to uint32) {
	s := m.segments[to]
	if s == nil {
		return
	}
	delete(m.segments, to)
	s.close()
	m.free(s.refs)
	m.lent -= len(s.refs)
}

// NoRoom implements hub.Memory.
func (m *Memory) NoRoom(bytes uint64) error {
	return fmt.Errorf("no memory to share %d MiB more: `pegasus attach --memory` in Dom0, `pegasus-guest agent --memory` in the domU", bytes>>20)
}

// MostArena implements hub.Memory.
func (m *Memory) MostArena() uint64 { return m.domU.Arena }

// Rouses implements hub.Memory: a futex doesn't work in another domain's page.
func (m *Memory) Rouses() bool { return false }

var errClosed = errors.New("the hub ends")

// Port implements hub.Memory. An event channel is valid as long as its control area.
func (m *Memory) Port() (open func() (bell.Conn, error), reopen bool) {
	return func() (bell.Conn, error) {
		select {
		case c := <-m.channels:
			return c, nil
		case <-m.closed:
			return nil, errClosed
		}
	}, true
}

// Over implements hub.Memory.
func (m *Memory) Over() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

func (m *Memory) offer() offer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.offered
}

// Close implements hub.Memory.
func (m *Memory) Close() {
	m.leave()
	close(m.closed)
	m.store.Close()
}
