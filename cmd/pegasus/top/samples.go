package top

import (
	"math"
	"time"

	"pegasus/backend/control"
)

const (
	maxSamples = 600
	// bucketTime is the time of one character of a sparkline: the interval of the daemon's samples.
	bucketTime = 2 * time.Second
)

// history has the latest samples by name, the oldest first, at most 2*maxSamples each: of a domain what sparklines show,
// of an accelerator its utilisation as the share. Its owner is the model.
type history map[string][]control.Sample

// add adds a sample.
func (h history) add(name string, s control.Sample) {
	all := append(h[name], s)
	if len(all) > 2*maxSamples { // copied once in maxSamples samples
		all = append([]control.Sample(nil), all[len(all)-maxSamples:]...)
	}
	h[name] = all
}

// before adds samples that are older than those it has.
func (h history) before(name string, old []control.Sample) {
	if len(old) == 0 {
		return
	}
	mine := h[name]
	n := len(old)
	for len(mine) > 0 && n > 0 && old[n-1].At >= mine[0].At {
		n--
	}
	old = old[max(0, n-maxSamples):n]
	h[name] = append(append(make([]control.Sample, 0, len(old)+len(mine)), old...), mine...)
}

// keep removes the samples of names that have none after a time.
func (h history) keep(since int64) {
	for name, all := range h {
		if all[len(all)-1].At < since {
			delete(h, name)
		}
	}
}

// levels are the characters of a sparkline, from 0 to the maximum.
var levels = []rune("▁▂▃▄▅▆▇█")

// spark returns a sparkline of so many characters that ends at a time. Each character is the mean of the samples in a
// bucket; a bucket without samples is a blank. The maximum is most, or that of the samples if most is 0.
func spark(samples []control.Sample, figure func(control.Sample) float64, at time.Time, bucket time.Duration, width int, most float64) string {
	if width <= 0 {
		return ""
	}
	sum, n := make([]float64, width), make([]int, width)
	last := at.UnixNano() / int64(bucket)
	for i := len(samples) - 1; i >= 0; i-- {
		s := samples[i]
		place := width - 1 - int(last-s.At/int64(bucket))
		if place < 0 {
			break
		}
		if s.At <= at.UnixNano() { // else it is newer than a frozen screen
			sum[place] += figure(s)
			n[place]++
		}
	}
	fixed := most > 0
	for i := range sum {
		if n[i] > 0 {
			sum[i] /= float64(n[i])
			if !fixed {
				most = max(most, sum[i])
			}
		}
	}
	line := make([]rune, width)
	for i := range line {
		switch {
		case n[i] == 0:
			line[i] = ' '
		case most <= 0:
			line[i] = levels[0]
		default:
			top := float64(len(levels) - 1)
			line[i] = levels[int(math.Round(min(max(sum[i]/most, 0), 1)*top))]
		}
	}
	return string(line)
}
