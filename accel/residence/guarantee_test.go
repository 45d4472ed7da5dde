package residence

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// requester is the ledger of a process that needs room. evict carries out a request to another owner at once, so that the
// order of all steps is fixed.
type requester struct {
	*process
	evict func(Ask)
}

func (r requester) Ask(a Ask)                   { r.evict(a) }
func (r requester) AwaitAnswer(d time.Duration) { time.Sleep(d) }

// Guaranteed bytes are requested only when the other owners' evictions have freed nothing for patience, or when no owner
// exceeds its guarantee. The clock is that of synctest: it advances only while the requester waits.
func TestGuaranteedBytesLast(t *testing.T) {
	const need, never = 20, time.Duration(-1)
	for _, c := range []struct {
		name   string
		excess uint64 // bytes of an owner without a guarantee
		// evict returns the number of bytes that this owner evicts, and the part of them that another process takes before
		// the requester does. earlier is the number of requests that this owner has answered before.
		evict func(earlier int) (n, taken uint64)
		want  time.Duration // until the first request for guaranteed bytes
	}{
		{"another process takes the first evictions", 60, func(earlier int) (n, taken uint64) {
			if earlier < 2 {
				return need, need
			}
			return need, 0
		}, never},
		{"another process takes all evictions", 60, func(int) (n, taken uint64) { return need, need }, patience},
		{"no eviction", 60, func(int) (n, taken uint64) { return 0, 0 }, patience},
		{"an eviction after some time", 60, func(earlier int) (n, taken uint64) {
			if earlier == 50 { // one request per slice
				return need / 2, 0
			}
			return 0, 0
		}, 50*slice + patience},
		{"no excess", 0, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const guarantee = 40
				m := newMachine(t, guarantee+c.excess, 0, 4)
				guaranteed, exceeding, taker := m.processes[1], m.processes[2], m.processes[3]
				guaranteed.share.Guarantee = guarantee
				guaranteed.ForceOccupy(guarantee)
				exceeding.ForceOccupy(c.excess)

				began, requests, last := time.Now(), 0, never
				var pressing []time.Duration
				evict := func(a Ask) {
					at := time.Since(began)
					switch a.Owner {
					case guaranteed.id:
						pressing = append(pressing, at)
						guaranteed.Vacate(min(a.Bytes, 5)) // more than one such request is needed
					case exceeding.id:
						n, taken := c.evict(requests)
						exceeding.Vacate(n)
						taker.ForceOccupy(taken)
						requests, last = requests+1, at
					}
				}
				set := Set{ledger: requester{m.processes[0], evict}}
				if err := set.Claim(need, nil); err != nil {
					t.Fatalf("Claim after %v: %v", time.Since(began), err)
				}
				if c.want == never {
					if len(pressing) > 0 || last >= patience {
						t.Errorf("requests for guaranteed bytes at %v, want none; the last other request at %v, want less than %v",
							pressing, last, patience)
					}
					return
				}
				if len(pressing) == 0 {
					t.Fatalf("no request for guaranteed bytes, want the first at %v", c.want)
				}
				// Once guaranteed bytes are requested, the next such request does not wait for patience again.
				for i, at := range pressing {
					if at < c.want || at > c.want+slice {
						t.Errorf("request %d of %d for guaranteed bytes at %v, want %v to %v", i+1, len(pressing), at, c.want,
							c.want+slice)
					}
				}
			})
		})
	}
}

// An owner that does not answer, since it uses its memory, takes nothing from another domain's guarantee: the requester
// fails after maxWait.
func TestGuaranteeBesideABusyOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, 100, 0, 3)
		guaranteed, busy, asks := m.processes[0], m.processes[1], m.processes[2]
		guaranteed.share.Guarantee = 40
		for i, n := range []uint64{40, 60, 50} {
			if err := m.processes[i].set.Add(0, n, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		busy.set.Begin()
		began := time.Now()
		if err := asks.set.BeginKernel(nil); !errors.Is(err, ErrInUse) || time.Since(began) < maxWait {
			t.Errorf("BeginKernel returned %v after %v, want %v after %v", err, time.Since(began), ErrInUse, maxWait)
		}
		guaranteed.keeps(40)
		busy.set.End(false)
		if err := asks.set.BeginKernel(nil); err != nil {
			t.Errorf("BeginKernel beside an idle owner: %v", err)
		}
		asks.set.End(true)
		closeAll(m)
	})
}

// Kernels of several processes may wait for room at once, since an engine can be granted to a second process while the
// first one still waits. None waits for an owner that waits for it.
func TestKernelsThatWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, 100, 0, 3)
		for _, p := range m.processes {
			if err := p.set.Add(0, 30, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := p.set.Add(1000, 60, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		var kernels sync.WaitGroup
		for _, p := range m.processes {
			kernels.Go(func() {
				for range 20 {
					if err := p.set.BeginKernel(nil); err != nil {
						t.Errorf("process %d: %v", p.id, err)
						return
					}
					time.Sleep(time.Millisecond)
					p.set.End(true)
				}
			})
		}
		kernels.Wait()
		if d := time.Since(began); d > patience/2 {
			t.Errorf("60 kernels of a millisecond took %v", d)
		}
		closeAll(m)
	})
}
