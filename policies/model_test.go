package policies

import (
	"math/rand/v2"
	"slices"
	"time"

	"pegasus/vcpu"
)

// model is an accelerator with domains that submit to it, driven by a Scheduler like the daemon's: gates
// bound submission, at most two requests of a domain are in flight, the engine takes them in order of
// submission and never preempts, and use is reported when a request ends.
type model struct {
	sched   *Scheduler
	now     Time
	rng     *rand.Rand
	blind   bool          // idle time is not measured
	beat    time.Duration // interval at which the running request's use so far is charged; 0: at its end
	beats   Time          // when it is next
	latency time.Duration // from a scheduler's timer to its action
	slice   time.Duration // after which the engine stops a request whose domain's turn is over; 0: it never does
	domains []*client
	queue   []*client // owners of submitted requests, in order
	running bool
	rung    bool // a request that was lent singly has ended
	ends    Time // of the running request, or of the part of it that isn't interrupted
	booked  Time // time up to which its use is booked
	gaps    Time // engine time lost while a domain had work
	log     []Action
	record  bool // keep the scheduler's inputs in trace
	trace   []step
	scripts []script
	cpus    *cpus                // the hypervisor's schedule; nil: there is none
	longest map[ID]time.Duration // longest wait from being pending to a start
}

// client is a domain and its program.
type client struct {
	id       ID
	credits  int
	cpu      int // CPU credits; 0: unknown
	promise  vcpu.Promise
	kernels  []time.Duration // lengths, one after another
	think    time.Duration   // pause after a burst; 0: always backlogged
	lapse    time.Duration   // length of every eighth pause, on average; 0: all are alike
	burst    int             // requests in a burst
	from, to Time            // when the program runs
	pile     int             // requests in flight at most; 0: two
	claims   time.Duration   // predicted time of each; 0: its actual time
	lone     bool            // it submits the next request when the one before has ended
	greedy   Time            // from then on it is backlogged; 0: it stays as it is
	whole    Time            // requests that begin before then are never stopped
	ends     ending          // of its process, which is followed by another
	away     time.Duration   // before the next process comes

	clientGate
	clientWork
	clientReports
}

// clientGate is a client's gate.
type clientGate struct {
	open    bool
	until   Time
	counted bool          // the lease is for so many requests,
	timed   bool          // or for so much time,
	allowed int64         // of which this is left
	starved bool          // and that has been reported
	lent    time.Duration // the budget of the lease,
	spent   time.Duration // and the time used since it was granted
	over    time.Duration // used since the turn ended
}

// clientWork is the progress of a client's program.
type clientWork struct {
	sent     int // requests submitted
	came     int // requests submitted before its current process or context
	next     int // kernel
	left     int // of the burst
	inflight int
	length   time.Duration // of the request that runs, or was stopped
	rest     time.Duration // of it, beyond the part that runs
	stopped  Time          // since when it has work and the engine isn't its own; never: it has none
	gap      time.Duration // longest time from stopped to a start
	asked    Time          // since when its next request waits to start; never: none waits
	wakes    Time          // end of the pause
}

// clientReports are a client's reports to the scheduler, sent and pending.
type clientReports struct {
	isIdle   bool
	since    Time // since when it is idle, or has work
	reported Time // since, as last reported
	idle     Time // until when its idle time is reported
	report   Usage
	used     time.Duration
	mark     time.Duration // used at the beginning of the measurement
}

// ending is the way in which the processes of a domain that has one at a time end.
type ending uint8

const (
	stays   ending = iota
	leaves         // when all its submitted requests have ended
	dies           // in the middle of a request, which ends with it
	changes        // its context for another when all has ended; the process stays
)

// step is one input of the scheduler: an event, or a call of Ready.
type step struct {
	at    Time
	event Event
	ready bool
}

func (m *model) step(e Event) {
	if m.record {
		m.trace = append(m.trace, step{at: m.now, event: e})
	}
	m.sched.Step(m.now, &e)
}

type script struct {
	at Time
	do func(*model)
}

func newModel(p Policy, seed uint64) *model {
	return &model{
		sched:   NewScheduler(p),
		rng:     rand.New(rand.NewPCG(seed, 1)),
		latency: 50 * time.Microsecond,
		longest: make(map[ID]time.Duration),
	}
}

// never is the time of an event that does not happen.
const never = Forever

