package cpus

import (
	"time"

	"pegasus/hypervisor"
	"pegasus/vcpu"
)

// Beside is the CPU side of all guests of a daemon in Dom0: of Xen's domains, and of Dom0's own processes, which
// share Dom0's part of the CPUs.
type Beside struct {
	sides [2]hypervisor.CPUs
	looks [2]bool // the side was used by the last Look
}

// NewBeside returns the combination of both sides.
func NewBeside(xen, processes hypervisor.CPUs) *Beside {
	return &Beside{sides: [2]hypervisor.CPUs{xen, processes}}
}

// split divides guests by their side, and returns their indexes in of.
func split(of []hypervisor.Guests) (guests [2][]hypervisor.Guests, places [2][]int) {
	for i, g := range of {
		side := 0
		if g.Xen == 0 {
			side = 1
		}
		guests[side], places[side] = append(guests[side], g), append(places[side], i)
	}
	return guests, places
}

// each calls `ask` for both sides that have guests, and merges the results in the order of the guests.
func each[T any](b *Beside, of []hypervisor.Guests, ask func(side int, of []hypervisor.Guests) []T) []T {
	all := make([]T, len(of))
	guests, places := split(of)
	for side := range b.sides {
		if len(guests[side]) == 0 {
			continue
		}
		for n, x := range ask(side, guests[side]) {
			all[places[side][n]] = x
		}
	}
	return all
}

// Weights implements hypervisor.CPUs.
func (b *Beside) Weights(of []hypervisor.Guests) []hypervisor.Weight {
	return each(b, of, func(side int, of []hypervisor.Guests) []hypervisor.Weight { return b.sides[side].Weights(of) })
}

// Spent implements hypervisor.CPUs.
func (b *Beside) Spent(of []hypervisor.Guests) []hypervisor.Spent {
	return each(b, of, func(side int, of []hypervisor.Guests) []hypervisor.Spent { return b.sides[side].Spent(of) })
}

// Look implements hypervisor.CPUs. It reports the lowest quality of the two sources, ignoring a source that reports
// Unknown.
func (b *Beside) Look(now vcpu.Time, period time.Duration, of []hypervisor.Guests) ([]vcpu.Schedule, vcpu.Quality) {
	quality, looks := vcpu.Unknown, [2]bool{}
	all := each(b, of, func(side int, of []hypervisor.Guests) []vcpu.Schedule {
		looks[side] = true
		seen, q := b.sides[side].Look(now, period, of)
		if quality == vcpu.Unknown || q != vcpu.Unknown && q < quality {
			quality = q
		}
		return seen
	})
	for side, c := range b.sides {
		if b.looks[side] && !looks[side] { // the side's last guest has gone
			c.Close()
		}
	}
	b.looks = looks
	return all, quality
}

// Close implements hypervisor.CPUs.
func (b *Beside) Close() {
	for _, c := range b.sides {
		c.Close()
	}
	b.looks = [2]bool{}
}
