package sched

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/configs"
	"pegasus/internal/testkit"
	"pegasus/policies"
)

// busyDomain is a domain that never runs out of work.
type busyDomain struct {
	attachment *Attachment
	done       atomic.Int64
	stop       atomic.Bool
}

// keepBusy makes a domain submit one request after another; engine is the accelerator's.
func keepBusy(t *testing.T, a *Accelerator, name string, engine *sync.Mutex) *busyDomain {
	page := attachPage(t, a, name)
	member := gate.Join(page, a.Bell, mustSlot(t, page))
	b := &busyDomain{attachment: a.members[len(a.members)-1]}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !b.stop.Load() {
			ticket, err := member.Acquire(gate.Compute, int64(200*time.Microsecond), false, nil, nil)
			if err != nil {
				return
			}
			engine.Lock()
			start := gate.Now()
			time.Sleep(200 * time.Microsecond)
			// Counted while still in flight: once the request is finished, the domain may look idle before this
			// goroutine runs again.
			b.done.Add(1)
			u := accel.Usage{Class: accel.Compute, Start: start, End: gate.Now()}
			b.attachment.hold(hardware.EngineTime{Compute: u.End - u.Start})
			member.Finish(ticket, u)
			engine.Unlock()
		}
	}()
	t.Cleanup(func() {
		b.stop.Store(true)
		member.Stop()
		<-ended
	})
	return b
}

func (b *busyDomain) goesOn() bool {
	was := b.done.Load()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if b.done.Load() > was+2 {
			return true
		}
	}
	return false
}

// A paused domain gets no time, whatever it requests, and the others get all of it; afterwards it continues: under
// every policy, in every mode, with every account.
func TestPause(t *testing.T) {
	for _, name := range policies.Names() {
		for _, mode := range []string{"production", "paper"} {
			for _, accounts := range []string{"sdq", "mrq"} {
				t.Run(name+"/"+mode+"/"+accounts, func(t *testing.T) {
					t.Parallel()
					pauses(t, name, mode, accounts)
				})
			}
		}
	}
}

func pauses(t *testing.T, policy, mode, accounts string) {
	c := configs.Default().Accelerators[0]
	c.Policy, c.Mode, c.Accounts = policy, mode, accounts
	a := quietAccelerator(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ran })
	var engine sync.Mutex
	one, other := keepBusy(t, a, "one", &engine), keepBusy(t, a, "other", &engine)
	go func() {
		a.Run(ctx)
		close(ran)
	}()
	for range 2 {
		if !one.goesOn() || !other.goesOn() {
			t.Fatalf("somebody starves before the pause: %s", a.sched.Explain())
		}
		a.Pause(one.attachment, true)
		testkit.Eventually(t, "the paused domain is at rest", func() bool { return drained(a, one.attachment) })
		was := one.done.Load()
		if !other.goesOn() {
			t.Fatalf("the other starves while one is paused: %s", a.sched.Explain())
		}
		if now := one.done.Load(); now != was {
			t.Errorf("%d requests of the paused domain", now-was)
		}
		if state, entitled := a.Standing(one.attachment); state != "paused" || entitled != 0 {
			t.Errorf("the paused domain is %s and owed %v", state, entitled)
		}
		owed := 0.0
		if (policies.Choice{Policy: policy}).Owes() {
			owed = 1 // all of it
		}
		if _, entitled := a.Standing(other.attachment); entitled != owed {
			t.Errorf("the other is owed %v, not %v", entitled, owed)
		}
		a.Pause(one.attachment, false)
	}
	if !one.goesOn() || !other.goesOn() {
		t.Fatalf("somebody starves after the pause: %s", a.sched.Explain())
	}
}

func drained(a *Accelerator, m *Attachment) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return m.withdrawn
}
