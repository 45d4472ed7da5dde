package gate

import (
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Only so many workers of a domain prepare work at once, and the next one begins when one of them ends.
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

// A place is free again when the worker that had it is dead, and a worker that keeps all places holds others up for a time only.
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
		{Slots + 1, 0, true}, // no slot
		{1 << 31, 0, true},
	} {
		other.slot.pid.Store(kept.pid)
		p.at.preparing[0].Store(kept.holder)
		if place := m.takePlace(p.at.preparing[:1], 10*time.Millisecond); (place != nil) != kept.want {
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

// A daemon of an earlier release doesn't say how many may prepare work.
func TestPreparersNotLimited(t *testing.T) {
	p, b, m := fixture(t)
	other := member(t, p, b)
	ran := false
	m.Prepare(func() { other.Prepare(func() { ran = true }) })
	if !ran {
		t.Error("nothing was prepared")
	}
}
