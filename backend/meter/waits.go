package meter

import "slices"

// Waits counts requests by their wait at the gate, as a gate page does: bucket 0 those without a wait, bucket n those
// that waited less than 2^n ns and at least half of that.
type Waits [64]uint64

// Add adds the counts of v.
func (w *Waits) Add(v *Waits) {
	for i := range w {
		w[i] += v[i]
	}
}

// Since returns the requests counted after w was v. A bucket that shrank since then has none.
func (w *Waits) Since(v *Waits) (grown Waits) {
	for i := range w {
		grown[i] = w[i] - min(w[i], v[i])
	}
	return grown
}

// Counts returns the buckets up to the last one that has a request.
func (w *Waits) Counts() []uint64 {
	n := len(w)
	for n > 0 && w[n-1] == 0 {
		n--
	}
	return slices.Clone(w[:n])
}

// Total returns the number of requests.
func (w *Waits) Total() (total uint64) {
	for _, n := range w {
		total += n
	}
	return total
}

// Quantile returns the wait that a part p of the requests did not exceed, in ns, interpolated linearly within its
// bucket; 0 if there were none.
func (w *Waits) Quantile(p float64) int64 {
	total := w.Total()
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
