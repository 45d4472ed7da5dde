package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pegasus/vcpu"
)

// FuzzScheduler makes events from bytes and checks the invariants of every policy.
func FuzzScheduler(f *testing.F) {
	f.Add([]byte("attach some, let them come and go"))
	f.Add([]byte{0, 1, 9, 0, 2, 9, 32, 1, 0, 32, 2, 0, 96, 1, 255, 128, 0, 200, 64, 1, 0, 192, 2, 0})
	f.Add([]byte{0, 0, 255, 0, 1, 1, 0, 2, 128, 40, 0, 0, 40, 1, 0, 40, 2, 0, 160, 1, 255, 160, 1, 255, 200, 255, 255, 70, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range Names() {
			for _, mode := range []Mode{Production, Paper} {
				first := play(t, name, mode, data)
				if again := play(t, name, mode, data); again != first {
					t.Fatalf("%s decides otherwise the second time:\n%s\n%s", name, first, again)
				}
				o := optionsOf(mode, data)
				for _, o.Accounts = range []Accounts{SDQ, MRQ} {
					first := playGuests(t, name, o, data)
					if again := playGuests(t, name, o, data); again != first {
						t.Fatalf("%s decides otherwise for the same guests:\n%s\n%s", name, first, again)
					}
				}
			}
		}
	})
}

// play feeds events made from data, three bytes each, to a scheduler, and returns its decisions.
func play(t *testing.T, name string, mode Mode, data []byte) string {
	p, err := New(name, optionsOf(mode, data))
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, sched: NewScheduler(p), open: map[ID]uint64{}, work: map[ID]bool{}}
	for ; len(data) >= 3; data = data[3:] {
		w.step(data[0], data[1], data[2])
		w.ready()
	}
	return w.log.String()
}

// optionsOf makes options from the length of data.
func optionsOf(mode Mode, data []byte) Options {
	o := Defaults(mode)
	o.SetOption(debtAF.Param, int64(len(data)%4))
	o.SetOption(boost.Param, int64(len(data)%7-1))
	o.SetOption(orderInUnit.Param, int64(len(data)%4))
	o.SetOption(byArrivalOnly.Param, map[bool]int64{true: 1}[len(data)%3 == 0])
	o.SetOption(mean.Param, int64(len(data)%2)*int64(250*ms))
	o.SetOption(jiffy.Param, int64(len(data)%5)*int64(ms))
	return o
}

// watch is a scheduler under observation.
type watch struct {
	t       *testing.T
	sched   *Scheduler
	now     Time
	log     strings.Builder
	open    map[ID]uint64 // generation of each open gate
	work    map[ID]bool
	charged time.Duration
	gone    time.Duration // used by domains that left since
	seq     uint64        // of requests
}

// head reports the request that waits at a domain's gate: another one, if the domain has work.
func (w *watch) head(d Domain) {
	r := Request{}
	if w.work[d.ID] {
		w.seq++
		r = Request{Seq: w.seq, Predicted: time.Duration(w.seq%7) * ms, Release: w.now - Time(w.seq%5)}
		r.Bytes, r.Threads = w.seq%3<<10, w.seq%2<<8
	}
	w.sched.Step(w.now, &Event{Kind: Head, Domain: d, Class: Compute, Request: r})
}

// promiseOf makes a promise from three bytes.
func promiseOf(what, who, how byte) vcpu.Promise {
	p := vcpu.Promise{Group: []string{"", "", "a", "b"}[what%4], Priority: int(how % 5), Bandwidth: int(how) * 4, SLO: int(who) * 3}
	p.Throughput, p.Interactive = how&32 != 0, how&64 != 0
	p.Period = time.Duration(how%16) * ms
	p.Reserve = vcpu.Reserve{
		Kind:   vcpu.ReserveKind(what >> 2 % 5),
		Shared: []string{"", "", "c", "d"}[how>>2%4],
		Cost:   time.Duration(how>>1) * ms / 4,
		Period: time.Duration(how%64) * ms,
	}
	return p
}

