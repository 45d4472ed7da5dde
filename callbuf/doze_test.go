package callbuf

import (
	"testing"
	"time"
)

// Where neither side can wake the other, each looks for itself: no call takes as long as
// the slices in which one sleeps that waits to be woken.
func TestApart(t *testing.T) {
	h, g, mem := pairWith(t, small(), FeatureApart)
	h.SetSpin(0)
	done := make(chan error)
	go func() {
		var p Packet
		for range 200 {
			for {
				ok, err := h.Next(&p)
				if err != nil {
					done <- err
					return
				}
				if ok {
					break
				}
				h.Park(10 * time.Second)
				if word32(mem, offPollerParked).Load() != 0 {
					t.Error("the host expects to be woken")
				}
			}
			time.Sleep(50 * time.Microsecond) // so that the caller is asleep
			h.Reply(p.ReplySlot, p.ReplyTag, 0, nil)
		}
		done <- nil
	}()
	start := time.Now()
	for range 200 {
		if _, _, err := g.Call(Header{Op: 1}, nil, nil, living); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 200*waitSlice/4 {
		t.Errorf("200 calls took %v", d)
	}
}

// A poller that dozes is roused at once, also when it wasn't dozing yet.
func TestApartUnpark(t *testing.T) {
	h, _, _ := pairWith(t, small(), FeatureApart)
	h.Unpark()
	h.Park(time.Hour)
	done := make(chan struct{}) // the segment has to be there until then
	time.AfterFunc(20*time.Millisecond, func() { h.Unpark(); close(done) })
	h.Park(time.Hour)
	<-done
}
