package sim

import (
	"time"

	"pegasus/vcpu"
)

// Time is simulated time in nanoseconds; every run begins at 0.
type Time = vcpu.Time

// clock is a run's time and its pending events. It is the only state that all parts of a run share.
type clock struct {
	now     Time
	agenda  agenda
	end     Time   // nothing happens after it
	missing int    // runs of domains until the end; negative: they don't determine it
	events  uint64 // that have happened
	hash    uint64 // over these
}

// The 64-bit FNV hash, over words.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func newClock(end Time) *clock { return &clock{end: end, hash: fnvOffset} }

// at schedules an event, and after one that happens so much later than now.
func (c *clock) at(t Time, k kind, entity int32, gen uint32) { c.agenda.add(t, k, entity, gen) }

func (c *clock) after(d time.Duration, k kind, entity int32, gen uint32) {
	c.agenda.add(c.now.Add(d), k, entity, gen)
}

// advance takes the next event and moves time to it; false: there is none before the end.
func (c *clock) advance() (e event, ok bool) {
	if c.missing == 0 || c.agenda.len() == 0 {
		return event{}, false
	}
	e = *c.agenda.take()
	if e.at > c.end {
		c.now = c.end
		return event{}, false
	}
	c.now = e.at
	c.events++
	c.hash = (c.hash ^ uint64(e.at)) * fnvPrime
	c.hash = (c.hash ^ (uint64(e.kind())<<32 | uint64(uint32(e.entity)))) * fnvPrime
	return e, true
}

// event is a future event. Its entity is an index, so that events are plain values.
type event struct {
	at     Time
	key    uint64 // class, number of the event, kind: within a class, in order of scheduling
	entity int32
	gen    uint32 // generation of the entity at scheduling: if that has changed, the event is void
}

func (e *event) kind() kind { return kind(e.key & (1<<kindBits - 1)) }

// kind is the kind of an event. At one instant, completions precede the hypervisor's events, then follow
// arrivals, replies, timers: the order of the classes.
type kind uint8

const (
	completed  kind = iota // an engine has finished its request
	accounting             // the hypervisor's tick
	sampled                // its schedule is passed to the schedulers
	rotated                // a CPU's time slice is over
	burst                  // a thread has had the CPU time it needed
	served                 // the backend has decoded a call
	replied                // a guest receives the end of its call
	awoken                 // a thread's sleep ends
	granted                // a gate opens
	due                    // a scheduler's timer expires
	appeared               // a domain begins
	vanished               // a domain ends
	weighed                // the domains' CPU weights may change
	numKinds
)

// class orders events of the same instant.
var class = [numKinds]uint64{
	completed: 0, accounting: 1, sampled: 1, rotated: 1, burst: 2, served: 2, appeared: 2, vanished: 2,
	replied: 3, awoken: 4, granted: 4, due: 5, weighed: 5,
}

const (
	kindBits   = 4
	classShift = 60
)

// agenda is the pending events, a heap of four children each. Processing an event mostly schedules another:
// the first place stays empty until then, or until the next event is taken, so that it is filled only once.
type agenda struct {
	events []event
	count  uint64
	taken  bool // the first event was taken
}

// len returns the number of pending events.
func (a *agenda) len() int {
	if a.taken {
		return len(a.events) - 1
	}
	return len(a.events)
}

func (a *agenda) add(at Time, k kind, entity int32, gen uint32) {
	a.count++
	e := event{at, class[k]<<classShift | a.count<<kindBits | uint64(k), entity, gen}
	if a.taken {
		a.taken = false
		a.sink(&e)
		return
	}
	a.events = append(a.events, e)
	i := len(a.events) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&a.events[parent]) {
			break
		}
		a.events[i] = a.events[parent]
		i = parent
	}
	a.events[i] = e
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.key < o.key
}

// first returns the next event, which is valid until one is added.
func (a *agenda) first() *event {
	if a.taken {
		last := len(a.events) - 1
		e := a.events[last]
		if a.events = a.events[:last]; last > 0 {
			a.sink(&e)
		}
		a.taken = false
	}
	return &a.events[0]
}

// take removes the first event and returns it.
func (a *agenda) take() *event {
	e := a.first()
	a.taken = true
	return e
}

// sink puts e in place of the first event.
func (a *agenda) sink(e *event) {
	all := a.events
	i := 0
	for {
		child := 4*i + 1
		if child >= len(all) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(all)); c++ {
			if all[c].before(&all[least]) {
				least = c
			}
		}
		if !all[least].before(e) {
			break
		}
		all[i] = all[least]
		i = least
	}
	all[i] = *e
}
