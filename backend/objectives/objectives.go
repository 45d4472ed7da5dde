// Package objectives judges whether domains keep their objectives: a least share, a longest wait, a least rate of calls.
//
// Callers: backend/guests passes the time and each domain's readings, and reports the changes.
//
// Trust boundary: none. Readings are bounded by backend/guests. The package has no clock and no lock.
package objectives

import (
	"time"

	"pegasus/backend/control"
	"pegasus/backend/history"
	"pegasus/backend/meter"
)

// Targets are the objectives of a domain. Zero values: none.
type Targets struct {
	Share   float64       // least part of the time that all domains used while this one had work, 0 to 1
	WaitP99 time.Duration // longest 99th percentile of the waits at the gate
	Rate    float64       // least calls per second
	Window  time.Duration // over which they are measured; 0: DefaultWindow
}

// DefaultWindow is the window of objectives whose domain gives none.
const DefaultWindow = time.Minute

const (
	numSlots = 30
	// tolerance is the part of a target by which a measured value may miss it before the objective is violated. It has to
	// reach the target itself to be kept again.
	tolerance = 0.05
	// confirmations is the number of readings in a row that have to agree before a judgement changes.
	confirmations = 2
	// leastWaits is the number of requests below which there is no percentile.
	leastWaits = 20
	// budgetSlots times budgetSlot is the time over which the kept part is reported.
	budgetSlots = 60
	budgetSlot  = time.Minute
)

// The objectives, in the order of their reports.
const (
	share = iota
	waitP99
	rate
	numObjectives
)

var names = [numObjectives]string{"share", "wait_p99", "rate"}

func (t *Targets) of(i int) float64 {
	return [...]float64{t.Share, float64(t.WaitP99), t.Rate}[i]
}

// Any reports whether there is an objective.
func (t *Targets) Any() bool { return t.Share > 0 || t.WaitP99 > 0 || t.Rate > 0 }

// Tracker is the record of one domain with objectives. It has the activity of one window, about 17 KiB, whatever the
// window's length.
type Tracker struct {
	targets Targets
	slots   [numSlots]slot
	at      int // slot that is being filled
	each    [numObjectives]objective
	age     time.Duration // sum of the readings' times: the clock of budgets, which no operator sets
}

// slot is the activity in a part of the window.
type slot struct {
	elapsed, backlogged time.Duration
	stood               time.Duration // requests waited for admission, all of them together
	used, shared        time.Duration // time of the domain, and of all domains of the accelerator while this one had work
	calls               uint64
	waits               meter.Waits
}

func (s *slot) add(o *slot) {
	s.elapsed += o.elapsed
	s.backlogged += o.backlogged
	s.stood += o.stood
	s.used += o.used
	s.shared += o.shared
	s.calls += o.calls
	s.waits.Add(&o.waits)
}

// objective is the judgement about one objective.
type objective struct {
	state    string
	since    time.Time
	measured float64
	differs  int // readings in a row with another judgement than the state
	budget   budget
}

// budget has how long an objective was kept and violated, for each of the latest minutes.
type budget struct {
	minute       int64 // of the latest slot, by the tracker's age
	kept, judged [budgetSlots]time.Duration
}

func (b *budget) add(age, d time.Duration, kept bool) {
	minute := int64(age / budgetSlot)
	for m := max(b.minute+1, minute-budgetSlots+1); m <= minute; m++ {
		b.kept[m%budgetSlots], b.judged[m%budgetSlots] = 0, 0
	}
	b.minute = minute
	i := b.minute % budgetSlots
	b.judged[i] += d
	if kept {
		b.kept[i] += d
	}
}

// sums returns the kept and the judged time of the latest hour.
func (b *budget) sums() (kept, judged time.Duration) {
	for i := range b.judged {
		kept, judged = kept+b.kept[i], judged+b.judged[i]
	}
	return kept, judged
}

// Change is a changed judgement.
type Change struct {
	From, To string // control's states
	control.ObjectiveState
}

// Step adds a reading and returns the changed judgements. Changed targets begin anew.
func (t *Tracker) Step(now time.Time, targets Targets, r *history.Reading) (changed []Change) {
	if targets.Window <= 0 {
		targets.Window = DefaultWindow
	}
	if targets != t.targets {
		t.restart(now, targets)
	}
	t.observe(r)
	t.age += r.Elapsed
	sum := t.sum()
	for i := range t.each {
		o := &t.each[i]
		if targets.of(i) <= 0 {
			continue
		}
		before := o.state
		o.judge(now, t.verdict(i, &sum, o.state == control.ObjectiveViolated, &o.measured))
		if o.state == control.ObjectiveKept || o.state == control.ObjectiveViolated {
			o.budget.add(t.age, r.Elapsed, o.state == control.ObjectiveKept)
		} else {
			o.budget.add(t.age, 0, false)
		}
		if o.state != before {
			changed = append(changed, Change{before, o.state, t.show(i)})
		}
	}
	return changed
}

