package memory

import (
	"slices"
	"strings"
	"syscall"

	"pegasus/xenstore/wire"
)

// watch is a watch of a peer.
type watch struct {
	path  string // absolute
	token string
	home  string // the directory of its relative paths, or ""
}

// shown returns a path in the form, absolute or relative, of the watch's own.
func (w *watch) shown(path string) string {
	if w.home == "" {
		return path
	}
	return strings.TrimPrefix(strings.TrimPrefix(path, w.home), "/")
}

func (p *peer) watch(path, token string) (*watch, error) {
	w := &watch{path: p.path(path), token: token}
	if path == "" || !strings.ContainsAny(path[:1], "/@") {
		w.home = p.home()
	}
	if strings.HasPrefix(path, "@") {
		if len(path) > wire.RelativeMax {
			return nil, syscall.EINVAL
		}
	} else if !valid(w.path) {
		return nil, syscall.EINVAL
	}
	if p.find(w.path, token) >= 0 {
		return nil, syscall.EEXIST
	}
	if !p.privileged() && len(p.watches) > p.server.quota.Watches {
		return nil, syscall.E2BIG
	}
	p.watches = append(p.watches, w)
	return w, nil
}

func (p *peer) unwatch(path, token string) error {
	i := p.find(p.path(path), token)
	if i < 0 {
		return syscall.ENOENT
	}
	p.watches = slices.Delete(p.watches, i, i+1)
	return nil
}

func (p *peer) find(path, token string) int {
	return slices.IndexFunc(p.watches, func(w *watch) bool { return w.path == path && w.token == token })
}

// fire sends events to the watches of a node that has changed or was removed; n is the node if it isn't in the store
// any more, and old its permissions if those have changed. In a transaction the events wait for its commit.
func (v view) fire(path string, n *node, exact bool, old []perm) {
	if v.tx != nil {
		t := v.tx.touched[path]
		t.exact = exact && (t.exact || !t.fire)
		t.fire = true
		return
	}
	for _, p := range v.s.peers {
		if !v.s.mayKnow(p, path, n, old) {
			continue
		}
		for _, w := range p.watches {
			if path == w.path || !exact && wire.Below(path, w.path) {
				p.enqueueEvent(w.shown(path), w.token)
			}
		}
	}
}

// mayKnow reports whether a peer may get an event of a node: it can read the node or its parent, or could before.
func (s *Server) mayKnow(p *peer, path string, n *node, old []perm) bool {
	reads := func(perms []perm, generation uint64) bool {
		may, _ := s.access(p, perms, generation)
		return may&wire.CanRead != 0
	}
	if special, ok := s.special[path]; ok {
		return reads(special, s.generation)
	}
	if old != nil && reads(old, s.generation) {
		return true
	}
	if n == nil {
		n = s.nodes[path]
	}
	if n == nil {
		return false
	}
	parent := s.nodes[wire.Parent(path)]
	return reads(n.perms, n.generation) || parent != nil && reads(parent.perms, parent.generation)
}
