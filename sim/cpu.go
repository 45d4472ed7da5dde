package sim

import (
	"slices"
	"time"

	"pegasus/vcpu"
)

// Xen's credit scheduler as of 2011. A credit is a tenth of a millisecond of CPU time; here credits are kept
// in nanoseconds.
const (
	cpuTick   = 10 * time.Millisecond
	cpuPeriod = 30 * time.Millisecond // slice, and interval of the accounting
	maxCredit = cpuPeriod             // 300 credits
	xenCredit = 100 * time.Microsecond
)

// priority is the priority of a thread's virtual CPU. A thread that wakes with credit left runs first, until
// a tick finds it running.
type priority uint8

const (
	over priority = iota
	under
	boost
	realtime // outside the credit scheduler: precedes all others
)

// pcpu is a physical CPU.
type pcpu struct {
	id      int
	running *thread
	queue   []*thread // runnable, in the order in which they will run
	gen     uint32
	slicing bool // a slice's end is scheduled
	busy    time.Duration
	fair    bool  // EEVDF
	clock   int64 // its virtual time
}

// credit is the account of a virtual CPU.
type credit struct {
	left     time.Duration
	priority priority
	active   bool // it earns
}

// mode is a thread's use of its virtual CPU.
type mode uint8

const (
	blocked mode = iota
	working
	spinning
)

// need makes a thread compute, or spin, for d.
func (s *Sim) need(t *thread, m mode, d time.Duration) {
	was := t.mode
	t.mode, t.left = m, d
	switch {
	case t.cpu == nil:
		s.arm(t)
	case t.cpu.running == t:
		s.arm(t)
	case was == blocked:
		s.runnable(t)
	}
}

// arm schedules the end of a running thread's burst.
func (s *Sim) arm(t *thread) {
	t.gen++
	t.since = s.now
	s.agenda.add(s.now.Add(t.left), burst, t.index, t.gen)
}

// runnable is called when a blocked thread has work to do.
func (s *Sim) runnable(t *thread) {
	p := t.cpu
	switch {
	case t.domain.spec.Realtime:
		t.credit.priority = realtime
	case p.fair:
		t.credit.priority = under
	case t.credit.left >= 0:
		t.credit.priority = boost
	default:
		t.credit.priority = over
	}
	if p.fair {
		p.arrive(s, t)
	}
	p.enqueue(t)
	switch {
	case p.running == nil:
		s.dispatch(p)
	case p.running.credit.priority < t.credit.priority:
		s.preempt(p)
	default:
		s.slice(p)
	}
}

// enqueue puts t behind those of its priority.
func (p *pcpu) enqueue(t *thread) {
	at := len(p.queue)
	for at > 0 && p.queue[at-1].credit.priority < t.credit.priority {
		at--
	}
	p.queue = slices.Insert(p.queue, at, t)
}

// dispatch runs the first of the queue.
func (s *Sim) dispatch(p *pcpu) {
	if p.running != nil || len(p.queue) == 0 {
		return
	}
	at := 0
	if p.fair {
		at = p.earliest()
	}
	t := p.queue[at]
	p.queue = slices.Delete(p.queue, at, at+1)
	p.running = t
	t.dispatched, t.billed = s.now, s.now
	s.arm(t)
	s.slice(p)
	s.traceCPU(p, t)
}

// slice ends the runner's time slice if another thread waits.
func (s *Sim) slice(p *pcpu) {
	if p.slicing || p.running == nil || len(p.queue) == 0 {
		return
	}
	if p.fair {
		s.fairSlice(p)
		return
	}
	p.slicing = true
	p.gen++
	s.agenda.add(max(s.now, p.running.dispatched.Add(cpuPeriod)), rotated, int32(p.id), p.gen)
}

// stop takes the CPU from the runner and bills it.
func (s *Sim) stop(p *pcpu) *thread {
	t := p.running
	s.bill(t)
	t.left = max(t.left-s.now.Sub(t.since), 0)
	t.gen++
	p.running = nil
	p.slicing = false
	p.gen++
	s.traceCPU(p, nil)
	return t
}

// bill charges a running thread for the time since it was last billed.
func (s *Sim) bill(t *thread) {
	d := s.now.Sub(t.billed)
	t.billed = s.now
	t.credit.left = max(t.credit.left-d, -maxCredit)
	if t.cpu.fair {
		t.fair.ran += t.virtual(d)
	}
	t.cpu.busy += d
	t.domain.cpuTime += d
}

