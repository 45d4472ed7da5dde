package memory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/xenstore/wire"
)

// crowd is a server and some peers, without links.
type crowd struct {
	*Server
	parsers map[*peer]*wire.Parser
	asked   map[*peer][]uint32 // ids, in order
}

func newCrowd() *crowd {
	c := &crowd{New(Options{}), map[*peer]*wire.Parser{}, map[*peer][]uint32{}}
	for _, dom := range []wire.DomID{0, 1, 2} {
		c.introduce(dom)
		c.parsers[c.join(dom)] = &wire.Parser{}
		c.set(fmt.Sprint("/d", dom), &node{perms: []perm{{Perm: wire.Perm{Dom: dom}}}})
		root := c.nodes["/"]
		c.set("/", root.withChild(fmt.Sprint("d", dom)))
	}
	return c
}

// say passes bytes of a peer to the server; false when they broke the protocol.
func (c *crowd) say(p *peer, b []byte) bool {
	parser := c.parsers[p]
	parser.Feed(b)
	for {
		packet, ok, err := parser.Next()
		if err != nil {
			return false
		}
		if !ok {
			return true
		}
		c.asked[p] = append(c.asked[p], packet.ID)
		if !p.gone {
			p.handle(packet)
		}
	}
}

// answered expects an answer to each request, in order, and well-formed packets.
func (c *crowd) answered(t *testing.T) {
	for p := range c.parsers {
		var ids []uint32
		for _, packet := range p.out {
			if len(packet.Body) > wire.BodyMax {
				t.Fatalf("%s of %d bytes", packet.Type, len(packet.Body))
			}
			if packet.Type != wire.WatchEvent {
				ids = append(ids, packet.ID)
			} else if len(wire.Split(packet.Body)) != 2 && !strings.HasSuffix(string(packet.Body), "\x00\x00") {
				t.Fatalf("an event of %q", packet.Body)
			}
		}
		if !p.gone && !slices.Equal(ids, c.asked[p]) {
			t.Fatalf("domain %d asked %v and was answered %v", p.dom, c.asked[p], ids)
		}
		p.out, c.asked[p] = nil, nil
	}
}

// whole expects a tree: all children exist, nothing else does, and the sums are right.
func (c *crowd) whole(t *testing.T) {
	owned, seen := map[wire.DomID]int{}, 0
	var walk func(path string)
	walk = func(path string) {
		n := c.nodes[path]
		if n == nil {
			t.Fatalf("%s isn't there", path)
		}
		if !valid(path) {
			t.Fatalf("a node is called %q", path)
		}
		owned[n.owner()]++
		seen++
		for i, name := range n.children {
			if slices.Contains(n.children[:i], name) {
				t.Fatalf("%s has two of %s", path, name)
			}
			walk(strings.TrimSuffix(path, "/") + "/" + name)
		}
	}
	walk("/")
	if seen != len(c.nodes) {
		t.Fatalf("%d nodes, of which %d are in the tree", len(c.nodes), seen)
	}
	for dom, n := range c.owned {
		if owned[dom] != n {
			t.Fatalf("domain %d has %d nodes, counted are %d", dom, owned[dom], n)
		}
		if dom != 0 && n > c.quota.Nodes {
			t.Fatalf("domain %d has %d nodes", dom, n)
		}
	}
	for _, p := range c.peers {
		if p.dom != 0 && (len(p.watches) > c.quota.Watches+1 || len(p.txs) > c.quota.Transactions+1) {
			t.Fatalf("domain %d has %d watches and %d transactions", p.dom, len(p.watches), len(p.txs))
		}
	}
}

