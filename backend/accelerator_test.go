package backend

import (
	"log/slog"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/configs"
)

// A domain with a lease for one request has earlier deferred work. When that has used up the lease, its next request
// waits under the sequence number that was reported before: it is reported again as soon as the gate has closed,
// without waiting for the next heartbeat.
func TestLookAfterTakingBack(t *testing.T) {
	a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: "fifo", InFlight: time.Millisecond})
	page := attachPage(t, a, "a")
	member := gate.Join(page, a.bell, mustSlot(t, page))
	a.turn() // it is alone: its gate opens
	first, second := admitted(t, member), admitted(t, member)
	attachPage(t, a, "b")
	a.turn()
	a.members[0].hold(EngineTime{Compute: int64(2 * time.Millisecond)})
	member.Finish(first, accel.Usage{Class: accel.Compute, End: int64(2 * time.Millisecond)})
	turn := make(chan struct{})
	go func() {
		member.AwaitTurn(gate.Compute, func() bool { return false })
		close(turn)
	}()
	copied := make(chan gate.Ticket)
	go acquire(t, member, gate.Copy, copied)
	for w := page.Look(); w.Heads[gate.Compute].Seq == 0 || w.Heads[gate.Copy].Seq == 0; w = page.Look() {
		time.Sleep(time.Millisecond)
	}
	a.turn() // lends one request
	<-turn
	last := <-copied
	next := make(chan gate.Ticket)
	go acquire(t, member, gate.Compute, next)
	for w := page.Look(); w.Pending == 0; w = page.Look() {
		time.Sleep(time.Millisecond)
	}
	a.turn()

	ended := make(chan struct{})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		a.runWithoutBeats(ended)
	}()
	defer func() { close(ended); a.bell.Ring(); <-ran }()
	time.Sleep(10 * time.Millisecond) // it sleeps until the doorbell rings
	member.Finish(last, accel.Usage{Class: accel.CopyIn, End: 1})
	select {
	case ticket := <-next:
		member.Finish(ticket, accel.Usage{})
	case <-time.After(20 * time.Second):
		t.Error("the next request waits for a beat")
	}
	member.Finish(second, accel.Usage{})
}

// quietAccelerator returns an accelerator whose gates do not open because of an old heartbeat.
func quietAccelerator(t *testing.T, c configs.Accelerator) *accelerator {
	t.Helper()
	bell, err := gate.NewBell() // not freed: a worker may ring it after the loop has ended
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAccelerator(c, nil, bell, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a.silence = time.Hour
	return a
}

// runWithoutBeats is the scheduler loop without heartbeats to wake it.
func (a *accelerator) runWithoutBeats(ended <-chan struct{}) {
	for {
		rung := a.bell.Rung()
		wait := a.turn()
		if wait == beatEvery {
			wait = time.Hour
		}
		select {
		case <-ended:
			return
		default:
			a.bell.Listen(rung, wait)
		}
	}
}

// A budget that a worker had reserved when it died is returned to its domain: otherwise no domain would be served any
// more while the others wait, too.
func TestBudgetOfTheDead(t *testing.T) {
	a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: "lag"})
	page, other := attachPage(t, a, "a"), attachPage(t, a, "b")
	slot := mustSlot(t, page)
	dies, lives := gate.Join(page, a.bell, slot), gate.Join(page, a.bell, mustSlot(t, page))
	rival := gate.Join(other, a.bell, mustSlot(t, other))
	a.turn()
	got := make(chan gate.Ticket, 1)
	go acquire(t, dies, gate.Compute, got)
	for !page.Look().Busy() {
		time.Sleep(time.Millisecond)
	}
	a.turn() // it has the gate, and then work in flight
	<-got
	go acquire(t, rival, gate.Compute, make(chan gate.Ticket, 1))
	for !other.Look().Busy() {
		time.Sleep(time.Millisecond)
	}
	a.turn() // its leases have a budget from now on
	if _, v := dies.Try(gate.Compute, int64(time.Second), false); v != gate.Admitted {
		t.Fatalf("verdict %v", v)
	}
	go acquire(t, lives, gate.Compute, got)
	for page.Look().Pending == 0 {
		time.Sleep(time.Millisecond)
	}
	page.Reap(slot)
	for range 3 {
		a.turn()
	}
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Errorf("it waits for ever; %s", a.sched.Explain())
	}
}

// A domain's use while no other had work is charged before the other's work is reported, whichever was attached first:
// it owes the other none of that.
func TestAloneIsChargedFirst(t *testing.T) {
	for _, policy := range []string{"accc", "augc", "cosched", "credit", "band", "drr", "lag"} {
		a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: policy})
		later, page := attachPage(t, a, "later"), attachPage(t, a, "first")
		first := gate.Join(page, a.bell, mustSlot(t, page))
		rival := gate.Join(later, a.bell, mustSlot(t, later))
		got := make(chan gate.Ticket, 1)
		go acquire(t, first, gate.Compute, got)
		for !page.Look().Busy() {
			time.Sleep(time.Millisecond)
		}
		a.turn()
		ticket := <-got
		a.turn()
		a.members[1].hold(EngineTime{Compute: int64(200 * time.Millisecond)}) // alone, until the next heartbeat
		go acquire(t, rival, gate.Compute, make(chan gate.Ticket, 1))
		for !later.Look().Busy() {
			time.Sleep(time.Millisecond)
		}
		a.turn()
		if b, _ := a.sched.Balances(a.members[1].id); b[0] < -50*time.Millisecond {
			t.Errorf("%s: after 200 ms alone the balance is %v", policy, b[0])
		}
		first.Finish(ticket, accel.Usage{})
	}
}

func attachPage(t *testing.T, a *accelerator, name string) *gate.Page {
	t.Helper()
	page, err := gate.New() // not freed: a goroutine may still wait there
	if err != nil {
		t.Fatal(err)
	}
	a.attach(configs.Domain{Name: name, Credits: 256}, 0, page, nil, new(fakeAccount))
	return page
}

func mustSlot(t *testing.T, p *gate.Page) int {
	t.Helper()
	i, err := p.TakeSlot()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func admitted(t *testing.T, m *gate.Member) gate.Ticket {
	t.Helper()
	ticket, v := m.Try(gate.Compute, 1, false)
	if v != gate.Admitted {
		t.Fatalf("verdict %v", v)
	}
	return ticket
}

func acquire(t *testing.T, m *gate.Member, c gate.Class, to chan<- gate.Ticket) {
	ticket, err := m.Acquire(c, 1, false, nil, nil)
	if err != nil {
		t.Error(err)
	}
	to <- ticket
}
