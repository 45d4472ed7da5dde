package cpus

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pegasus/hypervisor"
	"pegasus/internal/testkit"
	"pegasus/vcpu"
)

// weights are a Raiser whose machines have 100 each, in one group.
type weights struct {
	mu     sync.Mutex
	has    map[string]int64
	had    []int64 // weights written for "one", since the last match of written
	writes int
	broken bool
}

func (w *weights) Groups(of []hypervisor.Guests) (all []hypervisor.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range of {
		has, raised := w.has[g.Domain]
		if !raised {
			has = 100
		}
		all = append(all, hypervisor.Group{Domain: g.Domain, Parent: "p", Weight: 100, Has: has, Least: 1, Most: 10000})
	}
	return all
}

func (w *weights) Raise(domain string, weight int64) (changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	if w.broken {
		return false, errors.New("it is broken")
	}
	w.has[domain] = weight
	if domain == "one" {
		w.had = append(w.had, weight)
	}
	return false, nil
}

func (w *weights) Restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.has)
}

func (w *weights) is(want map[string]int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.has, want)
}

// asSet reports whether a domain has its configured weight.
func (w *weights) asSet(domain string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	has, written := w.has[domain]
	return !written || has == 100
}

// written reports whether these weights were written for "one", in this order, and clears the record if so.
func (w *weights) written(want ...int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, had := range w.had {
		if len(want) > 0 && had == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		return false
	}
	w.had = nil
	return true
}

// machines returns the observable processes of two machines.
func machines() []hypervisor.Guests { return []hypervisor.Guests{guestsOf("one"), guestsOf("two")} }

// A machine's weight rises with its window and returns to its configured value after it, on an accelerator that enables
// this, and not on another.
func TestCPUFollowsAccelerator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &weights{has: map[string]int64{}}
		var follows atomic.Bool
		follows.Store(true)
		f := NewFollower(w, func() []hypervisor.Guests {
			if follows.Load() {
				return machines()
			}
			return nil
		}, virtual)
		ctx, cancel := context.WithCancel(t.Context())
		go f.Run(ctx)
		window := func() {
			end := vcpu.Time(virtual()).Add(30 * time.Millisecond)
			f.Window("one", end)
			f.Window("plain", end)
			synctest.Wait()
		}
		// A brief value may not be observable: the record of writes is. "two" may owe "one" a boost after that, and be
		// lowered in turn.
		testkit.Eventually(t, "a window raises, its end lowers, and then it is as set", func() bool {
			window()
			for began := time.Now(); time.Since(began) < 100*time.Millisecond || !w.asSet("one") && time.Since(began) < 20*time.Second; {
				time.Sleep(time.Millisecond) // the boost runs its course
			}
			return w.written(400, 25, 100)
		})
		testkit.Eventually(t, "another raises", func() bool { window(); return w.written(400) })
		follows.Store(false)
		testkit.Eventually(t, "the operator gives up", func() bool { return w.asSet("one") && w.asSet("two") })
		follows.Store(true)
		w.written()
		testkit.Eventually(t, "the next raises", func() bool { window(); return w.written(400) })
		cancel()
		synctest.Wait()
		if !w.is(map[string]int64{}) {
			t.Errorf("in the end: %v", w.has)
		}
	})
}

// A weight that cannot be written is not retried continuously.
func TestBrokenRaiser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &weights{broken: true}
		f := NewFollower(w, machines, virtual)
		ctx, cancel := context.WithCancel(t.Context())
		go f.Run(ctx)
		tried := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.writes
		}
		windows := func() {
			f.Window("one", vcpu.Time(virtual()).Add(20*time.Millisecond))
			time.Sleep(time.Millisecond)
		}
		testkit.Eventually(t, "it is tried", func() bool { windows(); return tried() > 0 })
		const seconds = 10
		for began := time.Now(); time.Since(began) < seconds*time.Second; {
			windows()
		}
		cancel()
		synctest.Wait()
		if most := 3 + 2*seconds; tried() > most { // once a second for each of both
			t.Errorf("it was tried %d times, want at most %d", tried(), most)
		}
	})
}
