package xenstoretest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/xenstore"
	"pegasus/xenstore/memory"
	"pegasus/xenstore/real"
)

// party is one server with the same three clients connected: tools and two guests.
type party struct {
	name    string
	clients []*xenstore.Client
	txs     [3]*xenstore.Tx
	watches []*xenstore.Watch
}

var partyDoms = []xenstore.DomID{0, guest, other}

func newParty(t *testing.T, name string, as func(xenstore.DomID) xenstore.Dialer) *party {
	p := &party{name: name}
	ctx := t.Context()
	for _, dom := range partyDoms {
		c, err := xenstore.Dial(ctx, as(dom))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		p.clients = append(p.clients, c)
		home := fmt.Sprint("/local/domain/", dom)
		if err := p.clients[0].Mkdir(ctx, home); err != nil {
			t.Fatal(err)
		}
		if err := p.clients[0].SetPerms(ctx, home, xenstore.Perm{Dom: dom}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// step is an operation of a client, the same at each server.
type step struct {
	who   int
	what  string
	path  string
	value string
	perms []xenstore.Perm
}

// as returns a copy of the step with another operation.
func (s step) as(what string) step {
	s.what = what
	return s
}

func randomStep(r *rand.Rand) step {
	homes := []string{"", "/d", "/local/domain/30171", "/local/domain/30172"}
	s := step{who: r.IntN(3), path: homes[r.IntN(len(homes))], value: fmt.Sprint(r.IntN(100))}
	for range r.IntN(4) {
		s.path += "/" + string("abc"[r.IntN(3)])
	}
	s.path = strings.TrimPrefix(s.path, strings.Repeat("/", r.IntN(2))) // often relative
	if s.path == "" {
		s.path = "/"
	}
	what := []string{"read", "read", "write", "write", "write", "mkdir", "remove", "list", "list", "perms", "set perms", "set perms", "begin", "commit", "abort", "watch", "unwatch"}
	s.what = what[r.IntN(len(what))]
	for range 1 + r.IntN(3) {
		s.perms = append(s.perms, xenstore.Perm{Access: xenstore.Access(r.IntN(4)), Dom: partyDoms[r.IntN(3)]})
	}
	if s.what == "remove" && len(s.path) < 4 {
		s.what = "list" // else few nodes would remain
	}
	return s
}

// do runs a step and returns its outcome. A client with a transaction uses that, as a rule.
func (p *party) do(ctx context.Context, s step) string {
	c := p.clients[s.who]
	n, tx := c.Nodes, p.txs[s.who]
	if tx != nil {
		n = tx.Nodes
	}
	var got any
	var err error
	switch s.what {
	case "read":
		var b []byte
		b, err = n.Read(ctx, s.path)
		got = string(b)
	case "write":
		err = n.Write(ctx, s.path, []byte(s.value))
	case "mkdir":
		err = n.Mkdir(ctx, s.path)
	case "remove":
		err = n.Remove(ctx, s.path)
	case "list":
		got, err = n.List(ctx, s.path)
	case "perms":
		got, err = n.Perms(ctx, s.path)
	case "set perms":
		err = n.SetPerms(ctx, s.path, s.perms...)
	case "begin":
		if tx == nil {
			p.txs[s.who], err = c.Begin(ctx)
		}
	case "commit":
		if tx != nil {
			err, p.txs[s.who] = tx.Commit(ctx), nil
		}
	case "abort":
		if tx != nil {
			tx.Abort()
			p.txs[s.who] = nil
		}
	case "watch":
		var w *xenstore.Watch
		if w, err = c.Watch(ctx, s.path); err == nil {
			p.watches = append(p.watches, w)
		}
	case "unwatch":
		if len(p.watches) > 10 {
			err = p.watches[0].Close(ctx)
			p.watches = p.watches[1:]
		}
	}
	var e *xenstore.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return fmt.Sprint(got, " ", err)
}

// gotEvents returns all watches' events since the last call, and the whole store.
func (p *party) gotEvents(ctx context.Context) string {
	var b strings.Builder
	for i, c := range p.clients {
		mark, err := c.Watch(ctx, fmt.Sprint("mark", i))
		if err == nil {
			_, err = mark.Next(ctx)
		}
		if err == nil {
			err = mark.Close(ctx)
		}
		if err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	for i, w := range p.watches {
		all := w.Take()
		slices.SortFunc(all, func(a, b xenstore.Event) int { return strings.Compare(a.Path, b.Path) })
		fmt.Fprintln(&b, i, w.Path(), all)
	}
	p.tree(ctx, &b, "/")
	return b.String()
}

func (p *party) tree(ctx context.Context, b *strings.Builder, path string) {
	c := p.clients[0]
	value, err := c.Read(ctx, path)
	perms, err2 := c.Perms(ctx, path)
	names, err3 := c.List(ctx, path)
	fmt.Fprintf(b, "%s %q %v %v %v %v\n", path, value, perms, err, err2, err3)
	for _, name := range names {
		p.tree(ctx, b, strings.TrimSuffix(path, "/")+"/"+name)
	}
}

// For any operations of tools and guests, alone and in transactions, the server in memory answers, stores and sends
// the same as Xen's own.
func TestSame(t *testing.T) {
	steps := 6000
	if testing.Short() {
		steps = 1500
	}
	s, err := real.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	m := memory.New(memory.Options{})
	t.Cleanup(m.Close)
	theirs, ours := newParty(t, "Xen's", s.Domain), newParty(t, "ours", m.Domain)
	r := rand.New(rand.NewPCG(seed(t), 0))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	outcomes := map[string]int{}
	var done []step
	for i := range steps {
		step := randomStep(r)
		done = append(done, step)
		want, got := theirs.do(ctx, step), ours.do(ctx, step)
		if got != want {
			t.Fatalf("step %d, %+v: Xen's server says %s, ours %s\nbefore that: %+v", i, step, want, got, done[max(0, len(done)-20):])
		}
		if strings.HasSuffix(want, syscall.EIO.Error()) || strings.HasSuffix(want, syscall.EINVAL.Error()) { // a transaction that has seen an inconsistent state can't be committed
			for _, p := range []*party{theirs, ours} {
				p.do(ctx, step.as("abort"))
			}
		}
		outcomes[step.what+want[strings.LastIndex(want, " "):]]++
		if i%50 == 49 {
			if want, got := theirs.gotEvents(ctx), ours.gotEvents(ctx); got != want {
				t.Fatalf("after step %d Xen's server has\n%s\nours\n%s\nthe last steps: %+v", i, want, got, done[max(0, len(done)-50):])
			}
		}
	}
	t.Log(outcomes)
}

// seed returns the seed of a test: a constant, unless PEGASUS_TEST_SEED is a number or "fresh".
func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(1)
	switch s := os.Getenv("PEGASUS_TEST_SEED"); s {
	case "":
	case "fresh":
		n = uint64(time.Now().UnixNano())
	default:
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PEGASUS_TEST_SEED=%d", n)
	return n
}
