package sched

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/test/overwrite"
	"pegasus/test/seeds"
)

// Whatever a worker writes into its domain's gate page, under every policy the scheduler loop's turns end at once and
// the other domain is served.
func TestTurnsWithAHostilePage(t *testing.T) {
	for _, policy := range policies.Names() {
		for _, accounts := range []string{"sdq", "mrq"} {
			t.Run(policy+"/"+accounts, func(t *testing.T) { hostilePage(t, policy, accounts) })
		}
	}
}

func hostilePage(t *testing.T, policy, accounts string) {
	a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: policy, Accounts: accounts, Tick: time.Millisecond, InFlight: time.Millisecond})
	expelled := 0
	a.expel = func(*Attachment) { expelled++ }
	bad, good := attachPage(t, a, "bad"), attachPage(t, a, "good")
	gate.Join(bad, a.Bell, mustSlot(t, bad))
	mustSlot(t, bad) // a worker that has not joined yet
	member := gate.Join(good, a.Bell, mustSlot(t, good))

	random := rand.New(rand.NewPCG(seeds.Fixed(t), 0))
	page := overwrite.Map(t, bad.File())
	old := append([]byte(nil), page...)
	var done sync.WaitGroup
	stop := make(chan struct{})
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			overwrite.Words(page[:3*4096], old, random, 50)
			time.Sleep(100 * time.Microsecond)
		}
	})
	var served atomic.Int64
	var stopped atomic.Bool
	done.Go(func() {
		for !stopped.Load() {
			ticket, err := member.Acquire(gate.Compute, int64(time.Millisecond), false, nil, nil)
			if err != nil {
				return
			}
			now := gate.Now()
			member.Finish(ticket, accel.Usage{Class: accel.Compute, Start: now - int64(time.Millisecond), End: now})
			served.Add(1)
			time.Sleep(10 * time.Microsecond)
		}
	})
	limit := time.Now().Add(20 * time.Second)
	for served.Load() < 100 || expelled == 0 {
		if wait := a.turn(); wait < 0 || wait > beatEvery {
			t.Errorf("a turn asks for %v until the next", wait)
			break
		}
		if time.Now().After(limit) {
			t.Errorf("the other domain is served %d times, want 100, and the hostile one expelled %d times, want 1: %s", served.Load(), expelled, a.sched.Explain())
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	close(stop)
	stopped.Store(true)
	member.Stop()
	done.Wait()
	if expelled > 1 {
		t.Errorf("the domain is expelled %d times, want once", expelled)
	}
}
