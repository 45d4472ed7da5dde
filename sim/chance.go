package sim

import (
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"
)

// stream is the random number generator of one entity. Every entity has its own stream, so adding one doesn't
// disturb the others.
type stream struct{ rand.PCG }

func newStream(seed uint64, entity string) *stream {
	h := fnv.New64a()
	h.Write([]byte(entity))
	return &stream{*rand.NewPCG(seed, h.Sum64())}
}

// below returns a random time in [0, d).
func (s *stream) below(d time.Duration) time.Duration {
	hi, _ := bits.Mul64(s.Uint64(), uint64(d))
	return time.Duration(hi)
}

// one returns true with a probability of part ‰.
func (s *stream) one(part int) bool { return s.below(1000) < time.Duration(part) }

// Distributions are tables of their inverse, computed with whole numbers, so that every machine draws the
// same.
const (
	pointBits  = 10
	points     = 1 << pointBits
	factorBits = 20 // of the fraction in a factor
)

// spread is a distribution of factors with the mean 1, in ascending order.
type spread [points]uint64

// times draws a factor and multiplies d with it. A nil spread is always 1.
func (p *spread) times(d time.Duration, s *stream) time.Duration {
	if p == nil || d <= 0 {
		return d
	}
	hi, lo := bits.Mul64(uint64(d), p[s.Uint64()>>(64-pointBits)])
	return time.Duration(hi<<(64-factorBits) | lo>>factorBits)
}

// logNormal returns the log-normal distribution with that σ of the logarithm, in
// thousandths.
func logNormal(sigma int) *spread {
	if sigma == 0 {
		return nil
	}
	spreads.Lock()
	defer spreads.Unlock()
	if p := spreads.known[sigma]; p != nil {
		return p
	}
	p := &spread{}
	var sum uint64
	for i, z := range normal() {
		p[i] = exponential(z*int64(sigma)/1000) >> (one32 - factorBits)
		sum += p[i]
	}
	for i := range p {
		hi, lo := bits.Mul64(p[i], points<<factorBits)
		p[i], _ = bits.Div64(hi, lo, sum)
	}
	spreads.known[sigma] = p
	return p
}

var spreads = struct {
	sync.Mutex
	known map[int]*spread
}{known: map[int]*spread{}}

// one32 is the number of fraction bits in the fixed-point numbers below.
const one32 = 32

// normal returns the quantiles of the standard normal distribution at the middles
// of points equal parts: the density is summed up in small steps.
var normal = sync.OnceValue(func() *[points]int64 {
	const steps, reach = 1 << 11, 5 // per unit, units to each side
	var sums [2*reach*steps + 1]uint64
	var sum uint64
	for i := range sums {
		z := (int64(i) - reach*steps) << one32 / steps
		sum += exponential(-mul32(z, z)/2) >> 8
		sums[i] = sum
	}
	q := &[points]int64{}
	at := 0
	for i := range q {
		want := sum / (2 * points) * uint64(2*i+1)
		for sums[at] < want {
			at++
		}
		q[i] = (int64(at) - reach*steps) << one32 / steps
	}
	return q
})

func mul32(a, b int64) int64 {
	negative := (a < 0) != (b < 0)
	hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	p := int64(hi<<one32 | lo>>one32)
	if negative {
		return -p
	}
	return p
}

// exponential returns e^x, both with 32 bits of fraction, for x < 20.
func exponential(x int64) uint64 {
	const ln2 = 2977044472 // 2^32 ln 2
	k := x / ln2
	if x < 0 {
		k--
	}
	r := x - k*ln2
	sum := int64(1) << one32
	for n := int64(16); n > 0; n-- { // Horner: 1 + r/1 (1 + r/2 (1 + …))
		sum = 1<<one32 + mul32(r, sum)/n
	}
	if k < 0 {
		return uint64(sum) >> min(-k, 63)
	}
	return uint64(sum) << k
}
