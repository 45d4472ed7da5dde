package memory

import (
	"slices"
	"strings"
	"syscall"

	"pegasus/xenstore/wire"
)

// view is the store as a request sees it: of a peer, perhaps in a transaction. The server's own view has no peer.
type view struct {
	s  *Server
	p  *peer // may be nil
	tx *tx   // may be nil
}

// read returns a node, or nil if there is none. A transaction records the read.
func (v view) read(path string) (*node, error) {
	if v.tx == nil {
		return v.s.nodes[path], nil
	}
	t, err := v.tx.touch(v, path)
	if err != nil {
		return nil, err
	}
	return t.node, nil
}

// put sets a node's version. The node has been read before, in the same transaction.
func (v view) put(path string, n *node) error {
	n = v.s.buried(n)
	if v.tx == nil {
		v.s.set(path, n)
		return nil
	}
	t, err := v.tx.touch(v, path)
	if err != nil {
		return err
	}
	v.s.generation++
	n.generation = v.s.generation
	t.node, t.modified = n, true
	return nil
}

// write does the same as put, after a check of the peer's quota.
func (v view) write(path string, n *node) error {
	if !v.p.privileged() && n.bytes() >= v.s.quota.NodeBytes {
		if v.tx != nil {
			v.tx.failed = true
		}
		return syscall.ENOSPC
	}
	return v.put(path, n)
}

// remove removes a node.
func (v view) remove(path string) error {
	if v.tx == nil {
		v.s.forget(path)
		v.s.generation++
		return nil
	}
	t, err := v.tx.touch(v, path)
	if err != nil {
		return err
	}
	t.node, t.modified = nil, true
	return nil
}

// get returns a node if the peer has the needed access to it. A peer without that access to the nearest existing
// ancestor gets EACCES, whether the node exists or not.
func (v view) get(path string, need wire.Access, owning bool) (*node, error) {
	if !valid(path) {
		return nil, syscall.EINVAL
	}
	n, err := v.read(path)
	if err != nil {
		return nil, err
	}
	if n != nil {
		if may, owner := v.s.access(v.p, n.perms, n.generation); may&need == need && (owner || !owning) {
			return n, nil
		}
	}
	above, err := v.above(path) // read in any case, for the transaction's record
	switch {
	case err != nil:
		return nil, err
	case n != nil:
		return nil, syscall.EACCES
	}
	if may, _ := v.s.access(v.p, above.perms, above.generation); may&need == 0 {
		return nil, syscall.EACCES
	}
	return nil, syscall.ENOENT
}

// above returns the nearest existing ancestor.
func (v view) above(path string) (*node, error) {
	for {
		path = wire.Parent(path)
		if n, err := v.read(path); n != nil || err != nil {
			return n, err
		}
	}
}

// create creates a node, and its missing ancestors.
func (v view) create(path string, value []byte) error {
	if v.tx != nil {
		v.tx.created = true
	}
	missing := []string{path}
	parent, err := v.read(wire.Parent(path))
	for ; parent == nil && err == nil; parent, err = v.read(wire.Parent(path)) {
		path = wire.Parent(path)
		missing = append(missing, path)
	}
	if err != nil {
		return err
	}
	fresh := &node{perms: append([]perm(nil), parent.perms...), generation: parent.generation}
	if !v.p.privileged() {
		fresh.perms[0].Dom = v.p.dom
	}
	changed := map[string]*node{wire.Parent(path): parent.withChild(wire.Base(path))}
	for i, name := range missing {
		changed[name] = fresh
		if i == 0 {
			changed[name] = fresh.withValue(value)
		} else {
			changed[name] = fresh.withChild(wire.Base(missing[i-1]))
		}
	}
	return v.writeAll(append(missing, wire.Parent(path)), changed)
}

// writeAll writes new nodes, and last the one that existed, or none of them.
func (v view) writeAll(order []string, changed map[string]*node) error {
	if !v.p.privileged() {
		for i, path := range order {
			isNew := i < len(order)-1
			full := isNew && v.s.owned[v.p.dom]+v.added(i) >= v.s.quota.Nodes
			long := changed[path].bytes() >= v.s.quota.NodeBytes
			if v.tx != nil && (i > 0 && full || long) { // Xen can't undo its writes up to here
				v.tx.failed = true
			}
			if full || long {
				return syscall.ENOSPC
			}
		}
	}
	for _, path := range order {
		if err := v.put(path, changed[path]); err != nil {
			return err
		}
	}
	return nil
}

// added returns how many of the nodes before count against the quota: those of a transaction count at its commit.
func (v view) added(before int) int {
	if v.tx != nil {
		return 0
	}
	return before
}

// removeTree removes a node and all below it. Watches below get an event of their own node only. It fails where a
// transaction has seen an inconsistent state: that can't be committed anyway.
func (v view) removeTree(root string) error {
	if parent, err := v.read(wire.Parent(root)); err != nil {
		return err
	} else if parent == nil {
		return syscall.EINVAL
	}
	if err := v.removeBelow(root, root); err != nil {
		return err
	}
	parent, err := v.read(wire.Parent(root))
	if err != nil {
		return err
	}
	if !slices.Contains(parent.children, wire.Base(root)) {
		return syscall.EIO
	}
	return v.put(wire.Parent(root), parent.withoutChild(wire.Base(root)))
}

func (v view) removeBelow(path, root string) error {
	n, err := v.read(path)
	if err != nil || n == nil { // no room in the transaction, or a node that its parent lists is missing
		return syscall.EIO
	}
	for _, c := range n.children {
		if err := v.removeBelow(strings.TrimSuffix(path, "/")+"/"+c, root); err != nil {
			return err
		}
	}
	if err := v.remove(path); err != nil {
		return err
	}
	v.fire(path, n, path != root, nil)
	return nil
}

// valid reports whether an absolute path is valid for a node. Xen allows 2048 bytes, plus a domain's directory before
// them.
func valid(path string) bool {
	if path == "" || path[0] != '/' || wire.CheckPath(path[:min(len(path), wire.AbsoluteMax)]) != nil {
		return false
	}
	home := 0
	if rest, ok := strings.CutPrefix(path, "/local/domain/"); ok {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits > 0 && digits <= 5 && strings.HasPrefix(rest[digits:], "/") {
			home = len(path) - len(rest) + digits + 1
		}
	}
	return len(path) <= home+wire.RelativeMax
}
