package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pegasus/vcpu"
)

// FuzzAccounts makes events from bytes for two policies, one lending the compute engine, the other the copy
// engines.
func FuzzAccounts(f *testing.F) {
	f.Add([]byte("one engine here, another there; they do not wait for each other"))
	f.Add([]byte{0, 0, 0, 0, 1, 0, 40, 0, 1, 40, 1, 2, 40, 0, 2, 90, 0, 1, 90, 0, 1, 90, 1, 2, 200, 9, 200, 140, 1, 2, 200, 99, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range Names() {
			for _, mode := range []Mode{Production, Paper} {
				o := Defaults(mode)
				o.Accounts = MRQ
				first := playClasses(t, name, o, data)
				if again := playClasses(t, name, o, data); again != first {
					t.Fatalf("%s decides otherwise the second time:\n%s\n%s", name, first, again)
				}
			}
		}
	})
}

// engines is a guest of several domains, whose requests wait for one of two classes.
type engines struct {
	t     *testing.T
	name  string
	sched *Scheduler
	now   Time
	seq   uint64
	work  map[ID]*[numClasses]bool // attached domains, and their work
	open  map[ID]*[numClasses]bool
	log   strings.Builder
}

func playClasses(t *testing.T, name string, o Options, data []byte) string {
	p, err := NewAccounts(name, o)
	if err != nil || len(p) != 2 {
		t.Fatal(p, err)
	}
	e := &engines{t: t, name: name, sched: NewScheduler(p...), work: map[ID]*[numClasses]bool{}, open: map[ID]*[numClasses]bool{}}
	for ; len(data) >= 3; data = data[3:] {
		e.step(data[0], data[1], data[2])
		e.ready()
	}
	return e.log.String()
}

func (e *engines) step(what, who, how byte) {
	d := Domain{ID: ID(who % 6), Credits: vcpu.Credits(how) + 1}
	class := []Class{Compute, Copy}[how%2]
	work, known := e.work[d.ID], true
	if work == nil {
		work, known = &[numClasses]bool{}, false
	}
	switch {
	case what < 32:
		d.Promise = promiseOf(what, who, how)
		e.sched.Step(e.now, &Event{Kind: Attach, Domain: d})
		e.work[d.ID] = work
		if !known {
			e.open[d.ID] = &[numClasses]bool{}
		}
	case what < 38:
		e.sched.Step(e.now, &Event{Kind: Detach, Domain: d})
		delete(e.work, d.ID)
	case what < 80:
		work[class] = true
		e.sched.Step(e.now, &Event{Kind: Wake, Domain: d, Signal: Arrived, Class: class})
		e.head(d, class, true)
	case what < 110:
		work[class] = false
		e.head(d, class, false)
		e.sched.Step(e.now, &Event{Kind: Wake, Domain: d, Signal: Drained, Class: class})
	case what < 190:
		u := Usage{Requests: 1}
		if took := time.Duration(how) * time.Duration(what) * time.Microsecond; class == Copy {
			u.Copy = took
		} else {
			u.Compute = took
		}
		e.sched.Step(e.now, &Event{Kind: Charge, Domain: d, Used: u, Class: class})
		e.head(d, class, work[class])
	default:
		for end := e.now.Add(time.Duration(who) * time.Duration(how) * 10 * time.Microsecond); e.now < end; e.ready() {
			e.now = max(e.now, min(e.sched.Next(), end))
		}
	}
}

func (e *engines) head(d Domain, c Class, waits bool) {
	r := Request{}
	if waits {
		e.seq++
		r = Request{Seq: e.seq, Predicted: time.Duration(e.seq%7) * ms}
	}
	e.sched.Step(e.now, &Event{Kind: Head, Domain: d, Class: c, Request: r})
}

// ready follows the scheduler's actions. It checks that at most one gate of each class is open, and that one
// is, or will be, if there is work for it.
func (e *engines) ready() {
	for _, a := range e.sched.Ready(e.now) {
		fmt.Fprintf(&e.log, "%d %s\n", e.now, spell(a))
		switch open := e.open[a.Domain]; {
		case a.Lease.Class != Compute && a.Lease.Class != Copy:
			e.t.Fatalf("%s: a lease of neither class: %v", e.name, a)
		case !a.Open && !open[a.Lease.Class]:
			e.t.Fatalf("%s closes a gate that isn't open: %v", e.name, a)
		default:
			open[a.Lease.Class] = a.Open
		}
	}
	for id := range e.open {
		if e.work[id] == nil {
			if *e.open[id] != [numClasses]bool{} {
				e.t.Fatalf("%s left a gate of domain %d open", e.name, id)
			}
			delete(e.open, id)
		}
	}
	for i, class := range []Class{Compute, Copy} {
		open, wanted := 0, false
		for id, o := range e.open {
			if o[class] {
				open++
			}
			wanted = wanted || e.work[id][class]
		}
		if open > 1 && e.name != "none" {
			e.t.Fatalf("%s: %d gates are open for class %d", e.name, open, class)
		}
		if wanted && open == 0 && e.sched.accounts[i].next == Forever {
			e.t.Fatalf("%s: nobody may submit to class %d", e.name, class)
		}
	}
}
