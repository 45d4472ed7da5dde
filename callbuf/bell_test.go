package callbuf

import (
	"testing"
	"time"

	"pegasus/internal/testkit"
)

const bellFeatures = FeatureApart | FeatureBell

// A poller of another kernel that has been idle for a while is woken by a ring; only a guest that finds it
// asleep rings, and only one of several.
func TestBell(t *testing.T) {
	h, g, mem := pairWith(t, small(), bellFeatures)
	rings := 0
	g.RingBy(func() { rings++; h.Rung() })
	parked := word32(mem, offPollerParked)
	h.Park(time.Millisecond)
	if parked.Load() != 0 {
		t.Fatal("a poller that was just busy expects to be rung")
	}
	h.idleSince = time.Now().Add(-time.Minute)
	slept := make(chan time.Duration)
	var p Packet
	for i := range 20 {
		go func() {
			start := time.Now()
			h.Park(time.Minute)
			slept <- time.Since(start)
		}()
		testkit.Eventually(t, "the poller sleeps", func() bool { return parked.Load() != 0 })
		for range 3 {
			if err := g.Send(Header{Op: 1}, nil, living); err != nil {
				t.Fatal(err)
			}
		}
		if d := <-slept; d > 30*time.Second {
			t.Fatalf("asleep for %v", d)
		}
		if rings != i+1 {
			t.Fatalf("%d rings, not %d", rings, i+1)
		}
		for range 3 {
			if ok, err := h.Next(&p); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		h.Park(0)
		h.idleSince = time.Now().Add(-time.Minute)
	}
}

// A ring without a packet does not end the sleep, and a lost one costs a slice. Unpark ends it, also if it
// came before.
func TestBellFalseAndLost(t *testing.T) {
	h, g, mem := pairWith(t, small(), bellFeatures)
	h.Park(0)
	h.idleSince = time.Now().Add(-time.Minute)
	awake := make(chan struct{})
	park := func() {
		h.Park(time.Minute)
		awake <- struct{}{}
	}
	go park()
	for range 100 {
		h.Rung()
	}
	select {
	case <-awake:
		t.Fatal("woken by a ring without a packet")
	case <-time.After(50 * time.Millisecond):
	}
	g.RingBy(func() {}) // lost
	if err := g.Send(Header{Op: 1}, nil, living); err != nil {
		t.Fatal(err)
	}
	<-awake
	var p Packet
	if ok, err := h.Next(&p); !ok || err != nil {
		t.Fatal(ok, err)
	}
	h.Park(0)
	h.idleSince = time.Now().Add(-time.Minute)
	h.Unpark()
	go park()
	<-awake
	go park()
	testkit.Eventually(t, "the poller sleeps", func() bool { return word32(mem, offPollerParked).Load() != 0 })
	h.Unpark()
	<-awake
}

// A guest rings only with RingBy, and only if the segment has a bell.
func TestNoBell(t *testing.T) {
	_, g, mem := pairWith(t, small(), FeatureApart)
	g.RingBy(func() { t.Error("rung") })
	word32(mem, offPollerParked).Store(1)
	if err := g.Send(Header{Op: 1}, nil, living); err != nil {
		t.Fatal(err)
	}
}

// A process that maps a poller's segment on the host wakes it when the guest has cleared the sleep mark, and
// not before.
func TestRouse(t *testing.T) {
	h, g, mem := pairWith(t, small(), bellFeatures|FeatureRouse)
	g.RingBy(func() {}) // other processes do
	parked := word32(mem, offPollerParked)
	h.Park(0)
	h.idleSince = time.Now().Add(-time.Minute)
	woken := make(chan struct{})
	go func() {
		h.Park(time.Minute)
		close(woken)
	}()
	testkit.Eventually(t, "the poller sleeps", func() bool { return parked.Load() != 0 })
	for range 100 {
		Rouse(mem[:HeaderBytes])
	}
	select {
	case <-woken:
		t.Fatal("woken without a packet")
	case <-time.After(20 * time.Millisecond):
	}
	if parked.Load() == 0 {
		t.Fatal("it doesn't want to be rung any more")
	}
	if err := g.Send(Header{Op: 1}, nil, living); err != nil {
		t.Fatal(err)
	}
	Rouse(mem[:HeaderBytes])
	<-woken
}