func (w *watch) step(what, who, how byte) {
	d := Domain{ID: ID(who % 8), Credits: vcpu.Credits(how) * vcpu.Credits(how), CPU: vcpu.Credits(how>>4) << (who >> 4)}
	switch {
	case what < 32:
		d.Promise = promiseOf(what, who, how)
		w.sched.Step(w.now, &Event{Kind: Attach, Domain: d})
		if _, known := w.work[d.ID]; !known {
			w.work[d.ID] = false
		}
	case what < 40:
		if s, ok := w.sched.Stat(d.ID); ok {
			w.gone += s.Used.Busy()
		}
		w.sched.Step(w.now, &Event{Kind: Detach, Domain: d})
		delete(w.work, d.ID)
	case what < 128:
		s := []Signal{Arrived, Arrived, Arrived, Drained, ContextOpened, ContextClosed}[how%6]
		if _, known := w.work[d.ID]; known && s == Arrived || s == Drained || s == ContextClosed {
			w.work[d.ID] = s == Arrived
		}
		if _, known := w.sched.Stat(d.ID); !known {
			delete(w.work, d.ID)
		}
		w.sched.Step(w.now, &Event{Kind: Wake, Domain: d, Signal: s, Since: w.now - Time(what)})
		w.head(d)
	case what < 192:
		u := Usage{Compute: time.Duration(how) * time.Duration(how) * time.Duration(what-127) * 1000, Idle: time.Duration(what), Requests: 1, Pauses: int(who % 3), Paused: time.Duration(who) * 50 * time.Microsecond}
		if who >= 192 { // up to six days
			u.Compute <<= 17
		}
		w.charged += u.Busy()
		w.sched.Step(w.now, &Event{Kind: Charge, Domain: d, Used: u})
		w.head(d)
	case what < 196:
		w.sched.Use(w.now, mustNew(w.t, Names()[int(how)%len(Names())], Mode(who%2)))
	case what < 204:
		w.sched.Step(w.now, &Event{Kind: Observe, Sample: w.sample(what, who, how)})
	default:
		w.pass(time.Duration(who) * time.Duration(how) * 10 * time.Microsecond)
	}
}

// sample makes a sample that may be stale, from the future, partial, or nonsense.
func (w *watch) sample(what, who, how byte) *vcpu.Sample {
	if what%4 == 0 && who == 0 {
		return nil
	}
	s := &vcpu.Sample{At: w.now + Time(20*ms) - Time(what%8)*Time(15*ms), Quality: vcpu.Quality(who % 3)}
	for i := range 8 {
		if how>>i&1 == 0 {
			continue
		}
		v := vcpu.VCPU{State: vcpu.VCPUState(int(who)+i) % 4, Next: int(how) * 4}
		d := vcpu.Schedule{ID: ID(int(who) + i*int(what)%9), Remaining: (int64(who) - 128) << (how % 60), VCPUs: []vcpu.VCPU{{}, v}[:i%3]}
		s.Domains = append(s.Domains, d)
	}
	return s
}

// pass advances time, stopping whenever the scheduler is due.
func (w *watch) pass(d time.Duration) {
	end := w.now.Add(d)
	for w.sched.Next() <= end {
		w.now = max(w.now, w.sched.Next())
		w.ready()
	}
	w.now = end
}

func (w *watch) ready() {
	for _, a := range w.sched.Ready(w.now) {
		fmt.Fprintf(&w.log, "%d %s\n", w.now, spell(a))
		w.follow(a)
	}
	if again := w.sched.Ready(w.now); len(again) > 0 {
		w.t.Fatalf("asked twice, it has more to do: %v", again)
	}
	if w.sched.Next() <= w.now {
		w.t.Fatalf("at %d it wants to be asked at %d", w.now, w.sched.Next())
	}
	w.gates()
	w.accounts()
}

