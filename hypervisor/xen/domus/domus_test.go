package domus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/internal/testkit"
	"pegasus/xenstore"
	"pegasus/xenstore/memory"
	"pegasus/xenstore/wire"
)

// host has a XenStore and a hypervisor that agree as far as the test makes them.
type host struct {
	t     *testing.T
	store *memory.Server
	tools *xenstore.Client
	files Files
	units *DomUs

	mu       sync.Mutex
	domains  map[uint16]uint32 // flags
	broken   error             // the hypervisor's error
	reported []hypervisor.Machine
	times    int
	said     bytes.Buffer
}

func newHost(t *testing.T) *host {
	h := &host{t: t, store: memory.New(memory.Options{}), domains: map[uint16]uint32{0: control.DomainRunning}}
	h.files = Files{Dir: filepath.Join(t.TempDir(), "machines"), Valid: func(name string) error {
		if strings.ContainsAny(name, " /") {
			return errors.New("a name that none can have")
		}
		return nil
	}}
	var err error
	if h.tools, err = xenstore.DialAgain(t.Context(), h.store.Domain(0)); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(writer{h}, nil))
	h.units = &DomUs{Files: h.files, Dial: h.store.Domain(0), List: h.list, Log: log}
	t.Cleanup(func() {
		h.tools.Close()
		h.store.Close()
	})
	return h
}

// writer appends to the host's log.
type writer struct{ h *host }

func (w writer) Write(b []byte) (int, error) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	return w.h.said.Write(b)
}

func (h *host) watch() {
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.units.Watch(ctx, func(all []hypervisor.Machine) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.reported = all
			h.times++
		})
	}()
	h.t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (h *host) list() (all []control.Domain, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.domains)) { // in the hypervisor's order
		all = append(all, control.Domain{ID: id, Flags: h.domains[id]})
	}
	return all, h.broken
}

func (h *host) attach(name string) {
	h.t.Helper()
	if err := h.files.Write(Attachment{Name: name, Memory: DefaultMemory}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) flags(id uint16, flags uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.domains[id] = flags
}

// create simulates the tool stack's creation of a domU.
func (h *host) create(id uint16, name string) {
	h.t.Helper()
	h.flags(id, control.DomainPaused)
	h.name(id, name)
	if err := h.tools.Introduce(h.t.Context(), wire.DomID(id), 1, 1); err != nil {
		h.t.Fatal(err)
	}
	h.flags(id, control.DomainRunning)
}

func (h *host) name(id uint16, name string) {
	h.t.Helper()
	err := errors.New("not tried")
	for i := 0; err != nil; i++ { // calls in flight at the loss of a connection fail
		if err = h.tools.Write(h.t.Context(), namePath(id), []byte(name)); err != nil && i == 3 {
			h.t.Fatal(err)
		}
	}
}

func (h *host) destroy(id uint16) {
	h.t.Helper()
	if err := h.tools.Remove(h.t.Context(), dirOf(id)); err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	delete(h.domains, id)
	h.mu.Unlock()
	h.store.Destroy(wire.DomID(id))
}

// await waits until the machines reported last are "name:state:id …", in order.
func (h *host) await(want string) {
	h.t.Helper()
	var is string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		h.mu.Lock()
		var all []string
		for _, m := range h.reported {
			all = append(all, fmt.Sprintf("%s:%s:%d", m.Domain, m.State, m.Xen))
		}
		times := h.times
		h.mu.Unlock()
		if is = strings.Join(all, " "); is == want && times > 0 {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("told was %q, not %q", is, want)
		}
	}
}

func (h *host) awaitSaid(want string) {
	h.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		h.mu.Lock()
		is := h.said.String()
		h.mu.Unlock()
		if strings.Contains(is, want) {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("%q wasn't said:\n%s", want, is)
		}
	}
}

func (h *host) boot(name string) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.reported {
		if m.Domain == name {
			return m.Boot
		}
	}
	return 0
}

// All changes of domUs are reported, whichever source has them.
func TestLife(t *testing.T) {
	h := newHost(t)
	h.create(3, "web")
	h.watch()
	h.await("")
	h.attach("web")
	h.attach("db")
	h.await("db:off:0 web:running:3")
	if id, ok := h.units.ID("web"); id != 3 || !ok {
		t.Errorf("web is domain %d, %v", id, ok)
	}
	if _, ok := h.units.ID("db"); ok {
		t.Error("a domU that is off has a number")
	}
	boot := h.boot("web")

	h.flags(3, control.DomainPaused)
	h.await("db:off:0 web:paused:3")
	h.flags(3, control.DomainBlocked)
	h.await("db:off:0 web:running:3")
	h.flags(3, control.DomainShutdown|shutdownSuspend<<16) // the domU is being saved
	h.await("db:off:0 web:paused:3")
	h.flags(3, control.DomainBlocked)
	h.await("db:off:0 web:running:3")
	if now := h.boot("web"); now != boot || boot == 0 {
		t.Errorf("it has begun anew: %d, then %d", boot, now)
	}

	const crashed = 3
	h.flags(3, control.DomainShutdown|crashed<<16) // and kept for inspection
	h.await("db:off:0 web:off:0")
	h.create(4, "db")
	h.create(5, "web")
	h.await("db:running:4 web:running:5")
	if now := h.boot("web"); now == boot {
		t.Error("another domain has the number of the boot before")
	}
	h.flags(4, control.DomainDying|control.DomainPaused)
	h.await("db:off:0 web:running:5")
	h.destroy(4)
	h.destroy(5)
	h.await("db:off:0 web:off:0")
	if err := h.files.Remove("db"); err != nil {
		t.Fatal(err)
	}
	h.await("web:off:0")
}

