package memory

import (
	"slices"

	"pegasus/xenstore/wire"
)

// node is an immutable version of a node: a change makes another one.
type node struct {
	value      []byte
	perms      []perm // the first one's domain owns it
	children   []string
	generation uint64 // of its last change; 0: never
}

// perm is a domain's access, valid as long as the domain's number isn't reused.
type perm struct {
	wire.Perm
	dead bool // the domain had ended when the node was written
}

func (n *node) owner() wire.DomID { return n.perms[0].Dom }

// listBytes returns the length of the list of children.
func (n *node) listBytes() (sum int) {
	for _, c := range n.children {
		sum += len(c) + 1
	}
	return sum
}

// bytes returns the size that counts against a quota: that of Xen's server.
func (n *node) bytes() int { return 24 + 8*len(n.perms) + len(n.value) + n.listBytes() }

func (n *node) withValue(value []byte) *node {
	c := *n
	c.value = value
	return &c
}

func (n *node) withPerms(perms []perm) *node {
	c := *n
	c.perms = perms
	return &c
}

func (n *node) withChild(name string) *node {
	c := *n
	c.children = append(slices.Clip(n.children), name)
	return &c
}

func (n *node) withoutChild(name string) *node {
	c := *n
	c.children = slices.DeleteFunc(slices.Clone(n.children), func(s string) bool { return s == name })
	return &c
}

// access returns a peer's access by these permissions, and whether it is the owner's.
func (s *Server) access(p *peer, perms []perm, generation uint64) (may wire.Access, owner bool) {
	mine := func(d wire.DomID) bool {
		own := s.domains[p.dom]
		return d == p.dom || own != nil && own.target != nil && d == *own.target
	}
	if p.privileged() || mine(perms[0].Dom) {
		return wire.ReadWrite, true
	}
	for _, q := range perms[1:] {
		if !s.dead(q, generation) && mine(q.Dom) {
			return q.Access, false
		}
	}
	return perms[0].Access, false
}

// dead reports whether a permission's domain has ended: another domain may have its number now.
func (s *Server) dead(p perm, generation uint64) bool {
	d := s.domains[p.Dom]
	return p.dead || d == nil || d.since > generation
}

// buried marks the permissions of domains that have ended.
func (s *Server) buried(n *node) *node {
	perms := slices.Clone(n.perms)
	for i := range perms[1:] {
		perms[i+1].dead = s.dead(perms[i+1], n.generation)
	}
	return n.withPerms(perms)
}

// set makes n the node's version outside transactions.
func (s *Server) set(path string, n *node) {
	s.forget(path)
	s.generation++
	c := *n
	c.generation = s.generation
	s.nodes[path] = &c
	s.owned[c.owner()]++
}

// forget removes a node outside transactions.
func (s *Server) forget(path string) {
	if old := s.nodes[path]; old != nil {
		s.owned[old.owner()]--
		delete(s.nodes, path)
	}
}
