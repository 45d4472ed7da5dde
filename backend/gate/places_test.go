package gate

import (
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/internal/testkit"
)

// A bounded number of a domain's workers prepare work at once, and the next one begins when one of them ends.
func TestPreparersAtOnce(t *testing.T) {
	const most = 2
	p, b, first := fixture(t)
	p.SetPreparers(most)
	members := []*Member{first, member(t, p, b), member(t, p, b)}
	began, end := make(chan int, len(members)), make(chan struct{})
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			m.Prepare(func() {
				began <- i
				<-end
			})
		})
	}
	<-began
	<-began
	for !p.preparation().waiting.any() {
		time.Sleep(time.Millisecond)
	}
	select {
	case i := <-began:
		t.Fatalf("member %d prepares beside %d others", i, most)
	default:
	}
	end <- struct{}{}
	<-began
	close(end)
	all.Wait()
}

// The slot of a dead worker is free again.
func TestPlaceKept(t *testing.T) {
	p, b, m := fixture(t)
	p.SetPreparers(1)
	other := member(t, p, b)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, kept := range []struct{ holder, pid uint32 }{
		{uint32(other.index) + 1, uint32(gone.Process.Pid)},
		{Slots + 1, 0}, // no page slot
		{1 << 31, 0},
	} {
		other.slot.pid.Store(kept.pid)
		p.at.preparing[0].Store(kept.holder)
		place := m.takePlace(p.preparation(), time.Hour, time.Millisecond)
		p.preparation().leave(place, uint32(m.index)+1)
	}
	p.at.preparers.Store(1 << 31)
	p.at.preparing[0].Store(0)
	ran := false
	if m.Prepare(func() { ran = true }); !ran {
		t.Error("nothing was prepared")
	}
}

// Workers that keep all slots delay the others for a bounded time, and each such time one worker begins: not all that have
// waited for long.
func TestPlaceTakenOver(t *testing.T) {
	p, b, first := fixture(t)
	p.SetPreparers(1)
	held := first.takePlace(p.preparation(), time.Hour, time.Hour)
	const patience = 50 * time.Millisecond
	var taken []int64
	for range 3 {
		m := member(t, p, b)
		before := Now()
		if place := m.takePlace(p.preparation(), patience, time.Millisecond); place != held || place.Load() != uint32(m.index)+1 {
			t.Fatal("the slot was not taken over")
		}
		taken = append(taken, Now()-before)
	}
	for _, d := range taken {
		if d < patience.Nanoseconds() {
			t.Errorf("a slot was taken over after %v, want at least %v", time.Duration(d), patience)
		}
	}
	p.preparation().leave(held, uint32(first.index)+1) // no longer its holder
	if held.Load() == 0 {
		t.Error("a worker released the slot of another")
	}

	start, waiting := Now(), make(chan int64, 4)
	for range cap(waiting) {
		m := member(t, p, b)
		go func() {
			m.takePlace(p.preparation(), patience, time.Millisecond)
			waiting <- Now()
		}()
	}
	for i := range cap(waiting) {
		if after, least := <-waiting-start, patience.Nanoseconds()*int64(i+1); after < least {
			t.Errorf("%d workers took a slot over within %v, want at least %v", i+1, time.Duration(after), time.Duration(least))
		}
	}
}

// A worker that waits while slots change hands takes over none.
func TestPlacesThatChange(t *testing.T) {
	p, b, first := fixture(t)
	p.SetPreparers(1)
	held := first.takePlace(p.preparation(), time.Hour, time.Hour)
	m, other := member(t, p, b), uint32(member(t, p, b).index)+1
	const patience = 100 * time.Millisecond
	got := make(chan *atomic.Uint32)
	go func() { got <- m.takePlace(p.preparation(), patience, time.Millisecond) }()
	var pause int64 // the longest time without a change
	for began, last := Now(), Now(); Now()-began < 5*patience.Nanoseconds(); time.Sleep(time.Millisecond) {
		p.at.prepared.Add(1) // as if the slot had been released and taken again
		now := Now()
		pause, last = max(pause, now-last), now
		select {
		case <-got:
			if pause < patience.Nanoseconds() {
				t.Fatalf("the slot was taken over, though it changed at least every %v", time.Duration(pause))
			}
			return
		default:
		}
	}
	if !held.CompareAndSwap(uint32(first.index)+1, other) {
		t.Fatal("the slot is not held")
	}
	p.preparation().leave(held, other)
	if <-got != held {
		t.Error("the slot that was released was not taken")
	}
}

// A daemon of an earlier release sets no limit on preparing workers.
func TestPreparersNotLimited(t *testing.T) {
	p, b, m := fixture(t)
	other := member(t, p, b)
	ran := false
	m.Prepare(func() { other.Prepare(func() { ran = true }) })
	if !ran {
		t.Error("nothing was prepared")
	}
}

