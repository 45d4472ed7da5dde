package residence

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// newSlowMachine returns a machine for waits of minutes of virtual time.
func newSlowMachine(t *testing.T, room, area uint64, n int) *machine {
	m := newMachine(t, room, area, n)
	m.tick = time.Millisecond
	return m
}

func closeAll(m *machine) {
	for _, p := range m.processes {
		p.set.Close()
	}
}

func add(t *testing.T, p *process, addr, n uint64) {
	t.Helper()
	if err := p.set.Add(addr, n, false, nil); err != nil {
		t.Fatal(err)
	}
}

// compute executes a kernel that takes a time.
func (p *process) compute(d time.Duration) {
	if err := p.set.BeginKernel(nil); err != nil {
		p.m.t.Errorf("process %d: %v", p.id, err)
		return
	}
	time.Sleep(d)
	p.set.End(true)
}

// keeps fails the test unless the process has its n guaranteed bytes, and none were requested.
func (p *process) keeps(n uint64) {
	p.m.t.Helper()
	if p.resident != n || p.m.pressing > 0 {
		p.m.t.Errorf("%d of %d guaranteed bytes are on the device, after %d requests for them", p.resident, n, p.m.pressing)
	}
}

// A process that stopped while it waits, by SIGSTOP or a debugger, delays another one once, not at each launch.
func TestStoppedHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 2)
		a, s := m.processes[0], m.processes[1]
		s.Queue() // and never runs again
		for i := range uint64(3) {
			began := time.Now()
			add(t, a, i*100, 10)
			if err := a.set.BeginKernel(nil); err != nil {
				t.Fatal(err)
			}
			a.set.End(true)
			most := time.Duration(0)
			if i == 0 {
				most = turn + slice
			}
			if d := time.Since(began); d > most {
				t.Errorf("launch %d on a device with %d free bytes took %v, want at most %v", i, a.Free(), d, most)
			}
		}
		closeAll(m)
	})
}

// An allocation beside a kernel gets free bytes, although another process waits for more: that one waits for the kernel,
// which ends only after the allocation.
func TestAddBesideAKernelThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 2)
		c, h := m.processes[0], m.processes[1]
		add(t, c, 0, 60)
		add(t, h, 0, 60)
		if !c.set.TryBegin(true) {
			t.Fatal("away")
		}
		var all sync.WaitGroup
		all.Go(func() { h.compute(0) })
		time.Sleep(time.Millisecond)
		began := time.Now()
		err := c.set.Add(1000, 10, false, nil)
		if d := time.Since(began); err != nil || d > patience {
			t.Errorf("Add beside a kernel, with 40 free bytes: %v after %v", err, d)
		}
		c.set.End(true)
		all.Wait()
		closeAll(m)
	})
}

// As accel/nvidia allocates: Add within a request. The kernel beside it ends meanwhile.
func TestAddInARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 2)
		c, h := m.processes[0], m.processes[1]
		add(t, c, 0, 60)
		add(t, h, 0, 60)
		if !c.set.TryBegin(true) {
			t.Fatal("away")
		}
		var all sync.WaitGroup
		all.Go(func() { h.compute(0) })
		time.Sleep(time.Millisecond)
		all.Go(func() {
			c.set.Begin()
			defer c.set.End(false)
			began := time.Now()
			err := c.set.Add(1000, 30, false, nil)
			if d := time.Since(began); err != nil || d > patience {
				t.Errorf("C's Add: %v after %v", err, d)
			}
		})
		time.Sleep(time.Millisecond)
		c.set.End(true) // no kernel of C runs any more
		all.Wait()
		closeAll(m)
	})
}

// As accel/soft allocates: Add outside of a request. The kernel ends while Add waits; another process's kernel takes long.
func TestAddOutlivesAKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 2)
		c, h := m.processes[0], m.processes[1]
		add(t, c, 0, 60)
		add(t, h, 0, 80)
		if !c.set.TryBegin(true) {
			t.Fatal("away")
		}
		var all sync.WaitGroup
		all.Go(func() { h.compute(30 * time.Second) })
		time.Sleep(time.Millisecond)
		all.Go(func() {
			began := time.Now()
			err := c.set.Add(1000, 30, false, nil)
			if d := time.Since(began); err != nil || d > patience {
				t.Errorf("C's Add (no kernel of C runs since 1 ms): %v after %v", err, d)
			}
		})
		time.Sleep(time.Millisecond)
		c.set.End(true)
		all.Wait()
		closeAll(m)
	})
}

// Two processes request room at once, from an owner that is busy throughout. A guaranteed one is idle.
func TestTwoRequestersBesideABusyOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 4)
		guaranteed, busy := m.processes[0], m.processes[1]
		guaranteed.share.Guarantee = 40
		for i, n := range []uint64{40, 60, 50, 50} {
			add(t, m.processes[i], 0, n)
		}
		busy.set.Begin()
		var all sync.WaitGroup
		for _, p := range m.processes[2:] {
			all.Go(func() {
				began := time.Now()
				err := p.set.BeginKernel(nil)
				t.Logf("process %d: %v after %v", p.id, err, time.Since(began))
				if err == nil {
					p.set.End(true)
				}
			})
		}
		all.Wait()
		guaranteed.keeps(40)
		busy.set.End(false)
		closeAll(m)
	})
}