// follow applies an action like a gate page.
func (w *watch) follow(a Action) {
	gen, open := w.open[a.Domain]
	switch {
	case !a.Open && !open:
		w.t.Fatalf("closes domain %d's gate, which isn't open", a.Domain)
	case !a.Open:
		delete(w.open, a.Domain)
	case open && gen != a.Generation:
		w.t.Fatalf("new generation of an open gate")
	case a.Lease.Until <= w.now:
		w.t.Fatalf("a lease that is over: %v at %d", a, w.now)
	default:
		w.open[a.Domain] = a.Generation
	}
}

// gates checks which gates are open.
func (w *watch) gates() {
	stats := w.sched.Stats(nil)
	wanted := false
	for _, s := range stats {
		_, open := w.open[s.Domain.ID]
		if open != (s.State == vcpu.Open) {
			w.t.Fatalf("domain %d is %v, gate open: %v", s.Domain.ID, s.State, open)
		}
		wanted = wanted || w.work[s.Domain.ID]
	}
	switch w.sched.accounts[0].policy.(type) {
	case *none:
		if len(w.open) != len(stats) {
			w.t.Fatal("a closed gate")
		}
	default:
		if len(w.open) > 1 {
			w.t.Fatalf("several gates are open: %v", w.open)
		}
		q, mayWait := w.sched.accounts[0].policy.(*queue) // for a limited time
		if mayWait {
			wanted = q.wanted() // a lent request may still run
		}
		if wanted && len(w.open) == 0 && !(mayWait && w.sched.Next() < Forever) {
			w.t.Fatalf("%T: nobody may submit, though there is work: %v", w.sched.accounts[0].policy, w.work)
		}
	}
}

// accounts checks that no time is lost and that balances stay in their bounds.
func (w *watch) accounts() {
	booked := w.sched.Strays().Busy() + w.gone
	for _, s := range w.sched.Stats(nil) {
		booked += s.Used.Busy()
	}
	if booked != w.charged {
		w.t.Fatalf("%v were used, %v are booked", w.charged, booked)
	}
	w.sound(w.sched.accounts[0].policy)
}

// sound checks a policy's state.
func (w *watch) sound(p Policy) {
	switch p := p.(type) {
	case *fair:
		w.fair(p)
	case *coordinated:
		w.ticks(&p.ticks)
	case *publishedTicks:
		w.ticks(&p.ticks)
	case *slaf:
		w.objectives(p)
		if f, ok := p.windows.(*fair); ok {
			w.fair(f)
		}
	case publishedSLAF:
		w.objectives(p.slaf)
	case *queue:
		w.lines(p)
	}
}

// wanted reports whether a request waits that has not been lent.
func (q *queue) wanted() bool {
	for _, c := range q.domains.tenants {
		if c.pending() {
			return true
		}
	}
	return false
}

// lines checks that every domain with a request is in line (and besides perhaps one whose lease is to
// continue), and that the reserves keep to their bounds.
func (w *watch) lines(q *queue) {
	for id, c := range q.domains.tenants {
		if c.waits() && c == q.lease.holder || !c.waits() && c.pending() && c != q.lease.holder {
			w.t.Fatalf("domain %d: in line: %v", id, c.waits())
		}
		if p, ok := c.unit.state.(*creditAccount); ok && (p.credit > 30*ms && !q.Keeps() || p.mean > 30*ms) {
			w.t.Fatalf("domain %d's unit has %v, and used %v per period", id, p.credit, p.mean)
		}
		r := c.lane.reserve
		if r == nil {
			continue
		}
		most := r.cost
		for _, l := range r.lanes {
			if first := l.waiting.top(); first != nil {
				most = max(most, r.wants(first))
			}
		}
		if r.budget > max(most, 7*ms) || r.part > million {
			w.t.Fatalf("domain %d's reserve has %v", id, r)
		}
	}
	if q.reserves.taken > max(q.reserves.limit, q.reserves.background.part) {
		w.t.Fatalf("%d ppm are promised, of %d", q.reserves.taken, q.reserves.limit)
	}
	switch s := q.share.(type) {
	case *credits:
		w.tab(&s.tab)
	case *band:
		w.tab(&s.tab)
	}
	for _, u := range q.domains.groups {
		if len(u.members) == 0 && u.absent == 0 {
			w.t.Fatalf("group %q has no members", u.name)
		}
	}
}

