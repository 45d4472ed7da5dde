package bell

import (
	"testing"
	"testing/synctest"
	"time"

	"pegasus/callbuf/region"
)

// For any doorbell state and rings of the other side, no side sleeps for longer than lookAnyway, and a side
// sleeps long only if it can be rung.
func FuzzSleeper(f *testing.F) {
	f.Add([]byte{1, 0, 1, 0, 2, 0})
	f.Add([]byte{255, 3, 2, 1, 0, 3})
	f.Fuzz(func(t *testing.T, steps []byte) {
		synctest.Test(t, func(t *testing.T) {
			mem := make([]byte, region.ControlBytes)
			agent, hub := region.NewGuest(mem), region.NewHost(mem)
			p := &Port{rings: make(chan struct{}, 1)}
			s := NewSleeper(p, nil)
			for steps = steps[:min(len(steps), 256)]; len(steps) >= 2; steps = steps[2:] {
				other, how := region.Bell(steps[0]), steps[1]
				agent.SetBell(other)
				p.live.Store(how&1 == 0)
				if how&2 != 0 {
					p.hint()
				}
				if how&4 != 0 {
					s.Worked()
				}
				var said region.Bell
				time.AfterFunc(longestPause/2, func() { said = agent.Bell() })
				start := time.Now()
				s.Sleep(t.Context(), hub, func() bool { return how&8 != 0 })
				if d := time.Since(start); d > lookAnyway || d > longestPause && (!p.Live() || other == region.NoBell) {
					t.Fatalf("asleep for %v", d)
				}
				synctest.Wait()
				if said == region.Asleep && (!p.Live() || other == region.NoBell) {
					t.Fatal("it wants to be rung, and can't be")
				}
			}
		})
	})
}
