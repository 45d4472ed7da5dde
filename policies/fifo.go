package policies

import "time"

var _ = register(Spec{
	Name: "fifo", Rank: 8, New: newFIFO, Lends: Requests, Params: []*Param{orderInUnit.Param, byArrivalOnly.Param},
	Serves: "each domain in turn, for one request",
	Part:   "in proportion to the length of its requests",
})

var byArrivalOnly = newFlag(Param{Key: "by_arrival", Name: "Arrival", Doc: "requests by arrival, not domains in turn"})

// newFIFO returns Gdev's FIFO: the units take turns, request by request. The unit that was served goes to the
// end of the list; a unit without requests keeps its place. (Kato et al., "Gdev: First-Class GPU Resource
// Management in the Operating System", USENIX ATC 2012; the algorithm published under this name rotates, it
// does not serve by arrival.)
//
// With by_arrival it serves requests in order of arrival, regardless of their domain. Neither keeps an account
// of time.
func newFIFO(o Options) Policy {
	if byArrivalOnly.of(&o) {
		return newCommonQueue("fifo", o, func(*tenant) int { return 1 }, o.order(byArrival))
	}
	return newQueue("fifo", o, newRotation(), o.order(byPriority))
}

// rotation is a list of units; the first unit in it that has requests is next.
type rotation struct {
	waiting heap[unit] // by place in the list
	end     int64      // place behind the last one
}

func newRotation() *rotation {
	return &rotation{waiting: heap[unit]{
		at:   func(u *unit) *int { return &u.at },
		less: func(a, b *unit) bool { return a.place < b.place },
	}}
}

func (r *rotation) unitChanged(_ Time, u *unit) {
	if u.place == 0 {
		r.toEnd(u)
	}
}

// toEnd moves a unit to the end of the list.
func (r *rotation) toEnd(u *unit) {
	r.end++
	u.place = r.end
	if r.waiting.has(u) {
		r.waiting.fix(u)
	}
}

func (r *rotation) unitRemoved(Time, *unit) {}
func (r *rotation) enqueue(_ Time, u *unit) { r.waiting.push(u) }
func (r *rotation) dequeue(_ Time, u *unit) { r.waiting.remove(u) }

func (r *rotation) charge(Time, *unit, time.Duration) {}
func (r *rotation) complete(_ Time, u *unit)          { r.toEnd(u) }

func (r *rotation) pick(Time) (*unit, int, Time) { return r.waiting.top(), 1, Forever }
func (r *rotation) explain(*unit) string         { return "" }
