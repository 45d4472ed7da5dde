package policies

import "fmt"

// none lends the accelerator to all domains at once: work runs in the order in which it reaches the driver.
// It keeps no account of time. It is the baseline for the others.
type none struct {
	fresh []ID // attached, not yet granted; in order of attachment
	known map[ID]bool
	last  ID
}

var _ = register(Spec{
	Name: "none", Rank: 1, New: newNone, Lends: Window,
	Serves: "every domain, always",
	Part:   "as much as its programs take: with equal queues, in proportion to the length of their kernels",
})

func newNone(Options) Policy { return &none{known: make(map[ID]bool)} }

func (p *none) Attach(_ Time, d Domain) {
	if !p.known[d.ID] {
		p.known[d.ID] = true
		p.fresh = append(p.fresh, d.ID)
	}
}

func (p *none) Detach(_ Time, id ID) { delete(p.known, id) }

func (p *none) Wake(Time, ID, Signal) {}

func (p *none) Charge(Time, ID, Usage) {}

func (p *none) Pick(Time) (Decision, bool, Time) {
	for len(p.fresh) > 0 {
		id := p.fresh[0]
		p.fresh = p.fresh[1:]
		if p.known[id] {
			p.last = id
			return Decision{Grant, Lease{Domain: id, Until: Forever}}, true, Forever
		}
	}
	return Decision{}, false, Forever
}

func (p *none) Explain() string {
	return fmt.Sprintf("none: every gate is open, last domain %d's; domains: %d", p.last, len(p.known))
}
