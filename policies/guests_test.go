package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// guests is a scheduler and its domains, driven as by the daemon: requests are admitted while their gate lets
// them, and an admitted request slips through as the gate closes, or is held back until it opens again; the
// scheduler receives these events only at the next look.
type guests struct {
	t     *testing.T
	name  string
	mrq   bool
	sched *Scheduler
	now   Time
	all   [6]*guest // by ID; nil: not attached
	log   strings.Builder
}

// guest is a domain with one program, whose requests are of both classes in turn.
type guest struct {
	lease    [numClasses]Lease // the rest of it
	lent     [numClasses]Lease
	open     [numClasses]bool
	terms    int                // number of leases reported to it
	wants    int                // requests that it has not submitted yet; the first waits
	passed   [numClasses]uint64 // number of requests ever admitted
	flying   [numClasses][]int  // requests in flight; the terms under which each came
	held     [numClasses]bool   // the requests in flight wait for the gate to open
	used     [numClasses]Usage  // not yet reported
	since    Time               // when it ran out of work; 0: it has some
	reported Time               // since, as last reported
	heads    [numClasses]Request
	again    bool             // its gate has been closed since
	worked   [numClasses]bool // as last reported
}

// mostFlying is the limit of requests of a class in flight.
const mostFlying = 3

func newGuests(t *testing.T, name string, o Options) *guests {
	p, err := NewAccounts(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return &guests{t: t, name: name, mrq: o.Accounts == MRQ, sched: NewScheduler(p...), now: 1}
}

// playGuests makes the guests' actions from data, three bytes each, and then lets them finish their work.
func playGuests(t *testing.T, name string, o Options, data []byte) string {
	g := newGuests(t, name, o)
	for ; len(data) >= 3; data = data[3:] {
		g.step(data[0], data[1], data[2])
	}
	g.settle()
	return g.log.String()
}

func (g *guests) step(what, who, how byte) {
	id := ID(int(who) % len(g.all))
	d := g.all[id]
	class := Compute + Class(how%2)
	switch {
	case what < 32:
		g.attach(id, what, who, how)
	case what >= 230:
		g.pass(time.Duration(who) * time.Duration(how) * time.Microsecond)
		g.turn()
	case d == nil:
	case what < 36:
		g.detach(id)
	case what < 100:
		d.wants = min(d.wants+int(how%9), 64)
		g.submit(d)
	case what < 130: // it slips through
		if c := d.next(); d.wants > 0 && len(d.flying[c]) < mostFlying {
			d.admit(c, 0)
		}
	case what < 150:
		if len(d.flying[class]) > 0 && !d.isOpen(class, g.now) {
			d.held[class] = true
		}
	case what < 155: // its program ends, with all its requests in flight
		for c := range d.flying {
			d.used[c].Requests += len(d.flying[c])
		}
		d.wants, d.flying, d.held = 0, [numClasses][]int{}, [numClasses]bool{}
		g.notice(d)
	case what < 200:
		g.end(d, class, time.Duration(how)*time.Duration(what-150)*5*time.Microsecond)
	default:
		g.pass(time.Duration(how) * time.Microsecond)
		if what%4 > 0 {
			g.turn()
		}
	}
}

func (g *guests) send(e Event) { g.sched.Step(g.now, &e) }

func (g *guests) attach(id ID, what, who, how byte) {
	d := Domain{ID: id, Credits: 64 + 4*Credits(how), CPU: 64 + Credits(what), Promise: promiseOf(what, who, how)}
	g.send(Event{Kind: Attach, Domain: d})
	if g.all[id] == nil {
		g.all[id] = &guest{since: g.now}
		g.send(Event{Kind: Wake, Domain: d, Signal: ContextOpened})
	}
}

func (g *guests) detach(id ID) {
	g.look(id)
	g.send(Event{Kind: Wake, Domain: Domain{ID: id}, Signal: ContextClosed})
	g.send(Event{Kind: Detach, Domain: Domain{ID: id}})
	g.all[id] = nil
}

// pass advances time. The daemon calls Ready when it is due.
func (g *guests) pass(d time.Duration) {
	end := g.now.Add(d)
	for next := g.sched.Next(); next <= end; next = g.sched.Next() {
		g.now = max(g.now, next)
		g.turn()
	}
	g.now = end
}

// next returns the class of the next request.
func (d *guest) next() Class { return Compute + Class((d.passed[Compute]+d.passed[Copy])/2%2) }

// admit admits a request, under the terms of a lease; 0: without a lease.
func (d *guest) admit(c Class, terms int) {
	d.wants--
	d.passed[c]++
	d.flying[c] = append(d.flying[c], terms)
	d.since = 0
}

// isOpen reports whether the gate is open for a class, regardless of the rest of its lease.
func (d *guest) isOpen(c Class, now Time) bool {
	return d.open[AnyClass] && now < d.lease[AnyClass].Until || d.open[c] && now < d.lease[c].Until
}

// submit admits the requests that the gate lets through.
func (g *guests) submit(d *guest) {
	for c := d.next(); d.wants > 0 && len(d.flying[c]) < mostFlying; c = d.next() {
		l := d.leaseOf(c)
		if !d.isOpen(c, g.now) || l.Kind != Window && l.Amount <= 0 {
			break
		}
		if l.Kind == Budget {
			l.Amount -= int64(predicted)
		} else {
			l.Amount--
		}
		d.admit(c, d.terms)
	}
	g.notice(d)
}

func (d *guest) leaseOf(c Class) *Lease {
	if d.open[AnyClass] {
		return &d.lease[AnyClass]
	}
	return &d.lease[c]
}

// predicted is the predicted time of any request.
const predicted = 2 * ms

// end ends a request that is in flight.
func (g *guests) end(d *guest, c Class, took time.Duration) {
	if len(d.flying[c]) == 0 || d.held[c] {
		return
	}
	if l := d.leaseOf(c); l.Kind == Budget && d.flying[c][0] == d.terms {
		l.Amount += int64(predicted - took)
	}
	d.flying[c] = d.flying[c][1:]
	d.used[c].Requests++
	if c == Copy {
		d.used[c].Copy += took
	} else {
		d.used[c].Compute += took
	}
	g.submit(d)
}

func (d *guest) busy() bool {
	return d.wants > 0 || len(d.flying[Compute])+len(d.flying[Copy]) > 0
}

// notice records since when a domain has no work, and how long it had none.
func (g *guests) notice(d *guest) {
	switch busy := d.busy(); {
	case busy:
		d.since = 0
	case d.since == 0:
		d.since = g.now
	}
}

// head returns the waiting request of a class, at the gate or behind it.
func (d *guest) head(c Class) Request {
	if !d.held[c] && (d.wants == 0 || d.next() != c) {
		return Request{}
	}
	return Request{Seq: d.passed[c] + 1, Predicted: predicted, Known: d.passed[c]%2 > 0, Key: d.passed[c] % 3, Threads: d.passed[c] % 2 << 8}
}

// look reports a domain's state to the scheduler.
func (g *guests) look(id ID) {
	d, of := g.all[id], Domain{ID: id}
	for c, u := range d.used {
		if u != (Usage{}) {
			g.send(Event{Kind: Charge, Domain: of, Class: Class(c), Used: u})
		}
	}
	d.used = [numClasses]Usage{}
	switch {
	case g.mrq:
		g.classes(id)
	case d.busy():
		g.send(Event{Kind: Wake, Domain: of, Signal: Arrived})
		d.reported = 0
	case d.reported == 0 || d.since > d.reported:
		d.reported = d.since
		g.send(Event{Kind: Wake, Domain: of, Signal: Drained, Since: d.since})
	}
	for c := Compute; c < numClasses; c++ {
		if r := d.head(c); r != d.heads[c] || d.again && r.Seq != 0 {
			d.heads[c] = r
			g.send(Event{Kind: Head, Domain: of, Class: c, Request: r})
		}
	}
	d.again = false
}

// classes reports for each class whether there is work for it.
func (g *guests) classes(id ID) {
	d := g.all[id]
	for c := Compute; c < numClasses; c++ {
		e := Event{Kind: Wake, Domain: Domain{ID: id}, Class: c, Signal: Drained}
		busy := len(d.flying[c]) > 0 || d.head(c).Seq != 0
		if busy {
			e.Signal = Arrived
		}
		if busy || d.worked[c] {
			g.send(e)
		}
		d.worked[c] = busy
	}
}

// turn is a turn of the daemon: it reads all gates, and carries out the decisions. If no domain got a lease
// that was taken back, it reads them again.
func (g *guests) turn() {
	for g.looks() {
	}
	g.check()
	for _, d := range g.all {
		if d != nil {
			g.renew(d)
			g.submit(d)
		}
	}
}

// renew grants a budget again under which a request waits though no request is in flight.
func (g *guests) renew(d *guest) {
	for c, l := range d.lent {
		idle := len(d.flying[Compute])+len(d.flying[Copy]) == 0
		if Class(c) != AnyClass {
			idle = len(d.flying[c]) == 0 && d.next() == Class(c)
		}
		if d.open[c] && l.Kind == Budget && idle && d.wants > 0 {
			d.lease[c] = l
			d.terms++
		}
	}
}

func (g *guests) looks() (again bool) {
	var closed [numClasses]bool
	for id, d := range g.all {
		if d != nil {
			g.look(ID(id))
		}
	}
	for _, a := range g.sched.Ready(g.now) {
		fmt.Fprintf(&g.log, "%d %s\n", g.now, spell(a))
		g.obey(a)
		closed[a.Lease.Class] = !a.Open
	}
	if again := g.sched.Ready(g.now); len(again) > 0 {
		g.t.Fatalf("%s: asked twice, it has more to do: %v", g.name, again)
	}
	if g.sched.Next() <= g.now {
		g.t.Fatalf("%s: at %d it wants to be asked at %d", g.name, g.now, g.sched.Next())
	}
	return closed != [numClasses]bool{}
}

func (g *guests) obey(a Action) {
	d, c := g.all[a.Domain], a.Lease.Class
	if d == nil {
		return // it just left
	}
	d.terms++
	if d.open[c], d.lease[c], d.lent[c] = a.Open, a.Lease, a.Lease; !a.Open {
		d.again = true
		return
	}
	if c == AnyClass {
		d.held = [numClasses]bool{}
	} else {
		d.held[c] = false
	}
}

// check checks the policies' invariants: one domain at a time, and if a request waits, a domain may submit or
// will be allowed to.
func (g *guests) check() {
	for i := range g.sched.accounts {
		a := &g.sched.accounts[i]
		(&watch{t: g.t, sched: g.sched}).sound(a.policy)
		open, waiting := 0, ID(0)
		q, _ := a.policy.(*queue)
		for id, d := range g.all {
			if d == nil {
				continue
			}
			if d.open[a.class] {
				open++
			}
			if busy := !g.mrq && d.reported == 0 || g.mrq && d.worked[a.class]; q != nil && q.domains.tenants[ID(id)].waits() && !busy {
				g.t.Fatalf("%s: domain %d is in line without work", g.name, id)
			}
			for c := Compute; c < numClasses; c++ {
				if a.concerns(c) && d.head(c).Seq != 0 {
					waiting = ID(id) + 1
				}
			}
		}
		if open > 1 && g.name != "none" {
			g.t.Fatalf("%s: %d gates are open at once", g.name, open)
		}
		if waiting > 0 && open == 0 && a.next == Forever {
			g.t.Fatalf("%s: nobody may submit, though domain %d waits", g.name, waiting-1)
		}
	}
}

// settle lets the guests finish their work, and fails the test if one is never served.
func (g *guests) settle() {
	for range 20_000 {
		g.now = min(max(g.sched.Next(), g.now), g.now.Add(200*ms))
		g.turn()
		busy := false
		for _, d := range g.all {
			if d == nil {
				continue
			}
			for c := Compute; c < numClasses; c++ {
				for len(d.flying[c]) > 0 && !d.held[c] {
					g.now++
					g.end(d, c, ms)
				}
			}
			busy = busy || d.busy()
		}
		if !busy {
			return
		}
	}
	for id, d := range g.all {
		if d != nil && d.busy() {
			g.t.Fatalf("%s: domain %d starves: %+v; %s; %s", g.name, id, *d, g.sched.Explain(), g.sched.Refusal(ID(id)))
		}
	}
}
