package memory

import "cmp"

// Quota is how much a domain other than 0 may have; 0 stands for Xen's own limit.
type Quota struct {
	Nodes            int // that it owns
	NodeBytes        int // of a node: its value, permissions and the names of its children
	Watches          int // one more is let through, as Xen does
	Transactions     int // at once; one more is let through
	Perms            int // of a node
	TransactionNodes int // that a transaction touches
}

func (q Quota) orDefault() Quota {
	return Quota{
		Nodes:            cmp.Or(q.Nodes, 1000),
		NodeBytes:        cmp.Or(q.NodeBytes, 2048),
		Watches:          cmp.Or(q.Watches, 128),
		Transactions:     cmp.Or(q.Transactions, 10),
		Perms:            cmp.Or(q.Perms, 5),
		TransactionNodes: cmp.Or(q.TransactionNodes, 1024),
	}
}