// FuzzServer passes any bytes of any peer to a server: connected peers get answers, and the store stays consistent.
func FuzzServer(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var b []byte
		for range 10 {
			b = randomPacket(r).Append(b)
		}
		f.Add(b, []byte{0, 1, 2})
	}
	f.Fuzz(func(t *testing.T, stream, turns []byte) {
		c := newCrowd()
		peers := slices.Clone(c.peers)
		for i := 0; len(stream) > 0; i++ {
			p, n := peers[0], len(stream)
			if len(turns) > 0 {
				turn := turns[i%len(turns)]
				p, n = peers[int(turn)%len(peers)], min(n, 16+int(turn))
			}
			c.say(p, stream[:n])
			stream = stream[n:]
		}
		c.answered(t)
		c.whole(t)
	})
}

var (
	somePaths = []string{
		"/", "/d0", "/d1", "/d2", "/d1/a", "/d1/a/b", "/d1/a/b/c", "/d2/x", "a", "a/b", "/tool", "/none/at/all",
		"/local/domain/1", "/local/domain/1/data", "/local/domain/2", "@introduceDomain", "@releaseDomain", "", "//", "/d1/",
	}
	someWords = []string{"T", "F", "0", "1", "2", "3", "", "token", "n0", "r1", "b2", "n1", "65535", "-1", "help", "check", "4095"}
)

// randomPacket returns a packet that is likely to be valid.
func randomPacket(r *rand.Rand) wire.Packet {
	p := wire.Packet{Type: wire.Type(r.IntN(24)), ID: r.Uint32(), Tx: uint32(max(0, r.IntN(8)-4))}
	if r.IntN(3) > 0 {
		p.Body = wire.Join(somePaths[r.IntN(len(somePaths))])
	}
	for range r.IntN(3) {
		p.Body = append(p.Body, wire.Join(someWords[r.IntN(len(someWords))])...)
	}
	if p.Type == wire.TransactionEnd && r.IntN(2) == 0 {
		p.Body = wire.Join("TF"[r.IntN(2):][:1])
	}
	switch r.IntN(20) {
	case 0:
		p.Body = append(p.Body, make([]byte, r.IntN(2100))...)
	case 1:
		p.Body = p.Body[:r.IntN(len(p.Body)+1)]
	case 2:
		for i := range p.Body {
			if r.IntN(4) == 0 {
				p.Body[i] ^= 1 << r.IntN(8)
			}
		}
	}
	return p
}

// A million packets that are likely to be valid, of three domains at once, through parser and server. Now and then a
// connection breaks the protocol and another replaces it.
func TestMillionPackets(t *testing.T) {
	count := 1_000_000
	if testing.Short() {
		count = 50_000
	}
	r := rand.New(rand.NewPCG(seed(t), 0))
	c := newCrowd()
	peers := slices.Clone(c.peers)
	types := map[wire.Type]int{}
	for i := range count {
		who := r.IntN(len(peers))
		p := peers[who]
		packet := randomPacket(r)
		if open := slices.Sorted(maps.Keys(p.txs)); len(open) > 0 && packet.Tx != 0 {
			packet.Tx = open[r.IntN(len(open))]
		}
		b := packet.Append(nil)
		if r.IntN(10_000) == 0 {
			b[r.IntN(len(b))] ^= 0x80
		}
		cut := r.IntN(len(b) + 1)
		if !c.say(p, b[:cut]) || !c.say(p, b[cut:]) {
			c.drop(p)
		}
		if i%100 == 99 {
			for _, packet := range p.out {
				types[packet.Type]++
			}
			c.answered(t)
		}
		if p.gone { // it broke the protocol, or its domain was released
			delete(c.parsers, p)
			delete(c.asked, p)
			c.introduce(p.dom)
			peers[who] = c.join(p.dom)
			c.parsers[peers[who]] = &wire.Parser{}
		}
		if i%10_000 == 9_999 {
			c.whole(t)
		}
	}
	c.whole(t)
	if testing.Short() { // too few to cover all kinds
		return
	}
	for _, typ := range []wire.Type{wire.Error, wire.WatchEvent, wire.TransactionEnd, wire.Rm, wire.Release, wire.SetTarget} {
		if types[typ] == 0 {
			t.Errorf("no %s among the answers", typ)
		}
	}
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
