package coordination

import (
	"cmp"
	"slices"
	"time"

	"pegasus/policies"
)

// span is a time during which some vCPU of a domain ran.
type span struct{ from, to policies.Time }

// truth is the times at which domains' vCPUs ran, by the domains' names.
type truth struct {
	spans    map[string][]span // sorted and disjoint
	from, to policies.Time     // the recorded interval
}

func truthOf(all []Line) truth {
	t := truth{spans: make(map[string][]span), from: policies.Forever}
	for i := range all {
		r := all[i].Run
		if r == nil || r.To <= r.From {
			continue
		}
		t.spans[r.Domain] = append(t.spans[r.Domain], span{r.From, r.To})
		t.from, t.to = min(t.from, r.From), max(t.to, r.To)
	}
	for name := range t.spans {
		t.spans[name] = merge(t.spans[name])
	}
	return t
}

// merge joins spans that touch or overlap.
func merge(all []span) (apart []span) {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range all {
		if n := len(apart); n > 0 && s.from <= apart[n-1].to {
			apart[n-1].to = max(apart[n-1].to, s.to)
		} else {
			apart = append(apart, s)
		}
	}
	return apart
}

// knows reports whether the whole interval is within the recorded time.
func (t *truth) knows(from, to policies.Time) bool { return t.from <= from && to <= t.to }

// at reports whether a vCPU of the domain ran at now.
func (t *truth) at(domain string, now policies.Time) bool { return t.ran(domain, now, now+1) > 0 }

// ran returns for how long in the interval a vCPU of the domain ran.
func (t *truth) ran(domain string, from, to policies.Time) (d time.Duration) {
	all := t.spans[domain]
	first, _ := slices.BinarySearchFunc(all, from, func(s span, from policies.Time) int { return cmp.Compare(s.to, from) })
	for _, s := range all[first:] {
		if s.from >= to {
			break
		}
		d += max(min(s.to, to).Sub(max(s.from, from)), 0)
	}
	return d
}