// The same behind a stopped process, so that both make requests at a time.
func TestRequestersBehindAStoppedOne(t *testing.T) {
	for _, gap := range []time.Duration{0, 500 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(gap.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newSlowMachine(t, 100, 0, 5)
				guaranteed, busy := m.processes[0], m.processes[1]
				guaranteed.share.Guarantee = 40
				for i, n := range []uint64{40, 60, 50, 50} {
					add(t, m.processes[i], 0, n)
				}
				busy.set.Begin()
				m.processes[4].Queue() // stopped
				var all sync.WaitGroup
				for i, p := range m.processes[2:4] {
					all.Go(func() {
						time.Sleep(time.Duration(i) * gap)
						began := time.Now()
						err := p.set.BeginKernel(nil)
						t.Logf("process %d: %v after %v", p.id, err, time.Since(began))
						if err == nil {
							p.set.End(true)
						}
					})
				}
				all.Wait()
				guaranteed.keeps(40)
				busy.set.End(false)
				closeAll(m)
			})
		})
	}
}

// leaving is a ledger in which an owner's memory is freed between Free and Others, once.
type leaving struct {
	*process
	once *sync.Once
	then func()
}

func (l leaving) Others(to []Owner) []Owner {
	l.once.Do(l.then)
	return l.process.Others(to)
}

// An owner without a guarantee ends just before the owners are listed.
func TestOwnerEndsBeforeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 3)
		a, guaranteed, ends := m.processes[0], m.processes[1], m.processes[2]
		guaranteed.share.Guarantee = 40
		add(t, guaranteed, 0, 40)
		ends.ForceOccupy(60)
		l := leaving{a, new(sync.Once), func() { ends.Vacate(60) }}
		s := &Set{ledger: l}
		s.changed.L = &s.mu
		if err := s.Claim(50, nil); err != nil {
			t.Fatal(err)
		}
		if m.pressing > 0 {
			t.Errorf("%d requests for guaranteed bytes, with %d bytes free", m.pressing, a.Free())
		}
		closeAll(m)
	})
}

// A compromised worker that changes its place in the queue delays others for a limited time.
func TestForgedPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 2)
		a, foe := m.processes[0], m.processes[1]
		foe.locked(func() { foe.waits = -1 << 60 })
		add(t, a, 0, 10)
		over := make(chan struct{})
		go func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(5 * time.Second):
					foe.locked(func() { foe.waits++ })
				}
			}
		}()
		began := time.Now()
		err := a.set.BeginKernel(func() bool { return time.Since(began) > 10*time.Minute })
		if d := time.Since(began); err != nil || d > mostTurns*turn+slice {
			t.Errorf("%v after %v, with %d bytes free", err, d, a.Free())
		}
		close(over)
		if err == nil {
			a.set.End(true)
		}
		closeAll(m)
	})
}

// Errors and panics leave no place in the queue.
func TestUnqueuedAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 2)
		a, b := m.processes[0], m.processes[1]
		a.ForceOccupy(100) // so that it begins away
		add(t, b, 0, 10)
		add(t, b, 100, 20)
		a.Vacate(100)
		b.fails = errors.New("broken")
		if err := b.set.BeginKernel(nil); err == nil {
			t.Error("no error")
		}
		if b.waits != 0 || b.resident != 0 || b.set.Away() != 30 {
			t.Errorf("waits %d, resident %d, away %d", b.waits, b.resident, b.set.Away())
		}
		b.fails = nil
		if err := b.set.BeginKernel(nil); err != nil || b.resident != 30 {
			t.Error(err)
		}
		b.set.End(true)
		func() {
			defer func() { recover() }()
			a.set.Claim(90, func() bool { panic("stop") })
		}()
		if a.waits != 0 {
			t.Error("a panicking stop leaves a place in the queue")
		}
		a.set.Remove(1) // r.mu is free
		closeAll(m)
	})
}

// A kernel waits no longer once the memory that it waits for is freed.
func TestFreedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 2)
		a, b := m.processes[0], m.processes[1]
		add(t, b, 0, 100)
		add(t, a, 0, 50)
		b.set.Begin()
		var err error
		var all sync.WaitGroup
		began := time.Now()
		all.Go(func() { err = a.set.BeginKernel(nil) })
		time.Sleep(time.Millisecond)
		a.set.Remove(0)
		all.Wait()
		if err != nil || time.Since(began) > patience {
			t.Errorf("a kernel without any memory: %v after %v", err, time.Since(began))
		}
		b.set.End(false)
		closeAll(m)
	})
}