func (m *model) add(c *client) {
	if c.to == 0 {
		c.to = never
	}
	c.isIdle, c.idle, c.reported, c.wakes, c.left, c.asked, c.stopped = true, c.from, never, c.from, max(c.burst, 1), never, never
	m.domains = append(m.domains, c)
	m.scripts = append(m.scripts, script{c.from, m.comes(c)}, script{c.to, func(m *model) {
		m.step(Event{Kind: Detach, Domain: c.domain()})
		c.open = false
	}})
}

func (c *client) domain() Domain {
	return Domain{ID: c.id, Credits: Credits(c.credits), CPU: Credits(c.cpu), Promise: c.promise}
}

// pending reports whether the program has a request to submit.
func (c *client) pending(now Time) bool {
	return now >= c.from && now < c.to && now >= c.wakes && c.left > 0 && !(c.lone && c.inflight > 0)
}

// run advances time to end.
func (m *model) run(end Time) {
	slices.SortStableFunc(m.scripts, byTime)
	for {
		m.settle()
		at := m.soonest()
		if at > end {
			m.now = end
			return
		}
		if !m.running && slices.ContainsFunc(m.domains, m.waits) {
			m.gaps += at - m.now
		}
		m.now = at
	}
}

// waits reports whether c has a request that isn't running.
func (m *model) waits(c *client) bool {
	return c.inflight > 1 || c.inflight == 1 && !(m.running && m.queue[0] == c) || c.pending(m.now)
}

// soonest returns the time of the next event.
func (m *model) soonest() Time {
	at := m.timer()
	if m.beat > 0 {
		at = min(at, m.beats)
	}
	if m.running {
		at = min(at, m.ends)
		if c := m.queue[0]; c.ends == dies {
			at = min(at, m.now.Add(max(c.length/2-m.done(c), 0)))
		}
	}
	if m.cpus != nil {
		at = min(at, m.cpus.next)
	}
	if len(m.scripts) > 0 {
		at = min(at, m.scripts[0].at)
	}
	for _, c := range m.domains {
		if c.wakes > m.now && c.wakes < c.to {
			at = min(at, c.wakes)
		}
		if c.open && c.until > m.now {
			at = min(at, c.until)
		}
	}
	return at
}

func (m *model) timer() Time {
	if next := m.sched.Next(); next < Forever {
		return max(m.now, next.Add(m.latency))
	}
	return Forever
}

// settle processes all events that are due now.
func (m *model) settle() {
	rings := m.now >= m.timer() && m.sched.Next() < Forever
	if m.beat > 0 && m.now >= m.beats {
		m.beats, rings = m.now.Add(m.beat), true
	}
	for len(m.scripts) > 0 && m.scripts[0].at <= m.now {
		m.scripts[0].do(m)
		m.scripts = m.scripts[1:]
		rings = true
	}
	if m.running && m.ends <= m.now {
		m.reach()
	}
	for _, c := range m.domains {
		m.vary(c)
	}
	if m.cpus != nil && m.cpus.next <= m.now {
		m.step(Event{Kind: Observe, Sample: m.cpus.schedule(m)})
	}
	for {
		m.submit()
		rings = m.look() || rings || m.rung
		m.rung = false
		if !rings {
			break
		}
		m.schedule()
		rings = false
	}
	m.start()
}

// inFlight is the time for which a domain's work may continue after its turn, the daemon's default.
const inFlight = 4 * ms

// turn reports whether the engine continues with c's requests: while its gate is open and its budget isn't
// used up, and a little longer.
func (m *model) turn(c *client) bool {
	return m.slice == 0 || c.inTurn(m.now) || c.over < inFlight
}

func (c *client) inTurn(now Time) bool {
	return c.open && now < c.until && (!c.timed || c.spent < c.lent)
}

// reach is called at the end of the running request, or of a part of it: then the request continues if its
// domain may.
func (m *model) reach() {
	c := m.queue[0]
	if c.rest == 0 {
		m.complete()
		return
	}
	m.book(c)
	m.rung = m.rung || c.timed && c.spent >= c.lent
	if m.turn(c) {
		m.begin(c)
		return
	}
	m.running, m.rung, c.stopped = false, true, m.now
}

// done returns the executed part of c's running request.
func (m *model) done(c *client) time.Duration { return c.length - c.rest - m.ends.Sub(m.now) }

