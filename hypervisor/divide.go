package hypervisor

import (
	"math/bits"
	"slices"
	"time"
)

// claim is an account's claim to a part of a period.
type claim struct {
	account *Account
	weight  int64
	cpus    CPUSet
	most    time.Duration
	gets    time.Duration
}

// pool is a set of CPUs and the claims limited to it.
type pool struct {
	cpus   CPUSet
	count  int
	claims []*claim      // limited to exactly this set
	within []*pool       // pools with sets that are subsets of it, itself included, the smallest first
	spent  time.Duration // time of its CPUs given to final claims
	level  level
	done   bool
}

// level is the time per weight in a pool, a fraction; infinite, with weight 0, where all claims get their most.
type level struct {
	time   time.Duration
	weight int64
}

func (l level) below(m level) bool {
	if l.weight == 0 || m.weight == 0 {
		return l.weight != 0
	}
	hi, lo := bits.Mul64(uint64(l.time), uint64(m.weight))
	hi2, lo2 := bits.Mul64(uint64(m.time), uint64(l.weight))
	return hi < hi2 || hi == hi2 && lo < lo2
}

// divide divides the CPUs' time by weight, within the limits of the claims. The pool with the lowest level is divided
// first: no claim in it can get more elsewhere. The time that its claims leave is for the larger pools that contain
// it. The result is exact where of any two overlapping pools one contains the other.
func divide(claims []*claim, period time.Duration) {
	pools := poolsOf(claims)
	for _, p := range pools {
		p.level = p.fill(period)
	}
	for range pools {
		var tightest *pool
		for _, p := range pools {
			if !p.done && (tightest == nil || p.level.below(tightest.level)) {
				tightest = p
			}
		}
		if tightest == nil {
			return
		}
		tightest.fill(period)
		got := tightest.settle(period)
		for _, p := range pools {
			shared := p.cpus.common(&tightest.cpus)
			if p.done || shared == 0 {
				continue
			}
			p.spent += scaleUp(got, int64(shared), int64(tightest.count))
			p.level = p.fill(period)
		}
	}
}

func poolsOf(claims []*claim) (pools []*pool) {
	bySet := make(map[CPUSet]*pool)
	for _, c := range claims {
		p := bySet[c.cpus]
		if p == nil {
			p = &pool{cpus: c.cpus, count: c.cpus.Len()}
			bySet[p.cpus] = p
			pools = append(pools, p)
		}
		p.claims = append(p.claims, c)
	}
	for _, p := range pools {
		for _, q := range pools {
			if q.cpus.common(&p.cpus) == q.count {
				p.within = append(p.within, q)
			}
		}
		slices.SortStableFunc(p.within, func(a, b *pool) int { return a.count - b.count })
	}
	return pools
}

// settle makes the claims in the pool final, and returns the time that they get. A contained pool with the same level
// gets no nanosecond of rounding beyond its own CPUs' time.
func (p *pool) settle(period time.Duration) (all time.Duration) {
	for i, q := range p.within {
		if q.done {
			continue
		}
		q.done = true
		got, left := time.Duration(0), max(period*time.Duration(q.count)-q.spent, 0)
		for _, c := range q.claims {
			c.gets = min(c.gets, left-got)
			got += c.gets
		}
		all += got
		for _, outer := range p.within[i+1:] {
			if outer.cpus.common(&q.cpus) == q.count {
				outer.spent += got
			}
		}
	}
	return all
}

// fill divides the pool's time among all its claims that are not final, and returns the level.
func (p *pool) fill(period time.Duration) level {
	var claims []*claim
	weights := int64(0)
	for _, q := range p.within {
		if !q.done {
			for _, c := range q.claims {
				claims = append(claims, c)
				weights += c.weight
			}
		}
	}
	// Claims with the smallest limit for their weight come first, so that the time they leave is divided among the
	// others.
	slices.SortStableFunc(claims, func(a, b *claim) int {
		hi, lo := bits.Mul64(uint64(a.most), uint64(b.weight))
		hi2, lo2 := bits.Mul64(uint64(b.most), uint64(a.weight))
		switch {
		case hi < hi2 || hi == hi2 && lo < lo2:
			return -1
		case hi == hi2 && lo == lo2:
			return 0
		}
		return 1
	})
	left := max(period*time.Duration(p.count)-p.spent, 0)
	var l level
	for _, c := range claims {
		part := scale(left, c.weight, weights)
		if l.weight == 0 && part < c.most {
			l = level{left, weights}
		}
		c.gets = min(part, c.most)
		left -= c.gets
		weights -= c.weight
	}
	return l
}

// scale returns d·part/whole, for a part that is no more than the whole.
func scale(d time.Duration, part, whole int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return time.Duration(q)
}

// scaleUp returns scale, rounded up.
func scaleUp(d time.Duration, part, whole int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(part))
	lo, carry := bits.Add64(lo, uint64(whole)-1, 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(whole))
	return time.Duration(q)
}
