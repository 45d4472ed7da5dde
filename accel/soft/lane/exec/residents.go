package exec

import "time"

// residents are the blocks of a launch that one core has begun. A block runs to its end, unless it runs for long, as if
// it waited for another block: then it is put aside, and others have their turns. So the blocks of a grid can wait for
// each other, although there are fewer cores.
type residents struct {
	prog        *Program
	run         *run
	first, last *worker   // those put aside, in the order of their turns
	waiting     int       // their number
	polls       int       // how many turns in a row ended by polling
	polled      time.Time // when the first of them ended
	idle        *worker   // workers with finished blocks
	bytes       int       // of all
	watch       *stopwatch
}

// Bounds on the blocks begun at a time. The device reports a smaller number of resident blocks.
const (
	maxResidents     = 1024
	maxResidentBytes = 256 << 20
)

// cedeAfter is for how long the blocks of a core have to poll before the core may be ceded to other work. Blocks that wait for
// each other, as at the barrier of a grid, mostly end their waits before.
const cedeAfter = 500 * time.Microsecond

// work runs blocks until none is left.
func (p *Program) work(r *run) {
	s := residents{prog: p, run: r, watch: &r.watches[r.begun.Add(1)-1]}
	defer r.left()
	defer s.watch.stop()
	for w := s.begin(); w != nil; {
		if r.cancelled() {
			r.fail(w.timeout())
			s.release(w)
			break
		}
		over, f := w.proceed()
		if f != nil {
			r.fail(f)
			s.release(w)
			break
		}
		s.count(!over && (w.spun || w.timed))
		w = s.after(w, over)
	}
	s.end()
}

// after returns the worker that runs after w: after a block that is over, one that was put aside, so that they stay
// few; after one that may be waiting, a new one.
func (s *residents) after(w *worker, over bool) *worker {
	if over {
		s.release(w)
	} else {
		s.putAside(w)
	}
	if s.first == nil || !over && s.roomy() {
		if w := s.begin(); w != nil {
			return w
		}
	}
	if s.polls > 0 && s.polls >= s.waiting && s.run.launch.Cede != nil && time.Since(s.polled) >= cedeAfter {
		s.run.launch.Cede()
	}
	return s.resume()
}

// count records whether a block's turn ended by polling.
func (s *residents) count(polled bool) {
	if !polled {
		s.polls = 0
		return
	}
	if s.polls++; s.polls == 1 {
		s.polled = time.Now()
	}
}

func (s *residents) putAside(w *worker) {
	w.pause()
	if s.first == nil {
		s.first = w
	} else {
		s.last.next = w
	}
	s.last = w
	s.waiting++
}

// resume takes the block that has waited for longest; nil if there is none.
func (s *residents) resume() *worker {
	w := s.first
	if w != nil {
		s.first, w.next = w.next, nil
		s.waiting--
	}
	return w
}

func (s *residents) release(w *worker) { w.next, s.idle = s.idle, w }

func (s *residents) roomy() bool {
	return s.idle != nil || s.waiting < maxResidents && s.bytes+s.bytes/s.waiting <= maxResidentBytes
}

// begin begins the next block of the launch; nil if there is none.
func (s *residents) begin() *worker {
	if s.run.next.Load() >= s.run.total { // no worker is made for nothing
		return nil
	}
	b := s.run.next.Add(1) - 1
	if b >= s.run.total {
		return nil
	}
	w := s.worker()
	w.start(b)
	return w
}

func (s *residents) worker() *worker {
	if w := s.idle; w != nil {
		s.idle, w.next = w.next, nil
		return w
	}
	w, ok := s.prog.idle.Get().(*worker)
	if !ok {
		w = &worker{prog: s.prog, cache: make([]region, s.prog.Caches)}
	}
	w.begin(s.run, s.watch)
	s.bytes += w.bytes()
	return w
}

// end returns all workers to the pool, with their blocks in any state.
func (s *residents) end() {
	for w := s.resume(); w != nil; w = s.resume() {
		s.release(w)
	}
	for w := s.idle; w != nil; w = s.idle {
		s.idle, w.next = w.next, nil
		w.end()
		s.prog.idle.Put(w)
	}
}
