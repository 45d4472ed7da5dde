package gate

import (
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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
	for p.at.preparersWaiting.Load() == 0 {
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

// The slot of a dead worker is free again, and a worker that keeps all slots delays others only for a bounded time.
func TestPlaceKept(t *testing.T) {
	p, b, m := fixture(t)
	p.SetPreparers(1)
	other := member(t, p, b)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, kept := range []struct {
		holder, pid uint32
		want        bool
	}{
		{uint32(other.index) + 1, uint32(gone.Process.Pid), true},
		{uint32(other.index) + 1, uint32(os.Getpid()), false},
		{Slots + 1, 0, true}, // no page slot
		{1 << 31, 0, true},
	} {
		other.slot.pid.Store(kept.pid)
		p.at.preparing[0].Store(kept.holder)
		if place := m.takePlace(1, 10*time.Millisecond, time.Millisecond); (place != nil) != kept.want {
			t.Errorf("the place of %#x (process %d) is free: %v, want %v", kept.holder, kept.pid, place != nil, kept.want)
		}
	}
	p.at.preparers.Store(1 << 31)
	p.at.preparing[0].Store(0)
	ran := false
	if m.Prepare(func() { ran = true }); !ran {
		t.Error("nothing was prepared")
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
	killed.takePlace(1, time.Second, time.Second)
	p.Reap(killed.index)
	next := member(t, p, b)
	if next.index != killed.index {
		t.Fatalf("it has slot %d, want %d", next.index, killed.index)
	}
	for name, m := range map[string]*Member{"the next worker": next, "another worker": m} {
		place := m.takePlace(1, 10*time.Millisecond, time.Millisecond)
		if place == nil {
			t.Errorf("%s got no place", name)
			continue
		}
		p.leavePlace(place, uint32(m.index)+1)
	}
}

// A waiting worker begins when any slot becomes free, without waiting for its next check.
func TestPlaceFreeAgain(t *testing.T) {
	const most = 2
	p, b, first := fixture(t)
	members := []*Member{first, member(t, p, b), member(t, p, b)}
	for i := range most {
		ours := make([]*atomic.Uint32, most)
		for k := range ours {
			ours[k] = members[k].takePlace(most, time.Hour, time.Hour)
		}
		got := make(chan *atomic.Uint32)
		go func() { got <- members[most].takePlace(most, time.Hour, time.Hour) }()
		for p.at.preparersWaiting.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		p.leavePlace(ours[i], uint32(members[i].index)+1)
		select {
		case place := <-got:
			p.leavePlace(place, uint32(members[most].index)+1)
		case <-time.After(20 * time.Second):
			t.Fatalf("place %d is free, and the worker still waits", i)
		}
		p.leavePlace(ours[1-i], uint32(members[1-i].index)+1)
	}
}

// A worker that ends waits for no slot.
func TestStoppedWaitingForPlace(t *testing.T) {
	p, b, m := fixture(t)
	if other := member(t, p, b); other.takePlace(1, time.Hour, time.Hour) == nil {
		t.Fatal("no place")
	}
	over := make(chan *atomic.Uint32)
	go func() { over <- m.takePlace(1, time.Hour, time.Hour) }()
	for p.at.preparersWaiting.Load() == 0 {
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