// begin runs the rest of c's request, or a part of the rest.
func (m *model) begin(c *client) {
	long := c.rest
	if m.slice > 0 && m.now >= c.whole {
		long = min(long, m.slice)
	}
	c.rest -= long
	m.running, m.booked, m.ends = true, m.now, m.now.Add(long)
}

// complete ends the running request.
func (m *model) complete() {
	c := m.queue[0]
	m.queue = m.queue[1:]
	m.running, c.stopped = false, m.now
	m.book(c)
	c.report.Requests++
	m.rung = m.rung || c.counted || c.timed && c.allowed <= 0
	c.inflight--
	if c.left == 0 && c.inflight == 0 {
		pause := c.think/2 + time.Duration(m.rng.Int64N(int64(c.think)))
		if c.lapse > 0 && m.rng.IntN(8) == 0 {
			pause = c.lapse
		}
		c.left, c.wakes = max(c.burst, 1), m.now.Add(pause)
	}
}

// book records the running request's use.
func (m *model) book(c *client) {
	took := m.now.Sub(m.booked)
	m.booked = m.now
	c.used += took
	c.report.Compute += took
	if c.spent += took; !c.inTurn(m.now) {
		c.over += took
	}
}

// vary ends a process or context with its requests, if that is due.
func (m *model) vary(c *client) {
	if c.ends == stays || m.now < c.from || c.sent == c.came {
		return
	}
	middle := c.ends == dies && m.running && m.queue[0] == c && m.done(c) >= c.length/2
	if c.inflight > 0 && !middle {
		return
	}
	if middle {
		m.book(c)
		m.queue = slices.DeleteFunc(m.queue, func(o *client) bool { return o == c })
		m.running, c.inflight, c.rest = false, 0, 0
	}
	if c.report != (Usage{}) {
		m.step(Event{Kind: Charge, Domain: c.domain(), Used: c.report})
		c.report = Usage{}
	}
	c.came = c.sent
	m.step(Event{Kind: Wake, Domain: c.domain(), Signal: ContextClosed})
	if c.ends == changes {
		m.step(Event{Kind: Wake, Domain: c.domain(), Signal: ContextOpened})
		return
	}
	m.step(Event{Kind: Detach, Domain: c.domain()})
	c.open = false
	c.from = m.now.Add(c.away)
	c.isIdle, c.idle, c.reported, c.wakes, c.left, c.asked, c.stopped, c.since = true, c.from, never, c.from, max(c.burst, 1), never, never, 0
	m.scripts = append(m.scripts, script{c.from, m.comes(c)})
	slices.SortStableFunc(m.scripts, byTime)
}

func byTime(a, b script) int { return int(min(max(a.at-b.at, -1), 1)) }

// comes attaches a domain.
func (m *model) comes(c *client) func(*model) {
	return func(m *model) {
		m.step(Event{Kind: Attach, Domain: c.domain()})
		m.step(Event{Kind: Wake, Domain: c.domain(), Signal: ContextOpened})
	}
}

// submit submits the requests that the gates let through.
func (m *model) submit() {
	for _, c := range m.domains {
		for c.admits(m.now) && c.inflight < max(c.pile, 2) && c.pending(m.now) {
			if c.counted {
				c.allowed--
			} else {
				c.allowed -= int64(c.predicted())
			}
			c.sent++
			if c.think > 0 {
				c.left--
			}
			c.inflight++
			m.queue = append(m.queue, c)
		}
		if c.timed && c.allowed <= 0 && c.pending(m.now) && !c.starved {
			c.starved, m.rung = true, true
		}
	}
}

// admits reports whether c's gate is open.
func (c *client) admits(now Time) bool {
	return c.open && now < c.until && (!c.counted && !c.timed || c.allowed > 0)
}

// start lets the engine take the next request.
func (m *model) start() {
	for _, c := range m.domains {
		if c.asked == never && m.waits(c) {
			c.asked = m.now
		}
	}
	at := slices.IndexFunc(m.queue, m.turn)
	if m.running || at < 0 {
		return
	}
	c := m.queue[at]
	m.queue = slices.Insert(slices.Delete(m.queue, at, at+1), 0, c)
	m.longest[c.id] = max(m.longest[c.id], m.now.Sub(c.asked))
	c.asked = never
	if c.stopped != never {
		c.gap = max(c.gap, m.now.Sub(c.stopped))
	}
	if c.rest == 0 {
		c.length = c.kernels[c.next%len(c.kernels)]
		c.rest = c.length
		c.next++
	}
	m.begin(c)
}

