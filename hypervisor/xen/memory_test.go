package xen

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/callbuf"
	"pegasus/callbuf/grant"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/hub"
	"pegasus/internal/testkit"
	"pegasus/xenstore"
	"pegasus/xenstore/memory"
)

const domID = 7

// host is a XenStore with a domU, and the hub's memory of it.
type host struct {
	*fake
	tools, guest *xenstore.Client
	memory       *Memory
	changes      chan struct{}
	log          strings.Builder
}

func newHost(t *testing.T, d DomU) *host {
	t.Helper()
	server := memory.New(memory.Options{})
	dial := func(id xenstore.DomID) *xenstore.Client {
		c, err := xenstore.Dial(t.Context(), server.Domain(id))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	h := &host{fake: newFake(t), tools: dial(0), changes: make(chan struct{}, 1000)}
	if err := h.tools.Mkdir(t.Context(), "/local/domain/7/data"); err != nil {
		t.Fatal(err)
	}
	if err := h.tools.SetPerms(t.Context(), "/local/domain/7/data", xenstore.Perm{Dom: domID}); err != nil {
		t.Fatal(err)
	}
	h.guest = dial(domID)
	d.ID = domID
	h.memory = open(d, h.fake, dial(0), slog.New(slog.NewTextHandler(&h.log, nil)))
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		stop()
		h.memory.Close()
		if h.open != 0 {
			t.Errorf("%d mappings are left", h.open)
		}
	})
	if err := h.memory.Watch(ctx, func() { h.changes <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) write(name, value string) {
	h.t.Helper()
	if err := h.guest.Write(context.Background(), wire.StoreDir+"/"+name, []byte(value)); err != nil {
		h.t.Fatal(err)
	}
}

// publish is an agent's start.
func (h *host) publish(control grant.Ref, port string) {
	h.t.Helper()
	h.write(wire.StoreVersion, wire.StoreVersion1)
	h.write(wire.StoreControl, strconv.Itoa(int(control)))
	h.write(wire.StorePort, port)
	h.write(wire.StoreState, wire.StoreReady)
}

func (h *host) eventually(what string, ok func() bool) {
	h.t.Helper()
	testkit.Eventually(h.t, what, ok)
}

// take takes the control area once it is offered.
func (h *host) take() (area []byte) {
	h.t.Helper()
	h.eventually("a control area", func() bool { area = h.memory.Take(); return area != nil })
	return area
}

var layout = func() callbuf.Layout {
	l, err := callbuf.Geometry{RingSlots: 128, ReplySlots: 16, EventWords: 64, ReleaseWords: 16, ArenaBytes: 2 << 20}.Layout()
	if err != nil {
		panic(err)
	}
	return l
}()

var pagesOfSegment = int(layout.SegmentBytes / grant.PageBytes)

// stalled is a link that transfers nothing while its lock is held.
type stalled struct {
	io.ReadWriteCloser
	held *sync.RWMutex
}

func (l stalled) Read(b []byte) (int, error) {
	n, err := l.ReadWriteCloser.Read(b)
	l.held.RLock()
	defer l.held.RUnlock()
	return n, err
}

// A XenStore that hangs blocks neither the hub's start nor its watch without an end: the last state stays, the log
// gets one line, and when XenStore answers again, changes are seen.
func TestHungStore(t *testing.T) {
	server := memory.New(memory.Options{})
	defer server.Close()
	var held sync.RWMutex
	client := func(id xenstore.DomID) *xenstore.Client {
		c, err := xenstore.Dial(t.Context(), func(ctx context.Context) (xenstore.Link, error) {
			l, err := server.Domain(id)(ctx)
			l.ReadWriteCloser = stalled{l.ReadWriteCloser, &held}
			return l, err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	h := &host{fake: newFake(t), tools: client(0)}
	for _, err := range []error{
		h.tools.Mkdir(t.Context(), "/local/domain/7/data"),
		h.tools.SetPerms(t.Context(), "/local/domain/7/data", xenstore.Perm{Dom: domID}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h.guest = client(domID)
	var log buffer
	h.memory = open(DomU{ID: domID}, h.fake, client(0), slog.New(slog.NewTextHandler(&log, nil)))
	h.memory.patience = 50 * time.Millisecond
	defer h.memory.Close()
	held.Lock()
	if err := h.memory.Watch(t.Context(), func() {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("watch: %v", err)
	}
	for range 3 {
		if h.memory.look(t.Context()) {
			t.Error("it has seen a change")
		}
	}
	if n := strings.Count(log.String(), "nodes in XenStore"); n != 1 || h.memory.Over() != "" {
		t.Errorf("%d lines, over because of %q:\n%s", n, h.memory.Over(), log.String())
	}
	held.Unlock()
	h.area(100)
	h.publish(100, "5")
	if !h.memory.look(t.Context()) {
		t.Error("it sees no change when XenStore answers again")
	}
}

// A XenStore that accepts no connection blocks a hub's start for a limited time.
func TestOpenEnds(t *testing.T) {
	ended := errors.New("ended")
	_, err := Open(t.Context(), DomU{ID: domID}, func(ctx context.Context) (xenstore.Link, error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("it waits without an end")
		}
		return xenstore.Link{}, ended
	}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, ended) {
		t.Error(err)
	}
}

// buffer holds the logged text.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// An agent starts, ends, and starts again; the domU ends.
func TestRendezvous(t *testing.T) {
	h := newHost(t, DomU{})
	if h.memory.Take() != nil {
		t.Error("a control area before there is an agent")
	}
	h.area(100)
	h.publish(100, "5")
	area := h.take()
	if len(area) != wire.ControlBytes || !h.memory.Same() || area[wire.ControlAlive] != 1 {
		t.Fatalf("%d bytes", len(area))
	}
	h.page(102)[17] = 42
	if area[2*grant.PageBytes+17] != 42 {
		t.Error("it is other memory")
	}
	if err := h.guest.Remove(t.Context(), wire.StoreDir); err != nil {
		t.Fatal(err)
	}
	h.eventually("it is seen to go", func() bool { return !h.memory.Same() })
	if h.memory.Take() != nil || h.page(100)[wire.ControlAlive] != 0 || h.open != 0 {
		t.Error("the agent has gone, and its control area is there")
	}
	h.area(200)
	h.publish(200, "6")
	h.take()
	if h.memory.Over() != "" {
		t.Error("over")
	}
	h.write(wire.StoreState, "closing")
	h.eventually("it is seen to close", func() bool { return !h.memory.Same() })
	if err := h.tools.Remove(t.Context(), "/local/domain/7"); err != nil {
		t.Fatal(err)
	}
	h.eventually("the domU's end is seen", func() bool { return h.memory.Over() != "" })
}

// A restarted XenStore lacks all domUs. Those that the hypervisor has stay, until the hypervisor reports their end.
func TestForgotten(t *testing.T) {
	var lives atomic.Bool
	lives.Store(true)
	asked := make(chan struct{}, 1000)
	h := newHost(t, DomU{Lives: func() (bool, error) { asked <- struct{}{}; return lives.Load(), nil }})
	h.area(100)
	h.publish(100, "5")
	h.take()
	forget := func() {
		t.Helper()
		if err := h.tools.Remove(t.Context(), "/local/domain/7"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("the hypervisor isn't asked")
		}
	}
	forget()
	time.Sleep(10 * time.Millisecond)
	if h.memory.Over() != "" || !h.memory.Same() {
		t.Errorf("it is over (%q), or has another control area", h.memory.Over())
	}
	lives.Store(false)
	if err := h.tools.Mkdir(t.Context(), "/local/domain/7/data/pegasus"); err != nil { // which causes an event
		t.Fatal(err)
	}
	forget()
	h.eventually("the domU's end is seen", func() bool { return h.memory.Over() != "" })
}

// An invalid offer yields no control area.
func TestBadOffers(t *testing.T) {
	for name, spoil := range map[string]func(h *host){
		"not granted": func(h *host) { delete(h.granted, 100) },
		"another's":   func(h *host) { delete(h.granted, 103) },
		"no table":    func(h *host) { clear(h.page(100)) },
		"itself":      func(h *host) { wire.PutTable(h.page(100)[wire.ControlTable:], []uint32{100, 101, 102, 103}, 0) },
		"twice":       func(h *host) { wire.PutTable(h.page(100)[wire.ControlTable:], []uint32{101, 101, 102, 103}, 0) },
		"too few":     func(h *host) { wire.PutTable(h.page(100)[wire.ControlTable:], []uint32{101, 102}, 0) },
		"too many":    func(h *host) { wire.PutTable(h.page(100)[wire.ControlTable:], []uint32{101, 102, 103, 104, 105}, 0) },
		"a chain":     func(h *host) { wire.PutTable(h.page(100)[wire.ControlTable:], []uint32{101, 102, 103, 104}, 300) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, DomU{})
			h.area(100)
			spoil(h)
			h.publish(100, "5")
			h.eventually("it is refused", func() bool { return h.memory.Take() != nil || strings.Contains(h.log.String(), "cannot be used") })
			if h.memory.Take() != nil {
				t.Error("taken")
			}
		})
	}
	for _, bad := range [][4]string{
		{"", "1", "8", "5"}, {"ready", "2", "8", "5"}, {"ready", "1", "0", "5"}, {"ready", "1", "-1", "5"}, {"ready", "1", "16777216", "5"},
		{"ready", "1", "8", "4294967296"}, {"ready", "1", "8", ""}, {"ready", "1", " 8", "5"}, {"ready", "1", strings.Repeat("1", 2000), "5"},
	} {
		if o, err := parseOffer(bad[0], bad[1], bad[2], bad[3]); err == nil {
			t.Errorf("%.40q: %+v", bad, o)
		}
	}
}

// A domU that writes into XenStore all the time, and offers ever another control area, costs a read now and then.
func TestOffersWithoutEnd(t *testing.T) {
	h := newHost(t, DomU{})
	h.area(100)
	h.publish(100, "5")
	h.take()
	for range len(h.changes) {
		<-h.changes
	}
	began := time.Now()
	h.reads = 0
	for i := 0; time.Since(began) < 2*time.Second; i++ {
		h.write(wire.StoreControl, strconv.Itoa(100+i%2*100))
		h.memory.Take()
	}
	n, took := len(h.changes), time.Since(began)
	if n > int(took/lookEvery)+2 {
		t.Errorf("%d changes in %v", n, took)
	}
	if h.reads > int(took/tryEvery)+2 {
		t.Errorf("%d control areas were looked at in %v", h.reads, took)
	}
}

// Lend uses the pages of the agent's message, and they are free after TakeBack.
func TestLend(t *testing.T) {
	h := newHost(t, DomU{Memory: 3 * layout.SegmentBytes})
	h.area(100)
	h.publish(100, "5")
	h.take()
	segment := h.grant(1000, pagesOfSegment)
	s, err := h.memory.Lend(1, layout, h.tables(500, segment))
	if err != nil {
		t.Fatal(err)
	}
	if s.Parts.Bytes() != layout.SegmentBytes || len(s.Header) != grant.PageBytes {
		t.Errorf("%d bytes, and a header of %d", s.Parts.Bytes(), len(s.Header))
	}
	other := h.grant(2100, pagesOfSegment)
	if _, err := h.memory.Lend(2, layout, h.tables(500, other)); err != nil {
		t.Error(err)
	}
	h.memory.TakeBack(1)
	h.memory.TakeBack(1)
	if _, err := h.memory.Lend(3, layout, h.tables(500, segment)); err != nil {
		t.Errorf("what was taken back: %v", err)
	}
	if _, err := h.memory.Lend(4, layout, wire.Message{Kind: wire.Grant, Body: wire.GrantBody(0)}); !errors.Is(err, hub.ErrNoRoom) {
		t.Errorf("an agent without memory: %v", err)
	}
	h.memory.TakeBack(2)
	h.memory.TakeBack(3)
	small := DomU{Memory: layout.SegmentBytes - 1}
	h.memory.domU.Memory = small.Memory
	if _, err := h.memory.Lend(5, layout, h.tables(500, segment)); !errors.Is(err, hub.ErrNoRoom) {
		t.Errorf("more than the domU may share: %v", err)
	}
}

// Any limit of a domU's memory has room for one process.
func TestMostArena(t *testing.T) {
	for _, c := range []struct{ memory, arena, want uint64 }{
		{0, 0, 16 << 20}, {64 << 20, 32 << 20, 32 << 20}, {8 << 20, 0, 4 << 20}, {16 << 20, 0, 12 << 20}, {1 << 20, 0, 4 << 20}, {1 << 40, 0, 16 << 20},
	} {
		m := open(DomU{Memory: c.memory, Arena: c.arena}, nil, nil, nil)
		if m.MostArena() != c.want {
			t.Errorf("%+v: an arena of %d bytes", c, m.MostArena())
		}
	}
	g := callbuf.DefaultGeometry()
	g.ArenaBytes = 4 << 20
	if l, err := g.Layout(); err != nil || l.ArenaOffset > frontBytes {
		t.Errorf("%d bytes before an arena", l.ArenaOffset)
	}
}

// A grant that no honest agent sends ends its session, and leaves nothing mapped.
func TestBadGrants(t *testing.T) {
	h := newHost(t, DomU{})
	h.area(100)
	h.publish(100, "5")
	h.take()
	segment := h.grant(1000, pagesOfSegment)
	if _, err := h.memory.Lend(1, layout, h.tables(500, segment)); err != nil {
		t.Fatal(err)
	}
	fresh := func() []uint32 { return h.grant(2100, pagesOfSegment) }
	with := func(at int, r uint32) []uint32 { s := fresh(); s[at] = r; return s }
	for name, say := range map[string]func() wire.Message{
		"a lend":                 func() wire.Message { return wire.Message{Kind: wire.Lend, Body: make([]byte, 8)} },
		"half a grant":           func() wire.Message { return wire.Message{Kind: wire.Grant, Body: []byte{1}} },
		"a table not granted":    func() wire.Message { return wire.Message{Kind: wire.Grant, Body: wire.GrantBody(4050)} },
		"a page not granted":     func() wire.Message { return h.tables(500, with(0, 4050)) },
		"a page twice":           func() wire.Message { return h.tables(500, with(7, 2108)) },
		"a page of another":      func() wire.Message { return h.tables(500, with(7, 1003)) },
		"the control area":       func() wire.Message { return h.tables(500, with(7, 102)) },
		"one page less":          func() wire.Message { return h.tables(500, fresh()[1:]) },
		"one page more":          func() wire.Message { return h.tables(500, append(fresh(), 3500)) },
		"a chain that loops":     func() wire.Message { m := h.tables(500, fresh()[:wire.TableRefs]); loop(h, 500, 500); return m },
		"a chain of small pages": func() wire.Message { return h.dribble(500, fresh()) },
	} {
		if _, err := h.memory.Lend(2, layout, say()); err == nil || errors.Is(err, hub.ErrNoRoom) {
			t.Errorf("%s: %v", name, err)
		}
		if len(h.memory.held) != pagesOfSegment+wire.ControlPages || h.memory.lent != pagesOfSegment || h.open != 2 {
			t.Fatalf("%s leaves something: %d pages, %d lent, %d mappings", name, len(h.memory.held), h.memory.lent, h.open)
		}
	}
	if _, err := h.memory.Lend(1, layout, h.tables(500, fresh())); err == nil {
		t.Error("a second segment of one process")
	}
	h.memory.TakeBack(1)
}

// loop sets the next table of a table.
func loop(h *host, at, next grant.Ref) {
	refs, _, err := wire.ParseTable(h.page(at))
	if err != nil {
		h.t.Fatal(err)
	}
	wire.PutTable(h.page(at), refs, uint32(next))
}

// dribble puts one number into each table.
func (f *fake) dribble(at grant.Ref, refs []uint32) wire.Message {
	for i := range refs[:100] {
		r := at + grant.Ref(i)
		f.granted[r] = true
		wire.PutTable(f.page(r), refs[i:i+1], uint32(r)+1)
	}
	return wire.Message{Kind: wire.Grant, Body: wire.GrantBody(uint32(at))}
}

// For any content of the tables, the pages are as many as needed, and reading the tables ends.
func FuzzTables(f *testing.F) {
	table := make([]byte, grant.PageBytes)
	wire.PutTable(table, []uint32{5, 6, 7}, 0)
	f.Add(table, uint16(3))
	wire.PutTable(table, []uint32{5, 6, 7}, 1)
	f.Add(table, uint16(2000))
	f.Add(append(table, table...), uint16(6))
	f.Fuzz(func(t *testing.T, mem []byte, pages uint16) {
		r := &bytesReader{mem: mem}
		refs, err := segmentPages(r, 1, int(pages))
		if err == nil && len(refs) != int(pages) {
			t.Fatalf("%d pages, not %d", len(refs), pages)
		}
		if r.reads > wire.Tables(int(pages)) {
			t.Fatalf("%d tables for %d pages", r.reads, pages)
		}
		for _, ref := range refs {
			if ref == 0 || ref > wire.MaxRef {
				t.Fatalf("page %d", ref)
			}
		}
		if area, err := controlPages(r, 1); err == nil && len(area) != wire.ControlPages {
			t.Fatalf("a control area of %d pages", len(area))
		}
	})
}

// bytesReader has the pages of a text, from number 1 on and repeated.
type bytesReader struct {
	mem   []byte
	reads int
}

func (r *bytesReader) Read(ref grant.Ref) ([]byte, error) {
	r.reads++
	page := make([]byte, grant.PageBytes)
	if n := len(r.mem)/grant.PageBytes + 1; len(r.mem) > 0 {
		copy(page, r.mem[min(len(r.mem), int(ref-1)%n*grant.PageBytes):])
	}
	return page, nil
}

// Any entry in XenStore is an offer within bounds, or none.
func FuzzOffer(f *testing.F) {
	f.Add("ready", "1", "8", "5")
	f.Add("ready", "1", "99999999999999999999", "-0")
	f.Fuzz(func(t *testing.T, state, version, control, port string) {
		if o, err := parseOffer(state, version, control, port); err == nil && (o.none() || o.control > wire.MaxRef) {
			t.Fatalf("%+v", o)
		}
	})
}
