package policies

import "time"

// History predicts the cost of a request from the costs of earlier requests with the same key (TimeGraph's
// command profiler). It has room for size keys; a new key replaces the least recently used one. A request
// that follows one of another context costs more: this impact is learned separately from the means.
type History struct {
	size   int
	index  map[uint64]*record
	worst  heap[record] // the greatest mean in front
	recent *record      // most recently used; the others follow in a ring
	impact time.Duration
}

// record is the statistics of one key.
type record struct {
	key          uint64
	mean         time.Duration
	samples      int
	newer, older *record // in the ring, in which the oldest is followed by the most recent
	at           int
}

// steady is the number of samples after which a mean follows slowly.
const steady = 8

// NewHistory returns an empty table for size keys, at least one. impact is the assumed cost of a change of
// context until one has been measured.
func NewHistory(size int, impact time.Duration) *History {
	return &History{
		size:   max(size, 1),
		index:  make(map[uint64]*record, max(size, 1)),
		impact: max(impact, 0),
		worst: heap[record]{
			at:   func(r *record) *int { return &r.at },
			less: func(a, b *record) bool { return a.mean > b.mean },
		},
	}
}

// Predict returns the expected cost of a request with this key: the mean of its key plus, if the request
// follows one of another context, the impact. A key without a record is expected to cost as much as the worst
// recorded key (then the second result is false); with an empty table the result is 0.
func (h *History) Predict(key uint64, switches bool) (cost time.Duration, known bool) {
	r := h.index[key]
	if r != nil {
		h.use(r)
	}
	known = r != nil
	if r == nil {
		r = h.worst.top()
	}
	if r == nil {
		return 0, false
	}
	if switches {
		return r.mean + h.impact, known
	}
	return r.mean, known
}

// Learn adds the cost of a request. If the request followed one of another context and its key is recorded, the
// cost updates only the impact.
func (h *History) Learn(key uint64, cost time.Duration, switched bool) {
	r := h.index[key]
	switch cost = max(cost, 0); {
	case r == nil && switched:
		h.insert(key, max(cost-h.impact, 0))
	case r == nil:
		h.insert(key, cost)
	case switched:
		h.use(r)
		h.impact += (max(cost-r.mean, 0) - h.impact) / 8
	default:
		h.use(r)
		r.samples = min(r.samples+1, steady)
		r.mean += (cost - r.mean) / time.Duration(r.samples)
		h.worst.fix(r)
	}
}

// Impact returns the additional cost of a request after a change of context.
func (h *History) Impact() time.Duration { return h.impact }

// insert adds a record, in the place of the oldest if there is no room.
func (h *History) insert(key uint64, cost time.Duration) {
	r := h.vacant()
	r.key, r.mean, r.samples = key, cost, 1
	h.index[key] = r
	h.worst.push(r)
	h.link(r)
}

func (h *History) vacant() *record {
	if len(h.index) < h.size {
		return &record{}
	}
	r := h.recent.newer // the ring's other end
	h.unlink(r)
	h.worst.remove(r)
	delete(h.index, r.key)
	return r
}

// use makes r the most recently used record.
func (h *History) use(r *record) {
	if r != h.recent {
		h.unlink(r)
		h.link(r)
	}
}

func (h *History) link(r *record) {
	if h.recent == nil {
		r.newer, r.older = r, r
	} else {
		r.older, r.newer = h.recent, h.recent.newer
		r.older.newer, r.newer.older = r, r
	}
	h.recent = r
}

func (h *History) unlink(r *record) {
	r.older.newer, r.newer.older = r.newer, r.older
	switch {
	case r.older == r:
		h.recent = nil
	case r == h.recent:
		h.recent = r.older
	}
}