// The preparation slot of a killed worker is free again when the next worker has its page slot, for that worker and for
// others.
func TestPlaceOfSlotReused(t *testing.T) {
	p, b, m := fixture(t)
	p.SetPreparers(1)
	killed := member(t, p, b)
	killed.takePlace(p.preparation(), time.Second, time.Second)
	p.Reap(killed.index)
	next := member(t, p, b)
	if next.index != killed.index {
		t.Fatalf("it has slot %d, want %d", next.index, killed.index)
	}
	for name, m := range map[string]*Member{"the next worker": next, "another worker": m} {
		place := m.takePlace(p.preparation(), 10*time.Millisecond, time.Millisecond)
		if place == nil {
			t.Errorf("%s got no place", name)
			continue
		}
		p.preparation().leave(place, uint32(m.index)+1)
	}
}

// A waiting worker begins when any slot becomes free, without waiting for its next check.
func TestPlaceFreeAgain(t *testing.T) {
	const most = 2
	p, b, first := fixture(t)
	p.SetPreparers(most)
	members := []*Member{first, member(t, p, b), member(t, p, b)}
	for i := range most {
		ours := make([]*atomic.Uint32, most)
		for k := range ours {
			ours[k] = members[k].takePlace(p.preparation(), time.Hour, time.Hour)
		}
		got := make(chan *atomic.Uint32)
		go func() { got <- members[most].takePlace(p.preparation(), time.Hour, time.Hour) }()
		for !p.preparation().waiting.any() {
			time.Sleep(time.Millisecond)
		}
		p.preparation().leave(ours[i], uint32(members[i].index)+1)
		select {
		case place := <-got:
			p.preparation().leave(place, uint32(members[most].index)+1)
		case <-time.After(20 * time.Second):
			t.Fatalf("place %d is free, and the worker still waits", i)
		}
		p.preparation().leave(ours[1-i], uint32(members[1-i].index)+1)
	}
}