// A name means one domU: the one that had it, else the first.
func TestNames(t *testing.T) {
	h := newHost(t)
	h.attach("web")
	h.attach("shop")
	h.create(7, "web")
	h.create(8, "a name")
	h.create(9, "not attached")
	h.watch()
	h.await("shop:off:0 web:running:7")
	h.create(5, "web")
	h.awaitSaid("several domUs have one name")
	h.await("shop:off:0 web:running:7")
	h.name(7, "shop")
	h.await("shop:running:7 web:running:5")
	h.awaitSaid("a domU was renamed")
	h.name(8, "web") // this one is younger
	h.destroy(5)
	h.await("shop:running:7 web:running:8")
}

// A daemon that starts after XenStore has lost its data identifies the domUs with hubs by these, and no others.
func TestStoreEmpty(t *testing.T) {
	h := newHost(t)
	h.attach("web")
	h.attach("db")
	h.create(3, "web")
	h.create(4, "db")
	if err := h.tools.Remove(t.Context(), domainsDir); err != nil {
		t.Fatal(err)
	}
	h.units.Served = func() map[uint16]string { return map[uint16]string{3: "web", 9: "db"} }
	h.watch()
	h.await("db:off:0 web:running:3")
	h.mu.Lock()
	delete(h.domains, 3)
	h.mu.Unlock()
	h.await("db:off:0 web:off:0")
}

// Of several domUs of one name a restarted daemon keeps serving the one with a hub, not the first.
func TestTwinServed(t *testing.T) {
	h := newHost(t)
	h.attach("web")
	h.create(5, "web")
	h.create(9, "web")
	h.units.Served = func() map[uint16]string { return map[uint16]string{9: "web"} }
	h.watch()
	h.await("web:running:9")
	h.awaitSaid("several domUs have one name")
	h.destroy(9)
	h.await("web:running:5")
}

// A domain without a name is watched once, as others are.
func TestNoName(t *testing.T) {
	h := newHost(t)
	h.create(6, "")
	n := &naming{client: h.tools, changed: make(chan struct{}, 1), watched: map[uint16]*xenstore.Watch{}}
	if err := n.read(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	first := n.watched[6]
	if err := n.read(t.Context(), nil); err != nil || first == nil || n.watched[6] != first {
		t.Errorf("%v: its name is watched by %p, then %p", err, first, n.watched[6])
	}
}

// A XenStore that has lost its data, or is away, ends no domU's service.
func TestStoreAway(t *testing.T) {
	h := newHost(t)
	h.attach("web")
	h.attach("db")
	h.create(3, "web")
	h.watch()
	h.await("db:off:0 web:running:3")
	if err := h.tools.Remove(t.Context(), domainsDir); err != nil {
		t.Fatal(err)
	}
	h.awaitSaid("domU missing from XenStore")
	h.await("db:off:0 web:running:3")
	h.flags(3, control.DomainPaused)
	h.await("db:off:0 web:paused:3")
	h.store.Disconnect() // and all clients connect again
	h.create(4, "db")
	h.await("db:running:4 web:paused:3")
	h.store.Close()
	h.awaitSaid("XenStore doesn't answer")
	h.flags(3, control.DomainRunning)
	h.await("db:running:4 web:running:3")
	h.flags(3, control.DomainDying)
	h.await("db:running:4 web:off:0")
}

// Before XenStore has answered nothing is reported: a restarted daemon would end running hubs.
func TestStoreLate(t *testing.T) {
	h := newHost(t)
	h.attach("web")
	h.create(3, "web")
	var mu sync.Mutex
	there, dial := false, h.units.Dial
	h.units.Dial = func(ctx context.Context) (xenstore.Link, error) {
		mu.Lock()
		defer mu.Unlock()
		if !there {
			return xenstore.Link{}, errors.New("there is none")
		}
		return dial(ctx)
	}
	h.watch()
	h.awaitSaid("there is none")
	h.mu.Lock()
	h.broken = errors.New("no such call")
	times := h.times
	h.mu.Unlock()
	if times != 0 {
		t.Error("something was told")
	}
	mu.Lock()
	there = true
	mu.Unlock()
	h.awaitSaid("no such call")
	h.mu.Lock()
	h.broken, times = nil, h.times
	h.mu.Unlock()
	if times != 0 {
		t.Error("something was told without the hypervisor")
	}
	h.await("web:running:3")
	h.awaitSaid("the hypervisor answers again")
}

// A XenStore that accepts no connection is logged, and dialled again.
func TestStoreHangs(t *testing.T) {
	h := newHost(t)
	h.attach("web")
	h.create(3, "web")
	var hangs atomic.Bool
	hangs.Store(true)
	dial := h.units.Dial
	h.units.Dial = func(ctx context.Context) (xenstore.Link, error) {
		if hangs.Load() {
			<-ctx.Done()
			return xenstore.Link{}, ctx.Err()
		}
		return dial(ctx)
	}
	h.watch()
	h.awaitSaid("XenStore doesn't answer")
	hangs.Store(false)
	h.await("web:running:3")
}

// An agent announces its presence itself.
func TestAgent(t *testing.T) {
	h := newHost(t)
	h.attach("web")
	h.create(3, "web")
	h.watch()
	h.await("web:running:3")
	if h.units.Agent("web") || h.units.Agent("nobody") {
		t.Error("there is an agent")
	}
	if err := h.tools.Write(t.Context(), dirOf(3)+"/data/pegasus/state", []byte("ready")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "its agent is seen", func() bool { return h.units.Agent("web") })
}

func TestIsDom0(t *testing.T) {
	for text, want := range map[string]bool{"control_d\n": true, "": false} {
		path := filepath.Join(t.TempDir(), "capabilities")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if IsDom0(path) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	if IsDom0("/nowhere") {
		t.Error("a machine without Xen is Dom0")
	}
}
