package memory

import "cmp"

// Quota are the limits of a domain other than 0; 0 stands for Xen's default.
type Quota struct {
	Nodes            int // owned by the domain
	NodeBytes        int // of a node: its value, permissions and the names of its children
	Watches          int // Xen's server admits one more
	Transactions     int // open at once; Xen's server admits one more
	Perms            int // of a node
	TransactionNodes int // touched by a transaction
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
