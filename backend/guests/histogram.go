package guests

import (
	"pegasus/backend/gate"
)

// waits counts requests by their wait at the gate: bucket 0 those without a wait, bucket n those that waited less than
// 2^n ns and at least half of that.
type waits [gate.WaitBuckets]uint64

func (w *waits) add(v *waits) {
	for i := range w {
		w[i] += v[i]
	}
}

// quantile returns the wait that a part p of the requests did not exceed, in ns, interpolated linearly within its
// bucket; 0 if there were none.
func (w *waits) quantile(p float64) int64 {
	var total uint64
	for _, n := range w {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank := p * float64(total)
	var below float64
	for i, n := range w {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		if i == 0 {
			return 0
		}
		low := float64(uint64(1) << (i - 1))
		return int64(low + low*(rank-below)/float64(n))
	}
	return 0
}