// An owner serves the present request, not one that was withdrawn while it was busy.
func TestWithdrawnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 2)
		c, h := m.processes[0], m.processes[1]
		c.share.Guarantee = 40
		add(t, c, 0, 10)
		add(t, c, 100, 40)
		c.set.Begin()
		h.Ask(Ask{Owner: 0, Bytes: 50, Pressing: true})
		time.Sleep(time.Millisecond)
		h.Withdraw(0)
		h.Ask(Ask{Owner: 0, Bytes: 5})
		c.set.End(false)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		c.locked(func() {
			if c.resident < 40 {
				t.Errorf("%d bytes of 40 guaranteed ones are left after a request for 5 of the others", c.resident)
			}
		})
		closeAll(m)
	})
}

// A busy owner ends its wait for a request after maxWait + slice, and marks the present request as answered, also if another
// requester sent it meanwhile. That gives the second requester no guaranteed bytes.
func TestAnswerToAnEarlierRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 4)
		guaranteed, busy, first, second := m.processes[0], m.processes[1], m.processes[2], m.processes[3]
		guaranteed.share.Guarantee = 40
		add(t, guaranteed, 0, 40)
		add(t, busy, 0, 60)
		add(t, first, 0, 50)
		add(t, second, 0, 50)
		busy.set.Begin() // for a minute
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() { // its context is destroyed after 5 s
			err := first.set.BeginKernel(func() bool { return time.Since(began) > 5*time.Second })
			t.Logf("first: %v at %v", err, time.Since(began))
		})
		all.Go(func() {
			time.Sleep(time.Second)
			err := second.set.BeginKernel(nil)
			t.Logf("second: %v at %v", err, time.Since(began))
			if err == nil {
				second.set.End(true)
			}
		})
		all.Go(func() {
			for m.pressed() == 0 && time.Since(began) < 30*time.Second {
				time.Sleep(time.Millisecond)
			}
			t.Logf("%d requests for guaranteed bytes at %v", m.pressed(), time.Since(began))
		})
		all.Wait()
		guaranteed.keeps(40)
		busy.set.End(false)
		closeAll(m)
	})
}

func (m *machine) pressed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pressing
}

// The same with one requester, to which another owner gives a part in between.
func TestAnswerAfterAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 100, 0, 4)
		guaranteed, busy, other, asks := m.processes[0], m.processes[1], m.processes[2], m.processes[3]
		guaranteed.share.Guarantee = 40
		add(t, guaranteed, 0, 40)
		add(t, busy, 0, 50)
		add(t, other, 0, 10)
		add(t, asks, 0, 50)
		busy.set.Begin()
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			err := asks.set.BeginKernel(nil)
			t.Logf("%v at %v", err, time.Since(began))
			if err == nil {
				asks.set.End(true)
			}
		})
		all.Go(func() { // 10 bytes are freed at 5 s
			other.set.Begin()
			time.Sleep(5 * time.Second)
			other.set.End(false)
		})
		all.Wait()
		guaranteed.keeps(40)
		busy.set.End(false)
		closeAll(m)
	})
}

// A process that makes progress for longer than turn gets its room before a process that came later.
func TestProgressOutlastsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 90, 0, 4)
		busy, x, h, p := m.processes[0], m.processes[1], m.processes[2], m.processes[3]
		add(t, busy, 0, 10)
		busy.set.Begin()
		x.ForceOccupy(80)
		x.share.Fixed = 80
		go func() { // progress every 3 s
			for range 5 {
				time.Sleep(3 * time.Second)
				x.Vacate(16)
			}
			busy.set.End(false)
		}()
		add(t, h, 0, 90)
		add(t, p, 0, 30)
		began := time.Now()
		var all sync.WaitGroup
		var hAt, pAt time.Duration
		all.Go(func() {
			if err := h.set.BeginKernel(nil); err != nil {
				t.Errorf("the head at %v: %v", time.Since(began), err)
				hAt = time.Since(began)
				return
			}
			hAt = time.Since(began)
			h.set.End(true)
		})
		all.Go(func() {
			time.Sleep(time.Second)
			if err := p.set.BeginKernel(nil); err != nil {
				t.Errorf("the second: %v", err)
				return
			}
			pAt = time.Since(began)
			time.Sleep(20 * time.Second)
			p.set.End(true)
		})
		all.Wait()
		t.Logf("head %v, second %v", hAt, pAt)
		if pAt < hAt {
			t.Errorf("the second got room at %v, the head, which made progress, at %v", pAt, hAt)
		}
		closeAll(m)
	})
}

// An owner with one allocation, which exceeds its guarantee, can evict it only below the guarantee.
func TestAllocationBeyondTheGuarantee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSlowMachine(t, 20, 0, 3)
		a, b, c := m.processes[0], m.processes[1], m.processes[2]
		a.share.Guarantee = 10
		c.share.Guarantee = 4
		add(t, a, 0, 12)
		add(t, c, 0, 4)
		add(t, b, 0, 10)
		began := time.Now()
		if err := b.set.BeginKernel(nil); err != nil {
			t.Errorf("%v after %v", err, time.Since(began))
		} else {
			b.set.End(true)
		}
		if d := time.Since(began); a.resident != 0 || c.resident != 4 || d < patience || d > patience+2*slice {
			t.Errorf("after %v %d and %d bytes are left, want 0 and 4 after %v", d, a.resident, c.resident, patience)
		}
		closeAll(m)
	})
}
