package sim

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"pegasus/vcpu"
)

// record is a domain's data for statistics.
type record struct {
	runs    []run
	calls   histogram // from ring to reply
	waits   histogram // from ring to engine
	window  time.Duration
	longest time.Duration               // request
	usage   [numEngines][]time.Duration // engine time per window
}

// run is a run of a program.
type run struct{ began, ended Time }

// held records the time that an engine was held, per window.
func (r *record) held(from, to Time, c vcpu.Engine) {
	w := Time(r.window)
	r.longest = max(r.longest, to.Sub(from))
	if w <= 0 {
		return
	}
	u := r.usage[c]
	for from < to {
		i := int(from / w)
		for len(u) <= i {
			u = append(u, 0)
		}
		end := min(to, Time(i+1)*w)
		u[i] += end.Sub(from)
		from = end
	}
	r.usage[c] = u
}

// in returns the engine time of the i-th window.
func (r *record) in(i int, c vcpu.Engine) time.Duration {
	if i < len(r.usage[c]) {
		return r.usage[c][i]
	}
	return 0
}

// histogram is a histogram of durations, exact to 1 part in 64. Few of its octaves are ever used.
type histogram struct {
	octaves []*[1 << fineBits]uint32 // of durations that need that many bits more than fineBits, nil before the first
	n       int
	sum     time.Duration
	most    time.Duration
}

const fineBits = 6

func (h *histogram) add(d time.Duration) {
	i := bucket(d)
	octave := i >> fineBits
	if octave >= len(h.octaves) || h.octaves[octave] == nil {
		h.grow(octave)
	}
	h.octaves[octave][i&(1<<fineBits-1)]++
	h.n++
	h.sum += d
	h.most = max(h.most, d)
}

func (h *histogram) grow(octave int) {
	for len(h.octaves) <= octave {
		h.octaves = append(h.octaves, nil)
	}
	h.octaves[octave] = new([1 << fineBits]uint32)
}

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-fineBits-1, 0)
	return shift<<fineBits + int(v>>shift)
}

// quantile returns the duration that a part q of all does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	left := int(math.Ceil(q * float64(h.n)))
	for o, counts := range h.octaves {
		if counts == nil {
			continue
		}
		for i, c := range counts {
			if left -= int(c); left <= 0 && c > 0 {
				shift := max(o-1, 0)
				low := uint64((o-shift)<<fineBits+i) << shift
				return min(time.Duration(low+(1<<shift)/2), h.most)
			}
		}
	}
	return h.most
}

func (h *histogram) mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return h.sum / time.Duration(h.n)
}

// quantile returns the interpolated quantile of numbers.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func sorted(v []float64) []float64 {
	slices.Sort(v)
	return v
}

func mean(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func deviation(v []float64) float64 {
	m := mean(v)
	var sum float64
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return math.Sqrt(sum / float64(max(len(v), 1)))
}
