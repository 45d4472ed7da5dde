package callbuf

import (
	"slices"
	"testing"
	"time"
)

// Where neither side can wake the other, each polls: no call takes as long as the slices of a sleep that ends
// by a wake-up.
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
	var took []time.Duration
	for range 200 {
		start := time.Now()
		if _, _, err := g.Call(Header{Op: 1}, nil, nil, living); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	slices.Sort(took) // on a busy host some may have to wait
	if d := took[len(took)/2]; d > waitSlice/4 {
		t.Errorf("half of the calls took %v and more", d)
	}
}

// A polling poller is woken at once, also if it was not polling yet.
func TestApartUnpark(t *testing.T) {
	h, _, _ := pairWith(t, small(), FeatureApart)
	h.Unpark()
	h.Park(time.Hour)
	done := make(chan struct{}) // the segment must exist until then
	time.AfterFunc(20*time.Millisecond, func() { h.Unpark(); close(done) })
	h.Park(time.Hour)
	<-done
}
