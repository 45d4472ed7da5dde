package soft

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

func TestMemoryLimits(t *testing.T) {
	var used atomic.Int64
	d, c := open(t, func(c *Config) {
		c.Memory = 10 << 20
		c.Quota = func(delta int64) bool {
			if used.Add(delta) > 8<<20 {
				used.Add(-delta)
				return false
			}
			return true
		}
	})
	_, r := c.Alloc(0)
	want(t, r, cuda.ErrorInvalidValue)
	for _, n := range []uint64{9 << 20, 1 << 40, ^uint64(0)} {
		_, r = c.Alloc(n)
		want(t, r, cuda.ErrorOutOfMemory)
	}
	a := alloc(t, c, 5<<20)
	_, r = c.Alloc(4 << 20)
	want(t, r, cuda.ErrorOutOfMemory)
	if n := d.MemoryUsed(); n != 5<<20 || used.Load() != 5<<20 {
		t.Fatal("accounted:", n, used.Load())
	}

	// A free that waits for work: the allocation waits for it.
	gate := make(chan struct{})
	m := goModule(c, 0, func(*run) *fault { <-gate; return nil })
	submit(t, c, c.DefaultStream(), launchOf(m))
	want(t, c.Free(a, nil), cuda.Success)
	go func() { time.Sleep(10 * time.Millisecond); close(gate) }()
	a = alloc(t, c, 8<<20)

	// But not if the work may wait for the guest, which may be waiting for this allocation.
	var finished func()
	submit(t, c, c.DefaultStream(), accel.HostFunc{Due: func(_ cuda.Result, f func()) { finished = f }})
	want(t, c.Free(a, nil), cuda.Success)
	_, r = c.Alloc(8 << 20)
	want(t, r, cuda.ErrorOutOfMemory)
	finished()
	alloc(t, c, 8<<20)
	w := newWaiter()
	c.Destroy(func() { w <- 0 })
	w.wait(t)
	if n := d.MemoryUsed(); n != 0 || used.Load() != 0 {
		t.Fatal("after the end:", n, used.Load())
	}
}

func TestOneAccelerator(t *testing.T) {
	page := newPage(t, engine.Options{Memory: 64 << 20})
	var inside atomic.Int32
	var mu sync.Mutex
	var used []accel.Usage
	var all sync.WaitGroup
	for range 2 {
		_, c := open(t, page.share)
		m := goModule(c, 0, func(*run) *fault {
			if inside.Add(1) != 1 {
				t.Error("two kernels at once")
			}
			time.Sleep(10 * time.Microsecond)
			inside.Add(-1)
			return nil
		})
		for range 200 {
			all.Add(1)
			want(t, c.Submit(c.DefaultStream(), launchOf(m), func(_ cuda.Result, u accel.Usage) {
				mu.Lock()
				used = append(used, u)
				mu.Unlock()
				all.Done()
			}), cuda.Success)
		}
	}
	all.Wait()
	var sum int64
	for _, u := range used {
		sum += u.End - u.Start
	}
	if busy := page.engines.Total()[engine.Compute]; busy < sum*95/100 || busy > sum*105/100+1000 {
		t.Errorf("the token was held for %d ns, %d ns were reported", busy, sum)
	}
}