// A worker that ends waits for no slot.
func TestStoppedWaitingForPlace(t *testing.T) {
	p, b, m := fixture(t)
	p.SetPreparers(1)
	if other := member(t, p, b); other.takePlace(p.preparation(), time.Hour, time.Hour) == nil {
		t.Fatal("no place")
	}
	over := make(chan *atomic.Uint32)
	go func() { over <- m.takePlace(p.preparation(), time.Hour, time.Hour) }()
	for !p.preparation().waiting.any() {
		time.Sleep(time.Millisecond)
	}
	for range 100 { // the worker may be about to sleep
		m.Stop()
		select {
		case place := <-over:
			if place != nil {
				t.Error("it has the place of another worker")
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Error("it still waits")
}

// A bounded number of a domain's workers handle calls at once. One that has handled calls for a while gives its slot to
// one that waits, and so does one that waits at the gate, or for a preparation slot.
func TestHandlersTakeTurns(t *testing.T) {
	for name, give := range map[string]func(*Member){
		"rests":           (*Member).Rest,
		"handles on":      (*Member).Handle,
		"prepares":        func(m *Member) { m.Prepare(func() {}) },
		"waits to submit": func(m *Member) { m.stop.Store(true); m.Acquire(Compute, 1, false, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			p, b, m := fixture(t)
			p.SetHandlers(1)
			p.SetPreparers(1)
			other := member(t, p, b)
			for range 2 {
				if !m.MayHandle() || m.Awaited() {
					t.Fatal("the only worker with calls may not handle them")
				}
			}
			if other.MayHandle() {
				t.Fatal("two workers may handle calls at once")
			}
			got := make(chan struct{})
			go func() {
				other.place = other.takePlace(p.handling(), time.Hour, time.Hour)
				close(got)
			}()
			testkit.Eventually(t, "the other worker waits", m.Awaited)
			m.handles = Now() + time.Hour.Nanoseconds()
			if !m.MayHandle() {
				t.Error("the worker had to give its slot up at once")
			}
			m.handles = Now() - handleTime.Nanoseconds()
			if m.MayHandle() {
				t.Error("the worker may go on although another has waited for long")
			}
			given := make(chan struct{})
			go func() {
				give(m)
				close(given)
			}()
			select {
			case <-got:
			case <-time.After(20 * time.Second):
				t.Fatal("the other worker still waits")
			}
			other.Rest()
			<-given
		})
	}
}

// Each worker that waits for a handling slot gets one, without a take-over, and so does one that makes room for them.
func TestHandlersAllServed(t *testing.T) {
	p, b, first := fixture(t)
	p.SetHandlers(1)
	first.MayHandle()
	served := make(chan int, 4)
	var all sync.WaitGroup
	for i := range 3 {
		m := member(t, p, b)
		all.Go(func() {
			m.place = m.takePlace(p.handling(), time.Hour, time.Hour)
			served <- i
			m.Rest()
		})
		testkit.Eventually(t, "it waits", func() bool { return p.handling().waiting[m.index/64].Load()>>(m.index%64)&1 != 0 })
		time.Sleep(time.Millisecond) // until it sleeps
	}
	first.Handle()
	served <- 3
	first.Rest()
	all.Wait()
	seen := map[int]bool{}
	for range 4 {
		seen[<-served] = true
	}
	if len(seen) != 4 {
		t.Errorf("only the workers %v had a slot", seen)
	}
}

// A daemon of an earlier release sets no limit. The slot of a dead worker is free again, one that died while it waited
// waits no more, and limits that became lower forget nothing.
func TestHandlerDies(t *testing.T) {
	p, b, m := fixture(t)
	if !m.MayHandle() || m.place != nil {
		t.Error("a slot was taken although there is no limit")
	}
	p.SetHandlers(2)
	killed, waits := member(t, p, b), member(t, p, b)
	m.MayHandle()
	killed.MayHandle()
	if m.place == nil || killed.place == nil {
		t.Fatal("there are not two slots")
	}
	p.SetHandlers(1)
	p.handling().waiting[waits.index/64].Or(1 << (waits.index % 64))
	if !m.Awaited() {
		t.Error("nobody waits")
	}
	p.Reap(waits.index)
	if m.Awaited() {
		t.Error("a dead worker waits")
	}
	p.Reap(killed.index)
	if n := killed.place.Load(); n != 0 {
		t.Errorf("the dead worker %d has a slot", n)
	}
}

// A worker that keeps its slot delays the others for a bounded time.
func TestHandlerTakenOver(t *testing.T) {
	p, b, m := fixture(t)
	p.SetHandlers(1)
	m.MayHandle()
	other, began := member(t, p, b), Now()
	other.Handle()
	if d := time.Duration(Now() - began); other.place == nil || d < handlePatience {
		t.Errorf("another worker may handle calls after %v, want at least %v", d, handlePatience)
	}
	m.Rest()
	if other.place.Load() != uint32(other.index)+1 {
		t.Error("a worker released the slot that another one had taken over")
	}
}

// A slot may become free while a waiting worker checks whether the slot's holder lives. That worker then takes it.
func TestPlaceFreedDuringCheck(t *testing.T) {
	p, b, m := fixture(t)
	p.SetHandlers(1)
	all, me, other := p.handling(), uint32(m.index)+1, uint32(member(t, p, b).index)+1
	place := &all.holders[0]
	var over atomic.Bool
	var flips sync.WaitGroup
	flips.Go(func() {
		for n := 0; !over.Load(); n++ {
			if place.CompareAndSwap(0, other) {
				for range n % 64 {
					place.Load()
				}
				place.CompareAndSwap(other, 0)
			}
		}
	})
	defer flips.Wait()
	defer over.Store(true)
	rounds := 500
	if testing.Short() { // with the race detector
		rounds = 50
	}
	for range rounds {
		for place.Load() != other { // so that the slot is taken when the worker begins to wait
			runtime.Gosched()
		}
		if got := m.takePlace(all, time.Hour, time.Nanosecond); got != place || place.Load() != me {
			t.Fatal("the worker has no slot")
		}
		all.leave(place, me)
	}
}

// A lower limit holds for the workers that have slots, too, and so does the limit after a slot was taken over.
func TestLowerLimitHolds(t *testing.T) {
	p, b, m := fixture(t)
	p.SetHandlers(2)
	other := member(t, p, b)
	if !m.MayHandle() || !other.MayHandle() {
		t.Fatal("there are not two slots")
	}
	p.SetHandlers(1)
	if m.MayHandle() && other.MayHandle() {
		t.Error("two workers may handle calls at once, though the limit is one now")
	}
	m.Rest()
	other.Rest()
	p.SetHandlers(1)
	m.MayHandle()
	other.Handle() // takes the slot over, since m keeps it
	if m.MayHandle() && other.MayHandle() {
		t.Error("a worker handles calls on although another one has its slot")
	}
}

// A worker that was stopped, or killed, while it waited costs the others nothing: no thread sleeps for a slot.
func TestStoppedWaiterCostsNothing(t *testing.T) {
	p, b, m := fixture(t)
	p.SetHandlers(1)
	m.MayHandle()
	stopped := member(t, p, b).index
	p.handling().waiting[stopped/64].Or(1 << (stopped % 64))
	began := Now()
	for range 20 {
		m.handles = Now() - handleTime.Nanoseconds()
		if !m.MayHandle() {
			m.Handle()
		}
	}
	if d := time.Duration(Now() - began); d > 10*handlePause {
		t.Errorf("the only worker that handles calls waited for %v in 20 turns", d)
	}
}