// look processes the events for which gate pages ring: work arrived at a closed gate, and drained. It keeps
// the idle times.
func (m *model) look() bool {
	rings := false
	for _, c := range m.domains {
		if m.now < c.from || m.now >= c.to {
			continue
		}
		busy := c.pending(m.now) || c.inflight > 0
		if busy && c.isIdle && c.open && !m.blind {
			c.report.Idle += m.now.Sub(c.idle)
		}
		if busy == c.isIdle {
			if c.stopped = m.now; !busy {
				c.stopped = never
			}
			if busy && c.since > 0 {
				c.report.Pauses++
				c.report.Paused += m.now.Sub(c.since)
			}
			c.isIdle, c.idle, c.since = !busy, m.now, m.now
			if !c.open || !busy {
				rings = true
			}
		}
	}
	return rings
}

// schedule is a turn of the daemon's loop.
func (m *model) schedule() {
	if (m.beat > 0 || m.slice > 0) && m.running {
		m.book(m.queue[0])
	}
	for _, c := range m.domains {
		if m.now < c.from || m.now >= c.to {
			continue
		}
		if c.open && c.isIdle && !m.blind {
			c.report.Idle += m.now.Sub(c.idle)
			c.idle = m.now
		}
		if c.report != (Usage{}) {
			m.step(Event{Kind: Charge, Domain: c.domain(), Used: c.report})
			c.report = Usage{}
		}
	}
	for _, c := range m.domains {
		if m.now < c.from || m.now >= c.to || c.reported == c.since {
			continue
		}
		c.reported = c.since
		sig := Arrived
		if c.isIdle {
			sig = Drained
		}
		m.step(Event{Kind: Wake, Domain: c.domain(), Signal: sig, Since: c.since})
	}
	for _, c := range m.domains {
		if m.now >= c.from && m.now < c.to {
			m.step(Event{Kind: Head, Domain: c.domain(), Class: Compute, Request: m.head(c)})
		}
	}
	if m.record {
		m.trace = append(m.trace, step{at: m.now, ready: true})
	}
	for _, a := range m.sched.Ready(m.now) {
		m.log = append(m.log, a)
		c := m.client(a.Domain)
		if c.isIdle && a.Open && !c.open {
			c.idle = m.now
		}
		c.open, c.until = a.Open, a.Lease.Until
		c.counted, c.timed, c.allowed = a.Lease.Kind == Requests, a.Lease.Kind == Budget, a.Lease.Amount
		c.starved = false
		if c.lent = time.Duration(a.Lease.Amount); a.Open {
			c.spent, c.over = 0, 0
		}
	}
}

// head returns the request at the domain's gate, or behind it: work that the engine stops waits for its turn
// in either place.
func (m *model) head(c *client) Request {
	behind := m.slice > 0 && c.inflight > 0 && !c.inTurn(m.now)
	if !behind && (!c.pending(m.now) || c.admits(m.now)) {
		return Request{}
	}
	return Request{Seq: uint64(c.sent) + 1, Predicted: c.predicted(), Known: true}
}

// predicted returns the predicted time of the next request.
func (c *client) predicted() time.Duration {
	if c.claims > 0 {
		return c.claims
	}
	return c.kernels[c.sent%len(c.kernels)]
}

func (m *model) client(id ID) *client {
	for _, c := range m.domains {
		if c.id == id {
			return c
		}
	}
	panic("no such domain")
}

// gap returns the longest time since measure for which c had work and the engine was not its own.
func (m *model) gap(c *client) time.Duration {
	if c.stopped == never || m.running && m.queue[0] == c {
		return c.gap
	}
	return max(c.gap, m.now.Sub(c.stopped))
}

// measure begins a measurement of shares and gaps; shares and gap end it.
func (m *model) measure() {
	for _, c := range m.domains {
		c.mark, c.gap = c.used, 0
	}
}

// shares returns each domain's part of the time used since measure, in percent.
func (m *model) shares() map[ID]float64 {
	var all time.Duration
	for _, c := range m.domains {
		all += c.used - c.mark
	}
	out := make(map[ID]float64)
	for _, c := range m.domains {
		out[c.id] = 100 * float64(c.used-c.mark) / float64(max(all, 1))
	}
	return out
}
