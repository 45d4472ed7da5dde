package sim

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// request is one piece of work for an engine. The domain owns it until the engine has finished it.
type request struct {
	thread  *thread
	class   vcpu.Engine
	cost    time.Duration // as the program specifies; the actual duration varies randomly
	asked   Time          // when it was put into the ring
	seq     uint64        // number among its domain's requests
	decoded bool          // by the backend
	lease   *lease        // under which it was admitted,
	kind    policies.Kind // the lease's kind at that time

	changes time.Duration // part of the duration spent on changing contexts
}

// gpu is an accelerator: engines that take requests in order of submission and
// never preempt.
type gpu struct {
	index   int
	name    string
	engines []engine // by class; with one engine for all, a single one
	driver  *driver
	chance  *stream
	host    *host
	memory  *memory
}

// accelerators are all accelerators of a run, and their engines.
type accelerators struct {
	*clock
	profile *Profile
	all     []*gpu
	engines []*engine
	backend *backend
	trace   *Trace // nil: none
}

// engine of an accelerator.
type engine struct {
	gpu     *gpu
	index   int32
	class   vcpu.Engine
	queue   ring[*request]
	running *request
	began   Time
	took    time.Duration
	context *domain // domain of which it has the state
	turn    int     // domain that the hardware serves next, if it takes turns
	busy    time.Duration
	changes int
	changed time.Duration
}

// driver is the cost model of an accelerator's own driver, the same for all policies.
type driver struct {
	profile *Profile
	change  *spread // of the time to change contexts
	epoch   *spread // of a factor that lasts for an epoch
	noise   *spread // of the duration of requests
	weather *stream // draws that factor, so that all plans have the same
	factor  time.Duration
	epochs  int64 // number drawn so far
}

// factorOne is the factor 1.
const factorOne = time.Duration(1) << factorBits

func newDriver(p *Profile, weather *stream) *driver {
	return &driver{profile: p, weather: weather, change: logNormal(p.ChangeSigma), epoch: logNormal(p.EpochSigma), noise: logNormal(p.Noise), factor: factorOne}
}

// changes draws the time for changing to another context.
func (d *driver) changes(now Time, c *stream) time.Duration {
	p := d.profile
	if p.Change <= 0 {
		return 0
	}
	if p.Epoch > 0 {
		for ; d.epochs <= int64(now)/int64(p.Epoch); d.epochs++ {
			d.factor = d.epoch.times(factorOne, d.weather)
		}
	}
	took := d.change.times(p.Change, c) * d.factor >> factorBits
	if p.StallPart > 0 && c.one(p.StallPart) {
		took += c.below(p.Stall)
	}
	return took
}

// engineOf returns the engine that runs requests of a class.
func (g *gpu) engineOf(c vcpu.Engine) *engine {
	if len(g.engines) == 1 {
		return &g.engines[0]
	}
	return &g.engines[c]
}

// enqueue passes a request to its engine.
func (a *accelerators) enqueue(g *gpu, r *request) {
	e := g.engineOf(r.class)
	e.queue.push(r)
	a.start(e)
}

// start makes an idle engine take its next request.
func (a *accelerators) start(e *engine) {
	if e.running != nil || e.queue.len() == 0 {
		return
	}
	r := e.next(a.profile)
	d := r.thread.domain
	t := r.thread
	noise := t.program.noise
	if noise == nil {
		noise = e.gpu.driver.noise
	}
	took := noise.times(r.cost, d.chance)
	r.changes = 0
	if e.context != d {
		if e.context != nil {
			r.changes = e.gpu.driver.changes(a.now, e.gpu.chance)
			e.changes++
			e.changed += r.changes
		}
		e.context = d
	}
	took += r.changes
	if d.object != nil && r.class != copyOut { // evicted data is read from its place
		took += e.gpu.memory.bring(a.now, d.object)
	}
	e.running, e.began, e.took = r, a.now, took
	d.started(a.now, r)
	end := a.now.Add(took)
	if p := Time(a.profile.Poll); p > 0 {
		end = (end + p - 1) / p * p
	}
	a.at(end, completed, e.index, 0)
}

// next removes and returns the request that the hardware serves next: the first, the first of the next domain
// that has one, or a random one.
func (e *engine) next(p *Profile) *request {
	switch {
	case p.Random:
		return e.queue.remove(int(e.gpu.chance.below(time.Duration(e.queue.len()))))
	case !p.Channels:
		return e.queue.pop()
	}
	best, far := 0, 1<<30
	n := len(e.gpu.host.all)
	for i := range e.queue.len() {
		ahead := (e.queue.at(i).thread.domain.seat - e.turn + n) % n
		if ahead < far {
			best, far = i, ahead
		}
	}
	r := e.queue.remove(best)
	e.turn = (r.thread.domain.seat + 1) % n
	return r
}

// complete ends the running request.
func (a *accelerators) complete(e *engine) {
	r := e.running
	e.running = nil
	e.busy += e.took
	d := r.thread.domain
	d.held(e.began, a.now, r.class)
	a.trace.request(a.now, e, r)
	if r.class == compute || len(e.gpu.engines) == 1 {
		d.reports.used[policies.Compute].Used.Compute += e.took
	} else {
		d.reports.used[policies.Copy].Used.Copy += e.took
	}
	d.reports.used[policies.Compute].Used.Switch += r.changes
	d.reports.used[r.class.Class()].Used.Requests++
	d.poller.flying[r.class.Class()]--
	d.poller.inFlight--
	h := d.host
	h.touch(d)
	if d.presence.gone {
		h.left(d)
	} else if d.spent(a.now, r) {
		h.ring()
	}
	if a.profile.Notify > 0 {
		d.poller.replies.push(r)
		a.after(a.profile.Notify, replied, d.index, 0)
	} else {
		a.backend.answered(d, r)
	}
	a.start(e)
}
