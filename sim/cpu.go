package sim

import (
	"cmp"
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

// processors are the CPUs with the hypervisor's scheduler, Xen's or Linux', and the virtual CPUs of all threads.
type processors struct {
	*clock
	all     []pcpu
	threads []*thread
	slicing time.Duration // EEVDF's slices
	trace   *Trace        // nil: none
}

func newProcessors(c *clock, n int, scheduler string, slice time.Duration) *processors {
	m := &processors{clock: c, all: make([]pcpu, n), slicing: cmp.Or(slice, eevdfSlice)}
	for i := range m.all {
		m.all[i].id = i
		m.all[i].fair = scheduler == "eevdf"
	}
	return m
}

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
func (m *processors) need(t *thread, to mode, d time.Duration) {
	was := t.mode
	t.mode, t.left = to, d
	switch {
	case t.cpu == nil:
		m.arm(t)
	case t.cpu.running == t:
		m.arm(t)
	case was == blocked:
		m.runnable(t)
	}
}

// arm schedules the end of a running thread's burst.
func (m *processors) arm(t *thread) {
	t.gen++
	t.since = m.now
	m.after(t.left, burst, t.index, t.gen)
}

// runnable is called when a blocked thread has work to do.
func (m *processors) runnable(t *thread) {
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
		p.arrive(m, t)
	}
	p.enqueue(t)
	switch {
	case p.running == nil:
		m.dispatch(p)
	case p.running.credit.priority < t.credit.priority:
		m.preempt(p)
	default:
		m.slice(p)
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
func (m *processors) dispatch(p *pcpu) {
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
	t.dispatched, t.billed = m.now, m.now
	m.arm(t)
	m.slice(p)
	m.trace.cpu(m.now, p, t)
}

// slice ends the runner's time slice if another thread waits.
func (m *processors) slice(p *pcpu) {
	if p.slicing || p.running == nil || len(p.queue) == 0 {
		return
	}
	if p.fair {
		m.fairSlice(p)
		return
	}
	p.slicing = true
	p.gen++
	m.at(max(m.now, p.running.dispatched.Add(cpuPeriod)), rotated, int32(p.id), p.gen)
}

// stop takes the CPU from the runner and bills it.
func (m *processors) stop(p *pcpu) *thread {
	t := p.running
	m.bill(t)
	t.left = max(t.left-m.now.Sub(t.since), 0)
	t.gen++
	p.running = nil
	p.slicing = false
	p.gen++
	m.trace.cpu(m.now, p, nil)
	return t
}

// bill charges a running thread for the time since it was last billed.
func (m *processors) bill(t *thread) {
	d := m.now.Sub(t.billed)
	t.billed = m.now
	t.credit.left = max(t.credit.left-d, -maxCredit)
	if t.cpu.fair {
		t.fair.ran += t.virtual(d)
	}
	t.cpu.busy += d
	t.domain.cpu.used += d
}

func (m *processors) preempt(p *pcpu) {
	p.enqueue(m.stop(p))
	m.dispatch(p)
}

// rest blocks a running thread.
func (m *processors) rest(t *thread) {
	p := t.cpu
	if p.fair {
		p.depart(m, t)
	}
	m.stop(p)
	t.mode = blocked
	m.dispatch(p)
}

// block blocks a thread.
func (m *processors) block(t *thread) {
	if t.cpu != nil && t.mode != blocked {
		m.leave(t)
	}
	t.mode = blocked
}

// leave blocks a thread that runs or is runnable.
func (m *processors) leave(t *thread) {
	if t.cpu.running == t {
		m.rest(t)
		return
	}
	if t.cpu.fair {
		t.cpu.depart(m, t)
	}
	for i, o := range t.cpu.queue {
		if o == t {
			t.cpu.queue = append(t.cpu.queue[:i], t.cpu.queue[i+1:]...)
			break
		}
	}
	t.mode = blocked
}

// rotate is called at the end of a slice.
func (m *processors) rotate(p *pcpu) {
	p.slicing = false
	if p.running == nil || len(p.queue) == 0 {
		return
	}
	if p.fair {
		m.fairRotate(p)
		return
	}
	if m.now.Sub(p.running.dispatched) < cpuPeriod || p.queue[0].credit.priority < p.running.credit.priority {
		if p.queue[0].credit.priority < p.running.credit.priority {
			p.running.dispatched = m.now
		}
		m.slice(p)
		return
	}
	m.preempt(p)
}

// tick is Xen's tick, and every third time its accounting.
func (m *processors) tick() {
	for i := range m.all {
		t := m.all[i].running
		if t == nil {
			continue
		}
		m.bill(t)
		t.credit.active = true
		if t.credit.priority == boost {
			t.credit.priority = t.credit.standing()
		}
	}
	if m.now%Time(cpuPeriod) == 0 {
		m.pay()
	}
	m.after(cpuTick, accounting, 0, 0)
}

func (c *credit) standing() priority {
	if c.left < 0 {
		return over
	}
	return under
}

// pay gives the active threads their earnings, by the weights of their domains. A thread with too much
// credit stops earning and loses half of it.
func (m *processors) pay() {
	var sum int64
	for _, t := range m.threads {
		if t.cpu != nil && t.credit.active {
			sum += int64(t.domain.cpu.credits)
		}
	}
	if sum == 0 {
		return
	}
	total := int64(maxCredit) * int64(len(m.all))
	for _, t := range m.threads {
		if t.cpu == nil || !t.credit.active {
			continue
		}
		t.credit.left += min(time.Duration(total*int64(t.domain.cpu.credits)/sum), maxCredit)
		if t.credit.left > maxCredit {
			t.credit.left /= 2
			t.credit.active = false
		}
		if t.credit.priority < boost && !t.cpu.fair {
			t.credit.priority = t.credit.standing()
		}
	}
	for i := range m.all {
		p := &m.all[i]
		if p.fair {
			continue
		}
		slices.SortStableFunc(p.queue, func(a, b *thread) int { return int(b.credit.priority) - int(a.credit.priority) })
		if p.running != nil && len(p.queue) > 0 && p.queue[0].credit.priority > p.running.credit.priority {
			m.preempt(p)
		}
	}
}

// sample returns the hypervisor's sample of some domains.
func (m *processors) sample(domains []*domain) *vcpu.Sample {
	out := &vcpu.Sample{At: m.now, Period: cpuPeriod, Quality: vcpu.Exact}
	if len(m.all) > 0 && m.all[0].fair {
		out.Quality = vcpu.Shadow // credit is computed by Xen's algorithm
	}
	out.Domains = make([]vcpu.Schedule, 0, len(domains))
	for _, d := range domains {
		sched := vcpu.Schedule{ID: d.id, Weight: d.cpu.credits, Remaining: -int64(maxCredit / xenCredit)}
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
				left -= m.now.Sub(t.billed)
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
