package xen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
	"pegasus/guest/agent"
	"pegasus/xenstore"
)

// ground is the pages that this domU grants.
type ground struct {
	machine *Machine
	shelf   *agent.Shelf
	store   *xenstore.Client
	memory  uint64 // bytes that all segments may have
	used    uint64 // and that they have

	control  *grant.Grant
	channel  *grant.Channel
	told     bool // Dom0 knows of them
	segments map[string]segment

	unwatch context.CancelFunc
	gone    *atomic.Pointer[error] // of the watch
}

// segment is what a process has.
type segment struct {
	bytes uint64
	// pages are kept until nobody maps them, so that what counts as free can be granted. An agent
	// before us had those of nil.
	pages *grant.Grant
}

// What is kept for the next agent, if there is somebody to keep it.
const (
	keptControl = "control"
	keptChannel = "channel"
)

func (g *ground) Name() string  { return "pages of this domU, granted to Dom0" }
func (g *ground) Bytes() uint64 { return g.memory }
func (g *ground) Shared() bool  { return false }

// MostArena is what a process may have that is the only one: the rest of its segment is less than headBytes.
func (g *ground) MostArena() uint64 {
	return min(g.memory, grant.MaxPages*grant.PageBytes) - headBytes
}

const headBytes = 4 << 20

// Begin grants a control area, and offers an event channel. What processes of an agent before have
// stays theirs, and is free when they and Dom0 have let go of it: the kernel sees to that.
func (g *ground) Begin() ([]byte, error) {
	g.forget()
	var err error
	if g.control, err = grant.GrantPages(dom0, region.ControlPages, true); err != nil {
		return nil, fmt.Errorf("control area: %w", explain(err, 0, region.ControlPages))
	}
	if g.channel, err = grant.OfferChannel(dom0); err != nil {
		return nil, err
	}
	mem, err := g.control.Map()
	if err != nil {
		return nil, fmt.Errorf("control area: %w", err)
	}
	region.PutTable(mem[region.ControlTable:], numbers(g.control.Refs[1:]), 0)
	if g.control.AtEnd(region.ControlAgent) == nil {
		mem[region.ControlAgent] = 1
	}
	return mem, nil
}

// Announce tells Dom0 where it is, and has the next agent find it.
func (g *ground) Announce(uint64) error {
	r := rendezvous{control: g.control.Refs[0], port: g.channel.Port()}
	if err := publish(g.store, &r); err != nil {
		return err
	}
	if err := errors.Join(g.shelf.Leave(keptControl, g.control.File), g.shelf.Leave(keptChannel, g.channel.File())); err != nil {
		return fmt.Errorf("have the control area kept: %w", err)
	}
	return g.use(r)
}

var errNotKept = errors.New("nobody has kept the pages of the control area: systemd does, as `pegasus-guest install` sets it up")

