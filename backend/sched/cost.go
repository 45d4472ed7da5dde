package sched

import (
	"math/bits"
)

// costs counts decisions by their duration: four buckets for each doubling.
type costs struct {
	buckets [costBuckets]uint64
	n       uint64
}

const (
	costBits    = 2 // bits of a duration below its leading one that select the bucket
	costBuckets = 64 << costBits
)

// add counts n decisions of that many ns each.
func (c *costs) add(ns int64, n uint64) {
	c.buckets[costBucket(uint64(max(ns, 0)))] += n
	c.n += n
}

func costBucket(ns uint64) int {
	octave := bits.Len64(ns >> costBits)
	if octave == 0 {
		return int(ns)
	}
	return octave<<costBits + int(ns>>(octave-1)&(1<<costBits-1))
}

// most returns the longest duration that a bucket counts, in ns.
func most(bucket int) int64 {
	octave, part := bucket>>costBits, uint64(bucket&(1<<costBits-1))
	if octave == 0 {
		return int64(part)
	}
	return int64((1<<costBits+part+1)<<(octave-1) - 1)
}

// quantile returns the duration that a part p of the decisions did not exceed, in ns, to within a quarter above; 0 if
// there were none.
func (c *costs) quantile(p float64) int64 {
	var below uint64
	for i, n := range c.buckets {
		if below += n; n > 0 && float64(below) >= p*float64(c.n) {
			return most(i)
		}
	}
	return 0
}