func (s *Sim) preempt(p *pcpu) {
	p.enqueue(s.stop(p))
	s.dispatch(p)
}

// rest blocks a running thread.
func (s *Sim) rest(t *thread) {
	p := t.cpu
	if p.fair {
		p.depart(s, t)
	}
	s.stop(p)
	t.mode = blocked
	s.dispatch(p)
}

// rotate is called at the end of a slice.
func (s *Sim) rotate(p *pcpu) {
	p.slicing = false
	if p.running == nil || len(p.queue) == 0 {
		return
	}
	if p.fair {
		s.fairRotate(p)
		return
	}
	if s.now.Sub(p.running.dispatched) < cpuPeriod || p.queue[0].credit.priority < p.running.credit.priority {
		if p.queue[0].credit.priority < p.running.credit.priority {
			p.running.dispatched = s.now
		}
		s.slice(p)
		return
	}
	s.preempt(p)
}

// tickCPUs is Xen's tick, and every third time its accounting.
func (s *Sim) tickCPUs() {
	for i := range s.cpus {
		t := s.cpus[i].running
		if t == nil {
			continue
		}
		s.bill(t)
		t.credit.active = true
		if t.credit.priority == boost {
			t.credit.priority = t.credit.standing()
		}
	}
	if s.now%Time(cpuPeriod) == 0 {
		s.payCPUs()
	}
	s.agenda.add(s.now.Add(cpuTick), accounting, 0, 0)
}

func (c *credit) standing() priority {
	if c.left < 0 {
		return over
	}
	return under
}

// payCPUs gives the active threads their earnings, by the weights of their domains. A thread with too much
// credit stops earning and loses half of it.
func (s *Sim) payCPUs() {
	var sum int64
	for _, t := range s.threads {
		if t.cpu != nil && t.credit.active {
			sum += int64(t.domain.cpuCredits)
		}
	}
	if sum == 0 {
		return
	}
	total := int64(maxCredit) * int64(len(s.cpus))
	for _, t := range s.threads {
		if t.cpu == nil || !t.credit.active {
			continue
		}
		t.credit.left += min(time.Duration(total*int64(t.domain.cpuCredits)/sum), maxCredit)
		if t.credit.left > maxCredit {
			t.credit.left /= 2
			t.credit.active = false
		}
		if t.credit.priority < boost && !t.cpu.fair {
			t.credit.priority = t.credit.standing()
		}
	}
	for i := range s.cpus {
		p := &s.cpus[i]
		if p.fair {
			continue
		}
		slices.SortStableFunc(p.queue, func(a, b *thread) int { return int(b.credit.priority) - int(a.credit.priority) })
		if p.running != nil && len(p.queue) > 0 && p.queue[0].credit.priority > p.running.credit.priority {
			s.preempt(p)
		}
	}
}

// sample returns the hypervisor's sample for the scheduler of one accelerator.
func (s *Sim) sample(h *host) *vcpu.Sample {
	out := &vcpu.Sample{At: s.now, Period: cpuPeriod, Quality: vcpu.Exact}
	if len(s.cpus) > 0 && s.cpus[0].fair {
		out.Quality = vcpu.Shadow // credit is computed by Xen's algorithm
	}
	out.Domains = make([]vcpu.Schedule, 0, len(h.members))
	for _, d := range h.members {
		sched := vcpu.Schedule{ID: d.id, Weight: d.cpuCredits, Remaining: -int64(maxCredit / xenCredit)}
		for i, t := range d.threads {
			v := vcpu.VCPU{ID: i, PCPU: -1}
			if t.cpu == nil {
				continue
			}
			v.PCPU = t.cpu.id
			v.State = t.state()
			if t.cpu.fair {
				v.Next = t.coming()
			}
			sched.VCPUs = append(sched.VCPUs, v)
			left := t.credit.left
			if t.cpu.running == t {
				left -= s.now.Sub(t.billed)
			}
			sched.Remaining = max(sched.Remaining, int64(left/xenCredit))
		}
		if len(sched.VCPUs) > 0 {
			out.Domains = append(out.Domains, sched)
		}
	}
	return out
}

// state returns a thread's virtual CPU state as the hypervisor sees it.
func (t *thread) state() vcpu.VCPUState {
	switch {
	case t.cpu.running == t:
		return vcpu.Running
	case t.mode != blocked:
		return vcpu.Runnable
	case t.waits:
		return vcpu.BlockedOnAccelerator
	}
	return vcpu.Blocked
}
