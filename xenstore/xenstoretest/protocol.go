package xenstoretest

import (
	"errors"
	"io"
	"slices"
	"time"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

// link is a connection without a client.
type link struct {
	xenstore.Link
	parser wire.Parser
}

// raw connects without a client, until the case's end.
func (e *env) raw() *link {
	l, err := e.Dial(e.ctx)
	e.ok(err)
	e.later(func() { l.Close() })
	return &link{Link: l}
}

// next returns the next packet. The connection is closed if the server sends nothing.
func (l *link) next() (wire.Packet, error) {
	timer := time.AfterFunc(30*time.Second, func() { l.Close() })
	defer timer.Stop()
	b := make([]byte, wire.BodyMax)
	for {
		p, ok, err := l.parser.Next()
		if ok || err != nil {
			return p, err
		}
		n, err := l.Read(b)
		l.parser.Feed(b[:n])
		if err != nil {
			return wire.Packet{}, err
		}
	}
}

// answers sends a request and expects the given answer.
func (e *env) answers(l *link, q wire.Packet, typ wire.Type, body string) {
	_, err := l.Write(q.Append(nil))
	e.ok(err)
	p, err := l.next()
	e.ok(err)
	if p.Type != typ || p.ID != q.ID || p.Tx != q.Tx || string(p.Body) != body {
		e.Fatalf("%s is answered by %s, id %d, tx %d, %q; wanted %s, %d, %d, %q", q.Type, p.Type, p.ID, p.Tx, p.Body, typ, q.ID, q.Tx, body)
	}
}

var protocolCases = []Case{
	needsMany(Case{Name: "what the server does not know", check: func(e *env) {
		l := e.raw()
		for _, typ := range []wire.Type{20, wire.WatchEvent, wire.Error, 99, wire.Invalid} {
			e.answers(l, wire.Packet{Type: typ, ID: 1 << 31, Body: wire.Join("x")}, wire.Error, "ENOSYS\x00")
		}
		e.answers(l, wire.Packet{Type: wire.Read, ID: 1, Body: wire.Join(e.base)}, wire.Read, "")
	}}),
	needsMany(Case{Name: "bodies that are not right", check: func(e *env) {
		// Invalid bodies of READ and others that take just a path aren't tested: Xen 4.17's server fails to answer,
		// and ends.
		l := e.raw()
		for i, p := range []wire.Packet{
			{Type: wire.Write}, {Type: wire.Write, Body: []byte("/x")},
			{Type: wire.SetPerms}, {Type: wire.SetPerms, Body: wire.Join("/")},
			{Type: wire.DirectoryPart}, {Type: wire.DirectoryPart, Body: wire.Join("/")},
			{Type: wire.TransactionEnd}, {Type: wire.TransactionEnd, Body: wire.Join("X")},
			{Type: wire.GetDomainPath}, {Type: wire.GetDomainPath, Body: []byte("5")},
		} {
			p.ID = uint32(i)
			e.answers(l, p, wire.Error, "EINVAL\x00")
		}
	}}),
	needsLink(needsMany(Case{Name: "a body that is too long", check: func(e *env) {
		l := e.raw()
		b := wire.Packet{Type: wire.Read, ID: 1, Body: make([]byte, wire.BodyMax)}.Append(nil)
		b[13]++ // another 256 bytes
		if _, err := l.Write(b); err == nil {
			_, err = l.next()
			if !errors.Is(err, io.EOF) && err == nil {
				e.Fatalf("it is answered")
			}
		}
		e.lists(e.c, e.base)
	}})),
	needsLink(needsMany(Case{Name: "packets cut anywhere", check: func(e *env) {
		l := e.raw()
		b := wire.Packet{Type: wire.Write, ID: 7, Body: append(wire.Join(e.path("v")), "value"...)}.Append(nil)
		for i := range b {
			_, err := l.Write(b[i : i+1])
			e.ok(err)
		}
		p, err := l.next()
		e.ok(err)
		if p.Type != wire.Write || p.ID != 7 {
			e.Fatalf("answered by %+v", p)
		}
		e.reads(e.c, e.path("v"), "value")
	}})),
	needsLink(needsMany(Case{Name: "many requests before the first answer", check: func(e *env) {
		l := e.raw()
		const count = 50
		var want, got []uint32
		for id := range uint32(count) {
			_, err := l.Write(wire.Packet{Type: wire.GetDomainPath, ID: id * 7919, Body: wire.Join("5")}.Append(nil))
			e.ok(err)
			want = append(want, id*7919)
		}
		for range count {
			p, err := l.next()
			e.ok(err)
			if wire.Text(p.Body) != "/local/domain/5" {
				e.Fatalf("answered by %+v", p)
			}
			got = append(got, p.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			e.Errorf("ids %v", got)
		}
	}})),
}
