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

// sharedMemory is the memory that this domU grants to Dom0.
type sharedMemory struct {
	machine *Machine
	fdStore *agent.FDStore
	store   *xenstore.Client
	memory  uint64 // bytes that all segments may use
	used    uint64 // bytes that they use

	control   *grant.Grant
	channel   *grant.Channel
	published bool // control area and channel are published to Dom0
	segments  map[string]segment

	unwatch context.CancelFunc
	gone    *atomic.Pointer[error] // set by the watch when Dom0 loses the publication
}

// segment is a process's allocation.
type segment struct {
	bytes uint64
	// pages is held until no process maps it, so that memory that counts as free can be granted again. It is nil for
	// segments of a previous agent.
	pages *grant.Grant
}

// Names of the files that are stored for the next agent, if there is a file descriptor store.
const (
	keptControl = "control"
	keptChannel = "channel"
)

func (g *sharedMemory) Name() string  { return "pages of this domU, granted to Dom0" }
func (g *sharedMemory) Bytes() uint64 { return g.memory }
func (g *sharedMemory) Shared() bool  { return false }

// MostArena returns the arena of a single process; the rest of its segment takes less than headBytes.
func (g *sharedMemory) MostArena() uint64 {
	return min(g.memory, grant.MaxPages*grant.PageBytes) - headBytes
}

const headBytes = 4 << 20

// Begin grants a control area, and offers an event channel. Segments of a previous agent stay with their processes; the
// kernel frees them when these and Dom0 have released them.
func (g *sharedMemory) Begin() ([]byte, error) {
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

// Announce publishes the control area to Dom0, and stores it for the next agent.
func (g *sharedMemory) Announce(uint64) error {
	r := rendezvous{control: g.control.Refs[0], port: g.channel.Port()}
	if err := publish(g.store, &r); err != nil {
		return err
	}
	if err := errors.Join(g.fdStore.Leave(keptControl, g.control.File), g.fdStore.Leave(keptChannel, g.channel.File())); err != nil {
		return fmt.Errorf("have the control area kept: %w", err)
	}
	return g.use(r)
}

var errNotKept = errors.New("nobody has kept the pages of the control area: systemd does, as `pegasus-guest install` sets it up")

// Resume takes over the stored control area and channel.
func (g *sharedMemory) Resume(r agent.Record) ([]byte, error) {
	ctx, done := context.WithTimeout(context.Background(), storeTime)
	defer done()
	stored, err := read(ctx, g.store)
	if err != nil {
		return nil, err
	}
	control, channel := g.fdStore.Take(keptControl), g.fdStore.Take(keptChannel)
	if control == nil || channel == nil {
		closeAll(control, channel)
		return nil, errNotKept
	}
	g.control, g.channel = grant.ResumeGrant(control, region.ControlPages), grant.ResumeChannel(channel, stored.port)
	mem, err := g.control.Map()
	if err != nil {
		return nil, fmt.Errorf("control area: %w", err)
	}
	for name, part := range r.Parts() {
		g.segments[name] = segment{bytes: part.Bytes}
		g.used += part.Bytes
	}
	if err := g.use(stored); err != nil {
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

// use makes the channel the doorbell, and watches whether the publication to Dom0 still stands.
func (g *sharedMemory) use(r rendezvous) error {
	g.published = true
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

// Create grants the pages of an allocation. The hub finds them by tables until it has mapped them.
func (g *sharedMemory) Create(name string, bytes uint64) (_ *agent.Allocation, err error) {
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
	return &agent.Allocation{
		File:    os.NewFile(uintptr(fd), name),
		Part:    &callbuf.Extent{Offset: all.Offset(), Bytes: bytes},
		Where:   grantMessage(tables.Refs[0]),
		Settled: func() { tables.Close() },
	}, nil
}

// Remove releases an allocation's pages: the kernel frees them when no process maps them any more.
func (g *sharedMemory) Remove(name string) error {
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

func (g *sharedMemory) NoRoom() region.Message { return grantMessage(0) }

func grantMessage(table grant.Ref) region.Message {
	return region.Message{Kind: region.Grant, Body: region.GrantBody(uint32(table))}
}

func (g *sharedMemory) Gone() error {
	if g.gone == nil || g.gone.Load() == nil {
		return nil
	}
	return *g.gone.Load()
}

// Leave withdraws the publication to Dom0, unless all is stored for the next agent.
func (g *sharedMemory) Leave() error {
	if g.fdStore.Holds() {
		return nil
	}
	g.unwatch()
	return withdraw(g.store)
}

// Close releases all that is not stored for the next agent.
func (g *sharedMemory) Close() {
	g.forget()
	g.store.Close()
}

// forget drops an unusable control area and the segments given out by it. The kernel frees their pages when the last of
// their processes has ended.
func (g *sharedMemory) forget() {
	if g.unwatch != nil {
		g.unwatch()
		g.unwatch = nil
	}
	g.machine.offer(nil)
	if g.control != nil {
		g.control.Close()
	}
	if g.channel != nil && g.published {
		g.end(g.channel.File())
	} else if g.channel != nil {
		g.channel.Close()
	}
	if f := g.fdStore.Take(keptChannel); f != nil {
		g.end(f)
	}
	g.control, g.channel, g.published, g.gone = nil, nil, false, nil
	for name := range g.segments {
		g.Remove(name)
	}
	g.fdStore.Drop(keptControl)
	g.fdStore.Drop(keptChannel)
}

// end closes a channel's file; it stays open in a holder process if it may be of the domain's previous incarnation.
func (g *sharedMemory) end(f *os.File) {
	ctx, done := context.WithTimeout(context.Background(), storeTime)
	defer done()
	if _, err := read(ctx, g.store); g.Gone() != nil || err != nil {
		hold(f)
	}
	f.Close()
}
