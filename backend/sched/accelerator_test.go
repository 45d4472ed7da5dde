package sched

import (
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/configs"
	"pegasus/internal/testkit"
)

// A domain with a lease for one request has earlier deferred work. When that has used up the lease, its next request
// waits under the sequence number that was reported before: it is reported again as soon as the gate has closed,
// without waiting for the next heartbeat.
func TestLookAfterTakingBack(t *testing.T) {
	a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: "fifo", InFlight: time.Millisecond})
	page := attachPage(t, a, "a")
	member := gate.Join(page, a.Bell, mustSlot(t, page))
	a.turn() // it is alone: its gate opens
	first, second := admitted(t, member), admitted(t, member)
	attachPage(t, a, "b")
	a.turn()
	a.members[0].hold(hardware.EngineTime{Compute: int64(2 * time.Millisecond)})
	member.Finish(first, accel.Usage{Class: accel.Compute, End: int64(2 * time.Millisecond)})
	turn := make(chan struct{})
	go func() {
		member.AwaitTurn(gate.Compute, func() bool { return false })
		close(turn)
	}()
	copied := acquire(t, member, gate.Copy)
	testkit.Eventually(t, "both classes wait", func() bool {
		w := page.Look()
		return w.Heads[gate.Compute].Seq != 0 && w.Heads[gate.Copy].Seq != 0
	})
	a.turn() // lends one request
	<-turn
	last := <-copied
	next := acquire(t, member, gate.Compute)
	a.turn()

	ended := make(chan struct{})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		a.runWithoutBeats(ended)
	}()
	defer func() { close(ended); a.Bell.Ring(); <-ran }()
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

// runWithoutBeats is the scheduler loop without heartbeats to wake it.
func (a *Accelerator) runWithoutBeats(ended <-chan struct{}) {
	for {
		rung := a.Bell.Rung()
		wait := a.turn()
		if wait == beatEvery {
			wait = time.Hour
		}
		select {
		case <-ended:
			return
		default:
			a.Bell.Listen(rung, wait)
		}
	}
}

// A budget that a worker had reserved when it died is returned to its domain: otherwise no domain would be served any
// more while the others wait, too.
func TestBudgetOfTheDead(t *testing.T) {
	a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: "lag"})
	page, other := attachPage(t, a, "a"), attachPage(t, a, "b")
	slot := mustSlot(t, page)
	dies, lives := gate.Join(page, a.Bell, slot), gate.Join(page, a.Bell, mustSlot(t, page))
	rival := gate.Join(other, a.Bell, mustSlot(t, other))
	a.turn()
	got := acquire(t, dies, gate.Compute)
	a.turn() // it has the gate, and then work in flight
	<-got
	acquire(t, rival, gate.Compute)
	a.turn() // its leases have a budget from now on
	if _, v := dies.Try(gate.Compute, int64(time.Second), false); v != gate.Admitted {
		t.Fatalf("verdict %v", v)
	}
	got = acquire(t, lives, gate.Compute)
	page.Reap(slot)
	for limit := time.Now().Add(20 * time.Second); ; a.turn() { // the rival may be served first
		select {
		case <-got:
			return
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(limit) {
			t.Fatalf("it waits for ever; %s", a.sched.Explain())
		}
	}
}

// A domain's use while no other had work is charged before the other's work is reported, whichever was attached first:
// it owes the other none of that.
func TestAloneIsChargedFirst(t *testing.T) {
	for _, policy := range []string{"accc", "augc", "cosched", "credit", "band", "drr", "lag"} {
		a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: policy})
		later, page := attachPage(t, a, "later"), attachPage(t, a, "first")
		first := gate.Join(page, a.Bell, mustSlot(t, page))
		rival := gate.Join(later, a.Bell, mustSlot(t, later))
		got := acquire(t, first, gate.Compute)
		a.turn()
		ticket := <-got
		a.turn()
		a.members[1].hold(hardware.EngineTime{Compute: int64(200 * time.Millisecond)}) // alone, until the next heartbeat
		acquire(t, rival, gate.Compute)
		a.turn()
		if b, _ := a.sched.Balances(a.members[1].ID); b[0] < -50*time.Millisecond {
			t.Errorf("%s: after 200 ms alone the balance is %v", policy, b[0])
		}
		first.Finish(ticket, accel.Usage{})
	}
}
