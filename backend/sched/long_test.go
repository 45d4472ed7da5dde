package sched

import (
	"context"
	"sync"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/configs"
	"pegasus/internal/testkit"
	"pegasus/policies"
)

// keepLong makes a domain execute one endless request, part by part, like a graph of many kernels.
func keepLong(t *testing.T, a *Accelerator, name string, engine *sync.Mutex) *busyDomain {
	page := attachPage(t, a, name)
	member := gate.Join(page, a.Bell, mustSlot(t, page))
	b := &busyDomain{attachment: a.members[len(a.members)-1]}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticket, err := member.Acquire(gate.Compute, int64(200*time.Microsecond), false, nil, nil)
		if err != nil {
			return
		}
		begun := gate.Now()
		for !b.stop.Load() {
			member.AwaitTurn(gate.Compute, b.stop.Load)
			engine.Lock()
			start := gate.Now()
			time.Sleep(200 * time.Microsecond)
			b.done.Add(1)
			u := accel.Usage{Class: accel.Compute, Start: start, End: gate.Now()}
			b.attachment.hold(hardware.EngineTime{Compute: u.End - u.Start})
			member.Spend(&ticket, u)
			engine.Unlock()
		}
		member.Finish(ticket, accel.Usage{Class: accel.Compute, Start: begun, End: begun})
	}()
	t.Cleanup(func() {
		b.stop.Store(true)
		member.Stop()
		<-ended
	})
	return b
}

// An endless request has its domain's turns and no others: other domains make progress under every policy that does not
// wait for the end of single requests as published, also while its domain is paused.
func TestLongRequest(t *testing.T) {
	for _, name := range policies.Names() {
		for _, accounts := range []string{"sdq", "mrq"} {
			t.Run(name+"/"+accounts, func(t *testing.T) {
				t.Parallel()
				longRequest(t, name, accounts)
			})
		}
	}
}

func longRequest(t *testing.T, policy, accounts string) {
	c := configs.Default().Accelerators[0]
	c.Policy, c.Accounts = policy, accounts
	a := quietAccelerator(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ran })
	var engine sync.Mutex
	long, other := keepLong(t, a, "long", &engine), keepBusy(t, a, "other", &engine)
	go func() {
		a.Run(ctx)
		close(ran)
	}()
	for range 2 {
		if !long.goesOn() || !other.goesOn() {
			t.Fatalf("somebody starves before the pause: %s", a.sched.Explain())
		}
		a.Pause(long.attachment, true)
		testkit.Eventually(t, "the paused domain is at rest", func() bool { return drained(a, long.attachment) })
		was := long.done.Load()
		if !other.goesOn() {
			t.Fatalf("the other starves while one is paused: %s", a.sched.Explain())
		}
		if now := long.done.Load(); now != was {
			t.Errorf("%d parts while the domain is paused", now-was)
		}
		a.Pause(long.attachment, false)
	}
	if !long.goesOn() || !other.goesOn() {
		t.Fatalf("somebody starves after the pause: %s", a.sched.Explain())
	}
}