// Resume takes what was kept.
func (g *ground) Resume(r agent.Record) ([]byte, error) {
	ctx, done := context.WithTimeout(context.Background(), storeTime)
	defer done()
	told, err := read(ctx, g.store)
	if err != nil {
		return nil, err
	}
	control, channel := g.shelf.Take(keptControl), g.shelf.Take(keptChannel)
	if control == nil || channel == nil {
		closeAll(control, channel)
		return nil, errNotKept
	}
	g.control, g.channel = grant.ResumeGrant(control, region.ControlPages), grant.ResumeChannel(channel, told.port)
	mem, err := g.control.Map()
	if err != nil {
		return nil, fmt.Errorf("control area: %w", err)
	}
	for name, part := range r.Parts() {
		g.segments[name] = segment{bytes: part.Bytes}
		g.used += part.Bytes
	}
	if err := g.use(told); err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	return mem, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// use has the bell be that of the channel, and watches whether Dom0 knows of us still.
func (g *ground) use(r rendezvous) error {
	g.told = true
	ctx, stop := context.WithCancel(context.Background())
	g.unwatch = stop
	soon, done := context.WithTimeout(ctx, storeTime)
	defer done()
	w, err := g.store.Watch(soon, region.StoreDir)
	if err != nil {
		return err
	}
	g.machine.offer(g.channel)
	gone := &atomic.Pointer[error]{}
	g.gone = gone
	go func() {
		defer w.Close(context.Background())
		if err := watch(ctx, g.store, w, r); ctx.Err() == nil {
			gone.Store(&err)
		}
	}()
	return nil
}

// Create grants a piece's pages. The hub finds them by tables, until it has them.
func (g *ground) Create(name string, bytes uint64) (_ *agent.Piece, err error) {
	if g.used+bytes > g.memory || bytes > g.memory {
		return nil, fmt.Errorf("%d bytes: of %d that this agent may grant, others have %d: `pegasus-guest agent --memory` says how many, which need as many pages in %s",
			bytes, g.memory, g.used, LimitFile)
	}
	all, err := grant.GrantPages(dom0, pages(bytes), true)
	if err != nil {
		return nil, explain(err, pages(g.used), pages(bytes))
	}
	tables, err := grantTables(all.Refs)
	if err != nil {
		all.Close()
		return nil, explain(err, pages(g.used+bytes), region.Tables(len(all.Refs)))
	}
	fd, err := unix.FcntlInt(all.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		tables.Close()
		all.Close()
		return nil, err
	}
	g.segments[name] = segment{bytes, all}
	g.used += bytes
	return &agent.Piece{
		File:    os.NewFile(uintptr(fd), name),
		Part:    &callbuf.Extent{Offset: all.Offset(), Bytes: bytes},
		Where:   grantMessage(tables.Refs[0]),
		Settled: func() { tables.Close() },
	}, nil
}

// Remove gives a piece's pages up: the kernel takes them when nobody maps them any more.
func (g *ground) Remove(name string) error {
	s, ok := g.segments[name]
	if !ok {
		return os.ErrNotExist
	}
	delete(g.segments, name)
	g.used -= s.bytes
	if s.pages == nil {
		return nil
	}
	return s.pages.Close()
}

func (g *ground) NoRoom() region.Message { return grantMessage(0) }

func grantMessage(table grant.Ref) region.Message {
	return region.Message{Kind: region.Grant, Body: region.GrantBody(uint32(table))}
}

func (g *ground) Gone() error {
	if g.gone == nil || g.gone.Load() == nil {
		return nil
	}
	return *g.gone.Load()
}

// Leave tells Dom0 that nobody is here, unless all is kept for the next agent.
func (g *ground) Leave() error {
	if g.shelf.Holds() {
		return nil
	}
	g.unwatch()
	return withdraw(g.store)
}

// Close gives up what isn't kept for the next agent.
func (g *ground) Close() {
	g.forget()
	g.store.Close()
}

// forget is of a control area that is of no use, and so are the segments that were given by it. Their pages
// the kernel takes back when the last of their processes has gone.
func (g *ground) forget() {
	if g.unwatch != nil {
		g.unwatch()
		g.unwatch = nil
	}
	g.machine.offer(nil)
	if g.control != nil {
		g.control.Close()
	}
	if g.channel != nil && g.told {
		g.end(g.channel.File())
	} else if g.channel != nil {
		g.channel.Close()
	}
	if f := g.shelf.Take(keptChannel); f != nil {
		g.end(f)
	}
	g.control, g.channel, g.told, g.gone = nil, nil, false, nil
	for name := range g.segments {
		g.Remove(name)
	}
	g.shelf.Drop(keptControl)
	g.shelf.Drop(keptChannel)
}

// end closes a channel's file, unless it may be of the domain that this one was before.
func (g *ground) end(f *os.File) {
	ctx, done := context.WithTimeout(context.Background(), storeTime)
	defer done()
	if _, err := read(ctx, g.store); g.Gone() != nil || err != nil {
		hold(f)
	}
	f.Close()
}
