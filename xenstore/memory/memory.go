// Package memory is a XenStore server within a program, for tests of users of package xenstore, without Xen and on
// any machine.
//
// It behaves as the server of Xen 4.17, which the suite in package xenstoretest verifies: transactions and their
// conflicts, permissions for each domain, watches, quotas, and domains that come and go. It lacks: live update,
// limits on a domain's memory and on its write rate, and all but a few commands of CONTROL.
//
//	s := memory.New(memory.Options{})
//	tools, err := xenstore.Dial(ctx, s.Domain(0))
//	guest, err := xenstore.Dial(ctx, s.Domain(7))
//
// Callers: tests.
//
// Trust boundary: no client is trusted. Requests may contain any bytes.
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

// Options are a server's settings. The zero value is Xen's defaults.
type Options struct {
	Quota Quota
	// Exists reports whether the hypervisor has a domain; nil: all exist.
	Exists func(wire.DomID) bool
}

// Server is a store and its connections. mu guards all fields below it. Safe for concurrent use.
type Server struct {
	quota  Quota
	exists func(wire.DomID) bool

	mu         sync.Mutex
	closed     bool
	serving    sync.WaitGroup
	nodes      map[string]*node
	generation uint64             // of the last change
	owned      map[wire.DomID]int // the number of nodes of each domain
	domains    map[wire.DomID]*domain
	special    map[string][]perm // permissions of the special paths
	peers      []*peer           // in the order of their connection
}

// New returns a server with the initial nodes of every server.
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

// errClosed reports a closed server.
var errClosed = errors.New("the server in memory is closed")

// Domain returns a Dialer that connects as a domain, which it introduces if necessary. Domain 0 has all permissions.
// Unlike with Xen, a domain may have several connections, like its processes that share the kernel's device.
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

// Serve accepts connections, as domain 0, until l is closed.
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

// Disconnect ends all connections, as the server's death would, but keeps the store.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.peers) > 0 {
		s.drop(s.peers[0])
	}
}

// Close ends all connections and accepts no more.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Disconnect()
	s.serving.Wait()
}

// join adds a connection of a domain.
func (s *Server) join(dom wire.DomID) *peer {
	p := &peer{server: s, dom: dom, txs: map[uint32]*tx{}, nextTx: 1}
	p.room = sync.NewCond(&s.mu)
	s.peers = append(s.peers, p)
	return p
}

// drop removes a peer, with its watches and transactions.
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
