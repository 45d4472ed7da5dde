package memory

import (
	"slices"
	"strings"
	"syscall"

	"pegasus/xenstore/wire"
)

// domain is a domain that was introduced or that a permission names.
type domain struct {
	introduced bool
	down       bool // its shutdown was noticed
	target     *wire.DomID
	since      uint64 // the generation when it was added
}

// know returns a domain's state, which it adds if the hypervisor has the domain.
func (s *Server) know(dom wire.DomID) *domain {
	d := s.domains[dom]
	if d == nil && s.exists(dom) {
		d = &domain{since: s.generation}
		s.domains[dom] = d
	}
	return d
}

// introduce makes the server serve a domain.
func (s *Server) introduce(dom wire.DomID) error {
	d := s.know(dom)
	if d == nil {
		return syscall.EINVAL
	}
	if !d.introduced {
		d.introduced = true
		view{s: s}.fire(wire.IntroduceDomain, nil, true, nil)
	}
	return nil
}

// introduced returns a domain that the server serves.
func (s *Server) introduced(dom wire.DomID) (*domain, error) {
	if d := s.domains[dom]; d != nil && d.introduced {
		return d, nil
	}
	return nil, syscall.ENOENT
}

// release removes a domain: its connections, its nodes, and its permissions.
func (s *Server) release(dom wire.DomID) {
	for _, p := range slices.Clone(s.peers) {
		if p.dom == dom {
			s.drop(p)
		}
	}
	v := view{s: s}
	v.removeOwned("/", dom)
	for name, perms := range s.special {
		if perms[0].Dom == dom {
			perms[0].Dom = 0
		}
		s.special[name] = append(perms[:1:1], slices.DeleteFunc(slices.Clone(perms[1:]), func(p perm) bool { return p.Dom == dom })...)
	}
	delete(s.domains, dom)
	v.fire(wire.ReleaseDomain, nil, true, nil)
}

// removeOwned removes the nodes of a domain, with all below them.
func (v view) removeOwned(path string, dom wire.DomID) {
	n := v.s.nodes[path]
	if n.owner() == dom && path != "/" {
		v.removeTree(path)
		return
	}
	for _, c := range n.children {
		v.removeOwned(strings.TrimSuffix(path, "/")+"/"+c, dom)
	}
}

// Destroy simulates that the hypervisor destroys a domain.
func (s *Server) Destroy(dom wire.DomID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.introduced(dom); err == nil && dom != 0 {
		s.release(dom)
	}
}

// Shutdown simulates that a domain shuts down.
func (s *Server) Shutdown(dom wire.DomID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, err := s.introduced(dom); err == nil && !d.down {
		d.down = true
		view{s: s}.fire(wire.ReleaseDomain, nil, true, nil)
	}
}