// restart adopts targets. An objective whose target and window stay keeps its record.
func (t *Tracker) restart(now time.Time, targets Targets) {
	same := t.targets.Window == targets.Window
	for i := range t.each {
		if !same || t.targets.of(i) != targets.of(i) {
			t.each[i] = objective{state: control.ObjectiveIdle, since: now}
		}
	}
	if !same {
		t.slots, t.at = [numSlots]slot{}, 0
	}
	t.targets = targets
}

func (t *Tracker) observe(r *history.Reading) {
	s := &t.slots[t.at]
	if s.elapsed >= t.targets.Window/numSlots {
		t.at = (t.at + 1) % numSlots
		s = &t.slots[t.at]
		*s = slot{}
	}
	part := r.Backlogged()
	s.add(&slot{
		elapsed: r.Elapsed, backlogged: time.Duration(part * float64(r.Elapsed)), stood: r.Stood, used: r.Used,
		shared: time.Duration(part * float64(r.All)), calls: r.Calls, waits: r.Waits,
	})
}

// sum returns the activity of the window: that of the latest slots which cover it.
func (t *Tracker) sum() (sum slot) {
	for i := range numSlots {
		if sum.elapsed >= t.targets.Window {
			break
		}
		sum.add(&t.slots[(t.at-i+numSlots)%numSlots])
	}
	return sum
}

// verdict returns the state of an objective by the activity of the window, and sets the measured value if there is one.
func (t *Tracker) verdict(i int, s *slot, violated bool, measured *float64) string {
	if s.elapsed < t.targets.Window/2 {
		return control.ObjectiveIdle
	}
	target := t.targets.of(i)
	limit := target
	switch i {
	case share:
		if s.backlogged < t.targets.Window/6 || s.shared <= 0 {
			return control.ObjectiveIdle
		}
		*measured = min(float64(s.used)/float64(s.shared), 1)
	case waitP99:
		if s.waits.Total() >= leastWaits {
			*measured = float64(s.waits.Quantile(0.99))
		} else if mean := float64(s.stood) / float64(s.waits.Total()+1); s.stood >= s.elapsed/2 && mean > target {
			*measured = max(mean, float64(s.waits.Quantile(0.99))) // few requests, since they wait too long
		} else {
			return control.ObjectiveIdle
		}
		if !violated {
			limit *= 1 + tolerance
		}
		return state(*measured <= limit)
	case rate:
		*measured = float64(s.calls) / s.elapsed.Seconds()
		if *measured < target && s.backlogged < s.elapsed/2 {
			return control.ObjectiveIdle // the domain requested no more
		}
	}
	if !violated {
		limit *= 1 - tolerance
	}
	return state(*measured >= limit)
}

func state(kept bool) string {
	if kept {
		return control.ObjectiveKept
	}
	return control.ObjectiveViolated
}

// judge changes the state after enough readings in a row that agree on another.
func (o *objective) judge(now time.Time, next string) {
	if next == o.state {
		o.differs = 0
		return
	}
	if o.differs++; o.differs < confirmations {
		return
	}
	o.state, o.since, o.differs = next, now, 0
}

func (t *Tracker) show(i int) control.ObjectiveState {
	o := &t.each[i]
	kept, judged := o.budget.sums()
	s := control.ObjectiveState{Name: names[i], State: o.state, Since: o.since, Target: t.targets.of(i), Measured: o.measured,
		Window: int64(t.targets.Window), Judged: int64(judged), Kept: 1}
	if judged > 0 {
		s.Kept = float64(kept) / float64(judged)
	}
	return s
}

// Show returns the objectives, and the worst of their states. A nil tracker is one of a domain without objectives.
func (t *Tracker) Show() control.Objective {
	out := control.Objective{State: control.ObjectiveNone}
	if t == nil {
		return out
	}
	for i := range t.each {
		if t.targets.of(i) <= 0 {
			continue
		}
		s := t.show(i)
		out.Objectives = append(out.Objectives, s)
		if rank[s.State] > rank[out.State] {
			out.State = s.State
		}
	}
	return out
}

// rank orders the states from the best to report to the worst.
var rank = map[string]int{control.ObjectiveNone: 0, control.ObjectiveIdle: 1, control.ObjectiveKept: 2, control.ObjectiveViolated: 3}
