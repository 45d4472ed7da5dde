package xenstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

// scripted is a server that a test plays.
type scripted struct {
	t *testing.T
	net.Conn
	parser wire.Parser
}

// play connects a client to a server that a test plays.
func play(t *testing.T) (*xenstore.Client, *scripted) {
	there := make(chan net.Conn, 1)
	c := dial(t, func(context.Context) (xenstore.Link, error) {
		here, other := net.Pipe()
		there <- other
		return xenstore.Link{ReadWriteCloser: here}, nil
	})
	s := &scripted{t: t, Conn: <-there}
	t.Cleanup(func() { s.Close() })
	return c, s
}

// asked returns the next request.
func (s *scripted) asked() wire.Packet {
	p, err := s.next()
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// next returns the next request, or an error.
func (s *scripted) next() (wire.Packet, error) {
	b := make([]byte, 64)
	for {
		p, ok, err := s.parser.Next()
		if ok || err != nil {
			return p, err
		}
		n, err := s.Read(b)
		if err != nil {
			return wire.Packet{}, err
		}
		s.parser.Feed(b[:n])
	}
}

// say sends a packet; the connection may have ended.
func (s *scripted) say(p wire.Packet) { s.Write(p.Append(nil)) }

// answer answers with a body.
func (s *scripted) answer(q wire.Packet, body string) {
	q.Body = []byte(body)
	s.say(q)
}

// later calls `ask` in another goroutine.
func later[T any](ask func() (T, error)) func() (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := ask()
		done <- outcome{value, err}
	}()
	return func() (T, error) {
		o := <-done
		return o.value, o.err
	}
}

