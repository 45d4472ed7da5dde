package memory

import (
	"syscall"

	"pegasus/xenstore/wire"
)

// tx is a transaction: the nodes that it has touched, as it sees them. It is committed if the nodes that it has read
// are unchanged; other nodes don't matter.
type tx struct {
	touched map[string]*touched
	order   []string // of touched
	created bool     // it created a node
	failed  bool     // it can't be committed
}

// touched is a node in a transaction.
type touched struct {
	node     *node  // nil when there is none
	before   *node  // the version that was read first
	perms    []perm // the permissions then, for events; nil: no node
	modified bool
	fire     bool // an event is due
	exact    bool // and only for watches of exactly this node
}

// touch returns a node's state in a transaction, and adds it to the transaction.
func (t *tx) touch(v view, path string) (*touched, error) {
	if n := t.touched[path]; n != nil {
		return n, nil
	}
	if !v.p.privileged() && len(t.order) >= v.s.quota.TransactionNodes {
		t.failed = true
		return nil, syscall.ENOSPC
	}
	n := &touched{node: v.s.nodes[path], before: v.s.nodes[path]}
	if n.node != nil {
		n.perms = v.s.buried(n.node).perms
	}
	t.touched[path] = n
	t.order = append(t.order, path)
	return n, nil
}

// begin starts a transaction and returns its number.
func (p *peer) begin() (uint32, error) {
	if !p.privileged() && len(p.txs) > p.server.quota.Transactions {
		return 0, syscall.ENOSPC
	}
	for p.nextTx == 0 || p.txs[p.nextTx] != nil {
		p.nextTx++
	}
	p.server.generation++ // also orders domains and permissions by age
	p.txs[p.nextTx] = &tx{touched: map[string]*touched{}}
	p.nextTx++
	return p.nextTx - 1, nil
}

// commit makes a transaction's changes visible, or returns why not.
func (t *tx) commit(v view) error {
	if t.failed {
		return syscall.ENOMEM
	}
	if err := t.counted(v); err != nil {
		return err
	}
	for path, n := range t.touched {
		if v.s.nodes[path] != n.before {
			return syscall.EAGAIN
		}
	}
	for _, path := range t.order {
		n := t.touched[path]
		switch {
		case !n.modified:
		case n.node != nil:
			v.s.set(path, n.node)
		default:
			v.s.forget(path)
		}
		if n.fire {
			v.fire(path, nil, n.exact, n.perms)
		}
	}
	return nil
}

// counted checks the quota of nodes after the commit.
func (t *tx) counted(v view) error {
	if !t.created || v.p.privileged() {
		return nil
	}
	more := map[wire.DomID]int{}
	for _, n := range t.touched {
		if n.before != nil && n.modified {
			more[n.before.owner()]--
		}
		if n.node != nil && n.modified {
			more[n.node.owner()]++
		}
	}
	for dom, n := range more {
		if dom != 0 && v.s.owned[dom]+n >= v.s.quota.Nodes {
			return syscall.ENOSPC
		}
	}
	return nil
}
