// Package memory is a XenStore server within a program, for tests: of whoever uses
// package xenstore, without Xen and on any machine.
//
// It does what the server of Xen 4.17 does, which the suite in package conformance
// compares: transactions and their conflicts, permissions as each domain sees them,
// watches, quotas, and domains that come and go. What it hasn't: live update, limits on a
// domain's memory and on how fast it writes, and commands of CONTROL but a few.
//
//	s := memory.New(memory.Options{})
//	tools, err := xenstore.Dial(ctx, s.Domain(0))
//	guest, err := xenstore.Dial(ctx, s.Domain(7))
//
// Who calls it: tests.
//
// Whom it trusts: nobody who is connected. Requests may be anything.
package memory

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

// Options is what a server can be told. Its zero value is Xen's own settings.
type Options struct {
	Quota Quota
	// Exists says whether the hypervisor has a domain; nil says so of all.
	Exists func(wire.DomID) bool
}

// Server is a store, and who is connected to it.
type Server struct {
	quota  Quota
	exists func(wire.DomID) bool

	mu         sync.Mutex
	closed     bool
	serving    sync.WaitGroup
	nodes      map[string]*node
	generation uint64             // of the last change
	owned      map[wire.DomID]int // how many nodes each domain has
	domains    map[wire.DomID]*domain
	special    map[string][]perm // of the events that aren't nodes
	peers      []*peer           // in the order in which they came
}

// New makes a server with the nodes that each has in the beginning.
func New(o Options) *Server {
	s := &Server{
		quota:   o.Quota.orDefault(),
		exists:  o.Exists,
		nodes:   map[string]*node{},
		owned:   map[wire.DomID]int{},
		domains: map[wire.DomID]*domain{0: {introduced: true}},
		special: map[string][]perm{wire.IntroduceDomain: {{}}, wire.ReleaseDomain: {{}}},
	}
	if s.exists == nil {
		s.exists = func(d wire.DomID) bool { return d < wire.Self }
	}
	s.set("/", &node{perms: []perm{{}}, children: []string{"tool"}})
	s.set("/tool", &node{perms: []perm{{}}, children: []string{"xenstored"}})
	s.set("/tool/xenstored", &node{perms: []perm{{}}})
	return s
}

// errClosed is a server that was closed.
var errClosed = errors.New("the server in memory is closed")

// Domain dials as a domain, which is introduced if it wasn't. Domain 0 may do everything.
// Unlike with Xen, a domain may have several connections, as its processes do that share
// the kernel's device.
func (s *Server) Domain(dom wire.DomID) xenstore.Dialer {
	return func(context.Context) (xenstore.Link, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return xenstore.Link{}, errClosed
		}
		s.introduce(dom)
		here, there := net.Pipe()
		s.serve(there, dom)
		return xenstore.Link{ReadWriteCloser: here}, nil
	}
}

// Serve takes connections, as domain 0, until l is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return errClosed
		}
		s.serve(c, 0)
		s.mu.Unlock()
	}
}

// Disconnect ends all connections, as a server's death would, but keeps what is stored.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.peers) > 0 {
		s.drop(s.peers[0])
	}
}

// Close ends all connections and takes no more.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Disconnect()
	s.serving.Wait()
}

// join makes a peer of a domain.
func (s *Server) join(dom wire.DomID) *peer {
	p := &peer{server: s, dom: dom, txs: map[uint32]*tx{}, nextTx: 1}
	p.room = sync.NewCond(&s.mu)
	s.peers = append(s.peers, p)
	return p
}

// drop forgets a peer, with its watches and transactions.
func (s *Server) drop(p *peer) {
	if i := slices.Index(s.peers, p); i >= 0 {
		s.peers = slices.Delete(s.peers, i, i+1)
	}
	p.reset()
	p.gone = true
	p.room.Broadcast()
	if p.link != nil {
		p.link.Close()
	}
}