// Answers may come in any order.
func TestAnyOrder(t *testing.T) {
	c, s := play(t)
	var questions []wire.Packet
	var waits []func() ([]byte, error)
	for i := range 5 {
		waits = append(waits, later(func() ([]byte, error) { return c.Read(t.Context(), fmt.Sprint("/", i)) }))
		questions = append(questions, s.asked())
	}
	for i := range questions {
		q := questions[len(questions)-1-i]
		s.answer(q, "value of "+wire.Text(q.Body))
	}
	for i, wait := range waits {
		if got, err := wait(); err != nil || string(got) != fmt.Sprint("value of /", i) {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
}

// The late answer to a cancelled call isn't taken for another's.
func TestLateAnswer(t *testing.T) {
	c, s := play(t)
	ctx, cancel := context.WithCancel(t.Context())
	wait := later(func() ([]byte, error) { return c.Read(ctx, "/late") })
	late := s.asked()
	cancel()
	_, err := wait()
	fails(t, err, context.Canceled)
	wait = later(func() ([]byte, error) { return c.Read(t.Context(), "/next") })
	next := s.asked()
	s.answer(late, "late")
	s.answer(next, "next")
	if got, err := wait(); err != nil || string(got) != "next" {
		t.Errorf("%q, %v", got, err)
	}
}

// A call that is cancelled while others are being sent isn't sent.
func TestUnsent(t *testing.T) {
	c, s := play(t)
	first := later(func() ([]byte, error) { return c.Read(t.Context(), "/first") })
	one := make([]byte, 1) // of the first: the rest blocks until we read
	if _, err := s.Read(one); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := c.Read(ctx, "/second")
	fails(t, err, context.DeadlineExceeded)
	s.parser.Feed(one)
	q := s.asked()
	third := later(func() ([]byte, error) { return c.Read(t.Context(), "/third") })
	for _, want := range []string{"/first", "/third"} {
		if wire.Text(q.Body) != want {
			t.Fatalf("%s was asked for, wanted %s", wire.Text(q.Body), want)
		}
		s.answer(q, want)
		if want == "/first" {
			q = s.asked()
		}
	}
	for _, wait := range []func() ([]byte, error){first, third} {
		_, err := wait()
		ok(t, err)
	}
}

// An abandoned start of a transaction or watch is undone.
func TestUndone(t *testing.T) {
	c, s := play(t)
	ctx, cancel := context.WithCancel(t.Context())
	begin := later(func() (*xenstore.Tx, error) { return c.Begin(ctx) })
	q := s.asked()
	watch := later(func() (*xenstore.Watch, error) { return c.Watch(ctx, "/v") })
	w := s.asked()
	cancel()
	_, err := begin()
	fails(t, err, context.Canceled)
	_, err = watch()
	fails(t, err, context.Canceled)
	s.answer(q, "77\x00")
	if end := s.asked(); end.Type != wire.TransactionEnd || end.Tx != 77 || string(end.Body) != "F\x00" {
		t.Errorf("asked %+v, wanted the end of transaction 77", end)
	}
	s.answer(w, "OK\x00")
	if end := s.asked(); end.Type != wire.Unwatch || string(end.Body) != string(w.Body) {
		t.Errorf("asked %+v, wanted the end of the watch %q", end, w.Body)
	}
}

// A watch that is closed with an expired context is removed all the same.
func TestCloseInAHurry(t *testing.T) {
	c, s := play(t)
	wait := later(func() (*xenstore.Watch, error) { return c.Watch(t.Context(), "/v") })
	q := s.asked()
	s.answer(q, "OK\x00")
	w, err := wait()
	ok(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	fails(t, w.Close(over), context.Canceled)
	if end := s.asked(); end.Type != wire.Unwatch || string(end.Body) != string(q.Body) {
		t.Errorf("asked %+v, wanted the end of the watch %q", end, q.Body)
	}
}

// A connection to a server that breaks the protocol ends, and the error describes the violation.
func TestBroken(t *testing.T) {
	for want, bad := range map[string]func(*scripted, wire.Packet){
		"nothing that was asked": func(s *scripted, q wire.Packet) { q.ID++; s.answer(q, "") },
		"READ answered by WRITE": func(s *scripted, q wire.Packet) { q.Type = wire.Write; s.answer(q, "") },
		"longer than": func(s *scripted, _ wire.Packet) {
			s.Write([]byte("\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"))
		},
		"an event of": func(s *scripted, _ wire.Packet) { s.say(wire.Packet{Type: wire.WatchEvent, Body: []byte("/v")}) },
	} {
		c, s := play(t)
		wait := later(func() ([]byte, error) { return c.Read(t.Context(), "/v") })
		bad(s, s.asked())
		_, err := wait()
		fails(t, err, xenstore.ErrLost)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %q in it", err, want)
		}
	}
}

// Invalid answers are errors of their calls only.
func TestNonsense(t *testing.T) {
	c, s := play(t)
	ctx := t.Context()
	for i, ask := range []func() error{
		func() error { _, err := c.Begin(ctx); return err },
		func() error { _, err := c.IsIntroduced(ctx, 1); return err },
		func() error { _, err := c.Perms(ctx, "/v"); return err },
		func() error { _, err := c.Features(ctx); return err },
	} {
		wait := later(func() (int, error) { return 0, ask() })
		s.answer(s.asked(), "nonsense\x00")
		if _, err := wait(); err == nil || errors.Is(err, xenstore.ErrLost) {
			t.Errorf("%d: %v", i, err)
		}
	}
	wait := later(func() ([]byte, error) { return c.Read(ctx, "/v") })
	q := s.asked()
	q.Type = wire.Error
	s.answer(q, "EWEIRD\x00")
	if _, err := wait(); err == nil || !strings.Contains(err.Error(), "EWEIRD") {
		t.Errorf("%v", err)
	}
}

// A directory in parts that changes between them is read again.
func TestListAgain(t *testing.T) {
	c, s := play(t)
	wait := later(func() ([]string, error) { return c.List(t.Context(), "/d") })
	long := s.asked()
	long.Type = wire.Error
	s.answer(long, "E2BIG\x00")
	for i, answer := range []string{"1\x00a\x00b\x00", "2\x00d\x00\x00", "2\x00a\x00bb\x00", "2\x00c\x00\x00"} {
		q := s.asked()
		if want := fmt.Sprintf("/d\x00%d\x00", []int{0, 4, 0, 5}[i]); q.Type != wire.DirectoryPart || string(q.Body) != want {
			t.Fatalf("asked %s %q, wanted %q", q.Type, q.Body, want)
		}
		s.answer(q, answer)
	}
	if got, err := wait(); err != nil || strings.Join(got, " ") != "a bb c" {
		t.Errorf("%q, %v", got, err)
	}
}

// A directory without an end isn't read for ever.
func TestListWithoutEnd(t *testing.T) {
	const most = 10_000 // answers
	part := "1\x00" + strings.Repeat(strings.Repeat("n", 99)+"\x00", 40)
	answered := make(chan int, 1)
	c := dial(t, script(t, func(l net.Conn) {
		s, n := &scripted{t: t, Conn: l}, 0
		for ; n < most; n++ {
			q, err := s.next()
			if err != nil {
				break
			}
			if q.Type == wire.Directory {
				q.Type = wire.Error
				s.answer(q, "E2BIG\x00")
			} else {
				s.answer(q, part)
			}
		}
		l.Close()
		answered <- n
	}))
	names, err := c.List(t.Context(), "/d")
	fails(t, err, syscall.E2BIG)
	c.Close()
	if n := <-answered; n == most || names != nil {
		t.Errorf("%d parts, %d names", n, len(names))
	}
}

// Features of servers since Xen 4.22.
func TestNewer(t *testing.T) {
	c, s := play(t)
	ctx := t.Context()
	number := func(f func() (uint32, error)) func() (string, error) {
		return func() (string, error) { n, err := f(); return fmt.Sprint(n), err }
	}
	none := func(f func() error) func() (string, error) { return func() (string, error) { return "", f() } }
	for _, test := range []struct {
		ask          func() (string, error)
		typ          wire.Type
		body, answer string
		want         string
	}{
		{number(func() (uint32, error) { return c.Features(ctx) }), wire.GetFeature, "", "5\x00", "5"},
		{number(func() (uint32, error) { return c.FeaturesOf(ctx, 3) }), wire.GetFeature, "3\x00", "4\x00", "4"},
		{none(func() error { return c.SetFeatures(ctx, 3, 4) }), wire.SetFeature, "3\x004\x00", "OK\x00", ""},
		{number(func() (uint32, error) { return c.Quota(ctx, "nodes") }), wire.GetQuota, "nodes\x00", "1000\x00", "1000"},
		{number(func() (uint32, error) { return c.QuotaOf(ctx, 3, "nodes") }), wire.GetQuota, "3\x00nodes\x00", "10\x00", "10"},
		{none(func() error { return c.SetQuota(ctx, "nodes", 7) }), wire.SetQuota, "nodes\x007\x00", "OK\x00", ""},
		{none(func() error { return c.SetQuotaOf(ctx, 3, "nodes", 7) }), wire.SetQuota, "3\x00nodes\x007\x00", "OK\x00", ""},
		{func() (string, error) { all, err := c.Quotas(ctx); return strings.Join(all, ","), err }, wire.GetQuota, "", "nodes watches\x00", "nodes,watches"},
		{func() (string, error) { return c.Control(ctx, "log", "on") }, wire.Control, "log\x00on\x00", "OK\x00", "OK"},
	} {
		wait := later(test.ask)
		q := s.asked()
		s.answer(q, test.answer)
		if got, err := wait(); q.Type != test.typ || string(q.Body) != test.body || got != test.want || err != nil {
			t.Errorf("%s %q gives %q, %v; wanted %s %q, %q", q.Type, q.Body, got, err, test.typ, test.body, test.want)
		}
	}
	wait := later(func() (*xenstore.Watch, error) { return c.WatchDepth(ctx, "/v", 1) })
	q := s.asked()
	if parts := wire.Split(q.Body); len(parts) != 3 || parts[0] != "/v" || parts[2] != "1" {
		t.Errorf("asked %q", q.Body)
	}
	s.answer(q, "OK\x00")
	_, err := wait()
	ok(t, err)
	wait2 := later(func() (uint32, error) { return c.Features(ctx) })
	q = s.asked()
	q.Type = wire.Error
	s.answer(q, "ENOSYS\x00")
	_, err = wait2()
	fails(t, err, syscall.ENOSYS)
}

// A watch that is set after a reset doesn't count as one of the reset ones.
func TestSetAfterReset(t *testing.T) {
	c, s := play(t)
	old := later(func() (*xenstore.Watch, error) { return c.Watch(t.Context(), "/old") })
	s.answer(s.asked(), "OK\x00")
	before, err := old()
	ok(t, err)
	reset := later(func() (int, error) { return 0, c.ResetWatches(t.Context()) })
	first := s.asked()
	watch := later(func() (*xenstore.Watch, error) { return c.Watch(t.Context(), "/v") })
	second := s.asked()
	s.answer(first, "OK\x00")
	_, err = reset()
	ok(t, err)
	s.answer(second, "OK\x00")
	w, err := watch()
	ok(t, err)
	s.say(wire.Packet{Type: wire.WatchEvent, Body: second.Body})
	if e, err := w.Next(t.Context()); err != nil || e.Path != "/v" {
		t.Errorf("%+v, %v", e, err)
	}
	_, err = before.Next(t.Context())
	fails(t, err, xenstore.ErrEnded)
}
