package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pegasus/policies"
)

// Outcome is the result of decisions for one domain, at the events of a recording. Times count while the
// domain had work.
type Outcome struct {
	Domain  string  `json:"domain"`
	Work    int64   `json:"work_ns"`    // it had work
	Open    int64   `json:"open_ns"`    // and its gate was open
	Share   float64 `json:"share"`      // of all domains' Used, 0 to 1
	Waits   int     `json:"waits"`      // times that it had to wait for its gate
	Wait    int64   `json:"wait_ns"`    // mean of these waits
	Longest int64   `json:"longest_ns"` // of these waits
	Used    int64   `json:"used_ns"`    // accelerator time charged, or that would be
}

// ledger follows the gates of all domains through the events of a recording and the decisions of a policy.
type ledger struct {
	at    Time
	begun bool
	all   map[policies.ID]*books
	order []policies.ID
}

// books are the account of a domain.
type books struct {
	Outcome
	work    [3]bool           // by policies.Class
	gates   [3]policies.Lease // by policies.Class; Until is zero while a gate is closed
	held    float64           // ns of Open, divided by the domains that had open gates then
	charged float64           // held at the last charge
	waiting bool
	since   Time
}

func newLedger() *ledger { return &ledger{all: map[policies.ID]*books{}} }

func (l *ledger) of(id policies.ID) *books {
	b := l.all[id]
	if b == nil {
		b = &books{Outcome: Outcome{Domain: fmt.Sprint(id)}}
		l.all[id], l.order = b, append(l.order, id)
	}
	return b
}

// advance advances time. A lease that ends meanwhile closes its gate.
func (l *ledger) advance(now Time) {
	if !l.begun {
		l.at, l.begun = now, true
	}
	for l.at < now {
		next, open := now, 0
		for _, id := range l.order {
			if b := l.all[id]; b.working() && b.until() > l.at {
				next, open = min(next, b.until()), open+1
			}
		}
		took := int64(next.Sub(l.at))
		for _, id := range l.order {
			switch b := l.all[id]; {
			case !b.working():
			case b.until() > l.at:
				b.Work, b.Open, b.held = b.Work+took, b.Open+took, b.held+float64(took)/float64(open)
			default:
				b.Work += took
				b.wait(l.at)
			}
		}
		l.at = next
	}
}

func (b *books) working() bool { return slices.Contains(b.work[:], true) }

// until returns when the last gate of a class with work closes.
func (b *books) until() (t Time) {
	for c, g := range b.gates {
		if b.work[c] || policies.Class(c) == policies.AnyClass || b.work[policies.AnyClass] {
			t = max(t, g.Until)
		}
	}
	return t
}

func (b *books) wait(from Time) {
	if !b.waiting {
		b.waiting, b.since = true, from
	}
}

// settle records that a wait has begun or ended.
func (b *books) settle(now Time) {
	switch stands := b.until() > now; {
	case b.working() && !stands:
		b.wait(now)
	case b.waiting:
		b.waiting = false
		took := int64(now.Sub(b.since))
		if took > 0 {
			b.Waits++
			b.Wait += took
			b.Longest = max(b.Longest, took)
		}
	}
}

func (l *ledger) event(now Time, e *policies.Event, name string) {
	l.advance(now)
	if e.Kind == policies.Observe {
		return
	}
	b := l.of(e.Domain.ID)
	switch e.Kind {
	case policies.Attach:
		if name != "" {
			b.Domain = name
		}
	case policies.Detach:
		b.work, b.gates = [3]bool{}, [3]policies.Lease{}
	case policies.Charge:
		if busy := int64(e.Used.Busy()); busy > 0 {
			b.Used += busy
			b.work[e.Class] = true // work that came while the gate was open was not reported before
		}
	case policies.Wake:
		switch e.Signal {
		case policies.Arrived:
			b.work[e.Class] = true
		case policies.Drained:
			b.work[e.Class] = false
			if e.Class == policies.AnyClass {
				b.work = [3]bool{}
			}
		}
	}
	b.settle(now)
}

func (l *ledger) decided(now Time, actions []policies.Action) {
	l.advance(now)
	for _, a := range actions {
		b := l.of(a.Domain)
		if a.Open {
			b.gates[a.Lease.Class] = a.Lease
		} else {
			b.gates[a.Lease.Class] = policies.Lease{}
		}
		b.settle(now)
	}
}

// instead returns a recorded charge as it would be under the decisions of this ledger: for the part of the
// accelerator that the domain was lent since its last charge, used as intensely as in the recorded run.
func (l *ledger) instead(now Time, e *policies.Event, recorded *ledger) *policies.Event {
	busy := e.Used.Busy()
	if e.Kind != policies.Charge || busy <= 0 {
		return e
	}
	l.advance(now)
	b, was := l.of(e.Domain.ID), recorded.of(e.Domain.ID)
	use := (b.held - b.charged) * float64(was.Used) / max(was.held, 1)
	b.charged = b.held
	out, part := *e, use/float64(busy)
	out.Used.Compute = time.Duration(float64(e.Used.Compute) * part)
	out.Used.Copy = time.Duration(float64(e.Used.Copy) * part)
	return &out
}

// outcomes returns the sums by the names of domains.
func (l *ledger) outcomes(names map[string]string) []Outcome {
	var used int64
	all := []Outcome{}
	for _, id := range l.order {
		b := l.all[id]
		b.work = [3]bool{}
		b.settle(l.at)
		o := b.Outcome
		if name := names[fmt.Sprint(id)]; name != "" {
			o.Domain = name
		}
		o.Wait /= int64(max(o.Waits, 1))
		used += o.Used
		all = append(all, o)
	}
	for i := range all {
		all[i].Share = float64(all[i].Used) / float64(max(used, 1))
	}
	slices.SortFunc(all, func(a, b Outcome) int { return natural(a.Domain, b.Domain) })
	return all
}

// describe returns a decision in words.
func (l *ledger) describe(now Time, actions []policies.Action, names map[string]string) string {
	if len(actions) == 0 {
		return "nothing changes"
	}
	var all []string
	for _, a := range actions {
		name := l.of(a.Domain).Domain
		if given := names[fmt.Sprint(a.Domain)]; given != "" {
			name = given
		}
		switch {
		case !a.Open:
			all = append(all, "close "+name)
		case a.Lease.Until == Forever:
			all = append(all, "open "+name)
		default:
			all = append(all, fmt.Sprintf("open %s for %v", name, time.Duration(a.Lease.Until.Sub(now)).Round(time.Microsecond)))
		}
	}
	return strings.Join(all, ", ")
}
