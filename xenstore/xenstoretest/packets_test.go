package xenstoretest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pegasus/xenstore"
	"pegasus/xenstore/memory"
	"pegasus/xenstore/real"
	"pegasus/xenstore/wire"
)

// store is a server, and its connections in packets: of domains 0, guest and other, by their index in partyDoms.
type store struct {
	name    string
	dial    func(xenstore.DomID) xenstore.Dialer
	destroy func(xenstore.DomID) error
	back    func(xenstore.DomID) error // makes a destroyed domain possible again
	links   [3]*link
	open    [3][]uint32 // transactions
	said    []string    // events that domain 0 received meanwhile
}

// connect connects a domain, again if it was connected before.
func (s *store) connect(t *testing.T, who int) {
	if l := s.links[who]; l != nil {
		l.Close()
	}
	l, err := s.dial(partyDoms[who])(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	t.Cleanup(func() { l.Close() })
	s.links[who], s.open[who] = &link{Link: l}, nil
	if home := fmt.Sprint("/local/domain/", partyDoms[who]); who > 0 {
		_, made := s.say(t, 0, wire.Packet{Type: wire.Mkdir, Body: wire.Join(home)})
		_, given := s.say(t, 0, wire.Packet{Type: wire.SetPerms, Body: wire.Join(home, fmt.Sprint("n", partyDoms[who]))})
		s.said = slices.Concat(s.said, made, given)
	}
}

// say sends a packet and returns its answer, and the events that came before that.
func (s *store) say(t *testing.T, who int, q wire.Packet) (answer wire.Packet, events []string) {
	l := s.links[who]
	if _, err := l.Write(q.Append(nil)); err != nil {
		t.Fatalf("%s takes no %s %q from %d: %v", s.name, q.Type, q.Body, who, err)
	}
	for {
		p, err := l.next()
		if err != nil {
			t.Fatalf("%s doesn't answer %s (tx %d) %q of %d: %v", s.name, q.Type, q.Tx, q.Body, who, err)
		}
		if p.Type != wire.WatchEvent {
			return p, events
		}
		events = append(events, string(p.Body))
	}
}

// gotEvents returns the events of all domains, each once: the same one isn't sent again while it waits to be read.
func (s *store) gotEvents(t *testing.T, first [3][]string) string {
	var b strings.Builder
	first[0] = append(first[0], s.said...)
	s.said = nil
	for who := range s.links {
		_, events := s.say(t, who, wire.Packet{Type: wire.GetDomainPath, Body: wire.Join("1")})
		events = append(first[who], events...)
		slices.Sort(events)
		fmt.Fprintf(&b, "%d: %q\n", who, slices.Compact(events))
	}
	return b.String()
}

// bodies generates packets' bodies.
type bodies struct{ *rand.Rand }

func (r bodies) of(all ...string) string { return all[r.IntN(len(all))] }

func (r bodies) path() string {
	switch r.IntN(25) {
	case 0:
		return r.of("", "/", "//", "a/", "/a//b", "a b", "/a.b", "/ä", "@", "@x", "@releaseDomain", "@introduceDomain", "@introduceDomain/a", "/@releaseDomain", "a@", "-", "_", "/local/domain", "/local/domain/", "/tool", "/none")
	case 1:
		return r.of("/", "", "/local/domain/30171/", "/local/domain/123456/") + strings.Repeat(r.of("x", "x/"), r.IntN(3100)/2)
	case 2:
		return r.of("/d", "") + strings.Repeat("y", 1+r.IntN(60))
	}
	path := r.of("", "", "/d", "/local/domain/30171", "/local/domain/30172")
	for range r.IntN(4) {
		path += "/" + r.of("a", "b", "c")
	}
	if r.IntN(3) == 0 {
		path = strings.TrimPrefix(path, "/")
	}
	return path
}

// perm returns a permission, but none that only C's strtoul parses as a domain.
func (r bodies) perm() string {
	if r.IntN(15) > 0 {
		return r.of("n", "r", "w", "b") + r.of("0", "30171", "30172")
	}
	return r.of("n", "r", "w", "b", "x", "", "R", "rr") + r.of("30171", "1", "30173", "", "x", "30171x", "32752", "65535")
}

func (r bodies) dom() string {
	return r.of("0", "30171", "30172", "30171", "30172", "30171", "30172", "1", "30173", "", "-1", "x", "32752", "65535", "30171x", " 30171", "+1", "0x1")
}

func (r bodies) value() string {
	return strings.Repeat(r.of("v", "\x00", "ü", "\xff"), r.IntN(r.IntN(300)+1))
}

// packet returns a packet of any type. Where just a path is expected it has one, since Xen 4.17's server doesn't
// survive others.
func (r bodies) packet() wire.Packet {
	p := wire.Packet{Type: wire.Type(r.IntN(24)), ID: r.Uint32()}
	if r.IntN(4) > 0 { // the most frequent types
		often := []wire.Type{wire.Read, wire.Write, wire.Write, wire.Write, wire.Mkdir, wire.Mkdir, wire.Rm, wire.Directory, wire.DirectoryPart, wire.GetPerms, wire.SetPerms, wire.SetPerms, wire.Watch, wire.TransactionStart, wire.TransactionEnd, wire.TransactionEnd}
		p.Type = often[r.IntN(len(often))]
	} else if p.Type == wire.ResetWatches && r.IntN(10) > 0 {
		p.Type = wire.Unwatch
	}
	switch p.Type {
	case wire.Directory, wire.Read, wire.GetPerms, wire.Mkdir, wire.Rm:
		p.Body = wire.Join(r.path())
	case wire.Write:
		p.Body = append(wire.Join(r.path()), r.value()...)
	case wire.SetPerms:
		// Nor does it survive an unknown special path, or a change of the root's owner.
		path := r.path()
		for strings.HasPrefix(path, "@") && path != wire.ReleaseDomain && path != wire.IntroduceDomain {
			path = r.path()
		}
		p.Body = wire.Join(path)
		if path == "/" {
			p.Body = wire.Join(path, "r0")
		}
		for range r.IntN(5) {
			p.Body = append(p.Body, wire.Join(r.perm())...)
		}
	case wire.Watch, wire.Unwatch:
		p.Body = wire.Join(r.path(), r.of("t", "t", "t", "u", "", "two words"))
	case wire.TransactionEnd:
		p.Body = wire.Join(r.of("T", "T", "T", "T", "F", "F", "", "TT", "t"))
	case wire.TransactionStart, wire.ResetWatches:
		p.Body = wire.Join("")
	case wire.DirectoryPart:
		p.Body = wire.Join(r.path(), r.of("0", "0", "1", "2", "100", "-1", "", "x", "2x"))
	case wire.SetTarget:
		p.Body = wire.Join(r.dom(), "1") // which doesn't exist: Xen 4.17's server doesn't quite release a domain that is another one's target
	case wire.Introduce:
		p.Body = wire.Join(r.of("0", "30171", "30172", "30173", "x"), r.of("1", "x"), r.of("1", "0", "-1", "x", "7")) // a page, a port
	default:
		p.Body = wire.Join(r.dom())
	}
	if p.Type == wire.Control {
		p.Type = wire.Write
		p.Body = append(wire.Join(r.path()), r.value()...)
	}
	switch p.Type {
	case wire.Directory, wire.Read, wire.GetPerms, wire.Mkdir, wire.Rm:
	default:
		switch r.IntN(30) {
		case 0:
			p.Body = p.Body[:r.IntN(len(p.Body)+1)]
		case 1:
			p.Body = append(p.Body, r.of("\x00", "more", "more\x00", "\x00\x00")...)
		}
	}
	return p
}

// quotas are small ones, that are reached, except for nodes: Xen 4.17 counts those of failed transactions, and of
// ended domains, in its own way.
var quotas = memory.Quota{Nodes: 100000, NodeBytes: 150, Watches: 5, Transactions: 3, Perms: 3, TransactionNodes: 9}

// quotaArgs returns Xen's server's arguments for them.
func quotaArgs(q memory.Quota) []string {
	return []string{
		"--entry-nb", fmt.Sprint(q.Nodes), "--entry-size", fmt.Sprint(q.NodeBytes), "--watch-nb", fmt.Sprint(q.Watches),
		"--transaction", fmt.Sprint(q.Transactions), "--perm-nb", fmt.Sprint(q.Perms), "--quota", fmt.Sprint("transaction-nodes=", q.TransactionNodes),
	}
}

// For any packets of three domains, valid and invalid ones, with exhausted quotas, and with domains that are
// introduced, released and destroyed: the server in memory sends the same as Xen's own, to all.
func TestSamePackets(t *testing.T) {
	steps := 20_000
	if testing.Short() {
		steps = 2_000
	}
	dir := t.TempDir()
	x, err := real.Start(dir, quotaArgs(quotas)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Stop)
	m := memory.New(memory.Options{Quota: quotas})
	t.Cleanup(m.Close)
	theirs := &store{name: "Xen's server", dial: func(d xenstore.DomID) xenstore.Dialer {
		if d == 0 {
			return x.Socket()
		}
		return x.Domain(d)
	}, destroy: x.Destroy, back: func(d xenstore.DomID) error { return os.Remove(filepath.Join(dir, "gone-"+d.String())) }}
	ours := &store{name: "the one in memory", dial: m.Domain, destroy: func(d xenstore.DomID) error { m.Destroy(d); return nil }, back: func(xenstore.DomID) error { return nil }}
	both := []*store{theirs, ours}
	for _, s := range both {
		for who := range s.links {
			s.connect(t, who)
		}
	}
	r := bodies{rand.New(rand.NewPCG(seed(t), 0))}
	outcomes := map[string]int{}
	var done []string
	for i := range steps {
		who, q := r.IntN(3), r.packet()
		tx := 0 // index of the transaction from 1; 0: none
		if open := len(theirs.open[who]); open > 0 && r.IntN(3) > 0 {
			tx = 1 + r.IntN(open)
		} else if r.IntN(40) == 0 {
			tx = 77
		}
		if q.Type == wire.SetPerms && bytes.HasPrefix(q.Body, []byte("@")) { // Xen 4.17's server may lose the error of this
			who = 0
		}
		done = append(done, fmt.Sprintf("%d: %s tx %d %.200q", who, q.Type, tx, q.Body))
		var said [2]string
		if r.IntN(200) == 0 {
			done[i] = fmt.Sprintf("destroyed %d; %s", 1+i%2, done[i])
			for k, s := range both {
				said[k] = s.end(t, 1+i%2)
			}
			if said[0] != said[1] {
				t.Fatalf("step %d, domain %d is destroyed: %s says\n%s%s says\n%safter\n%s", i, partyDoms[1+i%2], theirs.name, said[0], ours.name, said[1], strings.Join(done[max(0, i-25):], "\n"))
			}
		}
		var got wire.Packet
		for k, s := range both {
			var first [3][]string
			var p wire.Packet
			q.Tx = s.number(who, tx)
			p, first[who] = s.say(t, who, q)
			got = p
			if p.ID != q.ID || p.Tx != q.Tx {
				t.Fatalf("%s answers id %d, tx %d to %d, %d", s.name, p.ID, p.Tx, q.ID, q.Tx)
			}
			s.follow(who, q, p)
			switch { // some numbers are the server's own
			case p.Type == wire.DirectoryPart: // generations
				_, p.Body, _ = bytes.Cut(p.Body, []byte{0})
			case p.Type == wire.TransactionStart:
				p.Body = nil
			case p.Type == wire.Error && q.Type == wire.SetPerms && bytes.HasPrefix(q.Body, []byte("@")): // Xen 4.17's server sends the error of an earlier request
				p.Body = nil
			}
			said[k] = fmt.Sprintf("%s %.300q\n", p.Type, p.Body)
			switch text := wire.Text(p.Body); {
			case p.Type != wire.Error && q.Type == wire.Release:
				s.reconnect(t, q.Body)
			case p.Type == wire.Error && q.Tx != 0 && (text == "ENOSPC" || text == "EIO"): // such a transaction can't be committed anyway
				end := wire.Packet{Type: wire.TransactionEnd, Tx: q.Tx, Body: wire.Join("F")}
				p, events := s.say(t, who, end)
				first[who] = append(first[who], events...)
				s.follow(who, end, p)
			}
			said[k] += s.gotEvents(t, first)
		}
		if said[0] != said[1] {
			t.Fatalf("step %d, %s: %s says\n%s%s says\n%safter\n%s", i, done[i], theirs.name, said[0], ours.name, said[1], strings.Join(done[max(0, i-25):], "\n"))
		}
		what := fmt.Sprint(q.Type)
		if got.Type == wire.Error {
			what += " " + wire.Text(got.Body)
		}
		outcomes[what]++
	}
	t.Log(outcomes)
}

// number returns a transaction's number by its index.
func (s *store) number(who, tx int) uint32 {
	if tx > 0 && tx <= len(s.open[who]) {
		return s.open[who][tx-1]
	}
	return 1000 * uint32(tx)
}

// follow updates the open transactions.
func (s *store) follow(who int, q, p wire.Packet) {
	switch {
	case q.Type == wire.TransactionEnd && (p.Type == q.Type || wire.Text(p.Body) != "EINVAL"):
		s.open[who] = slices.DeleteFunc(s.open[who], func(id uint32) bool { return id == q.Tx })
	case p.Type == wire.TransactionStart:
		var id uint32
		fmt.Sscan(wire.Text(p.Body), &id)
		s.open[who] = append(s.open[who], id)
	case p.Type == wire.ResetWatches:
		s.open[who] = nil
	}
}

// reconnect connects released domains again.
func (s *store) reconnect(t *testing.T, body []byte) {
	for who, dom := range partyDoms {
		if who > 0 && strings.HasPrefix(strings.TrimSpace(wire.Text(body)), dom.String()) {
			s.connect(t, who)
		}
	}
}

// end destroys a domain, and creates it again.
func (s *store) end(t *testing.T, who int) string {
	dom := partyDoms[who]
	if err := s.destroy(dom); err != nil {
		t.Fatal(err)
	}
	var events [3][]string
	for there := "T"; there == "T"; {
		var p wire.Packet
		p, more := s.say(t, 0, wire.Packet{Type: wire.IsDomainIntroduced, Body: wire.Join(dom.String())})
		there, events[0] = wire.Text(p.Body), append(events[0], more...)
	}
	if err := s.back(dom); err != nil {
		t.Fatal(err)
	}
	s.connect(t, who)
	return s.gotEvents(t, events)
}