// tab checks that exactly the units that compete or are in debt count.
func (w *watch) tab(t *tab) {
	var total int64
	for u := range t.units {
		l := &creditAccountOf(u).line
		credit := t.balance(u)
		if credit < -maxDebt || credit > maxDebt {
			w.t.Fatalf("unit %d has a credit of %v", u.id, credit)
		}
		if l.counted {
			total += l.weight
		}
		if t.debtors.has(u) != (l.counted && !l.busy) || !l.busy && credit < 0 != l.counted {
			w.t.Fatalf("unit %d is not where it belongs: %v, %+v", u.id, credit, *l)
		}
	}
	if total != t.total {
		w.t.Fatalf("those that compete weigh %d, not %d", total, t.total)
	}
}

// fair checks the accounts of a window policy.
func (w *watch) fair(p *fair) {
	most := p.opt.RotationCap + maxCarry
	if p.extra != nil {
		most += p.opt.Tick
	}
	var total int64
	for id, e := range p.members {
		if e.balance < -maxDebt || e.balance > most {
			w.t.Fatalf("domain %d has a balance of %v", id, e.balance)
		}
		if e.active {
			total += e.credits
		}
		if e.active != p.poorest.has(e) || p.turns.has(e) != (e.active && e != p.holder) {
			w.t.Fatalf("domain %d is not where it belongs", id)
		}
	}
	if total != p.total {
		w.t.Fatalf("active domains have %d credits, not %d", total, p.total)
	}
}

func (w *watch) ticks(p *ticks) {
	var total int64
	var best *domainState
	for id, e := range p.members {
		x := e.balance
		if p.pot.counts(e) {
			x = p.pot.balance(e)
		}
		if x < -p.pot.line.most || x > p.pot.line.most {
			w.t.Fatalf("domain %d has a balance of %d", id, x)
		}
		if p.pot.counts(e) {
			total += e.credits
		}
		if p.pot.debtors.has(e) != (!e.active && x < 0 && p.opt.Mode == Production) {
			w.t.Fatalf("domain %d, with a balance of %d, is not where debtors belong", id, x)
		}
		if p.pot.line.has(e) != (e.active && e != p.window.holder) || p.waits.urgent.has(e) != (p.pot.line.has(e) && e.busy) {
			w.t.Fatalf("domain %d is not where it belongs", id)
		}
		if !p.pot.line.has(e) {
			continue
		}
		if y := p.pot.line.most; best != nil {
			y = best.at(p.pot.value, y)
			if x < y || x == y && e.place > best.place {
				continue
			}
		}
		best = e
	}
	if total != p.pot.total {
		w.t.Fatalf("competing domains have %d credits, not %d", total, p.pot.total)
	}
	if top := p.pot.top(); top != best {
		w.t.Fatalf("the greatest balance is domain %d's, not domain %d's", best.id, top.id)
	}
}

func (w *watch) objectives(p *slaf) {
	var sum int64
	promised := 0
	for id, o := range p.members {
		sum += o.slo
		if o.slo > 0 {
			promised++
		}
		if o.extra < 0 || o.extra > 0 && o.slo == 0 || o.served < 0 || o.demand < 0 {
			w.t.Fatalf("domain %d's account is %+v", id, *o)
		}
	}
	if sum != p.sum || promised != len(p.promised) {
		w.t.Fatalf("%d ‰ are promised, not %d", sum, p.sum)
	}
}
