package residence

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pegasus/internal/testkit"
)

// await waits until f returns true, and fails the test after 30 s.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	testkit.Eventually(t, what, f)
}

// A process that always executes a kernel yields when another process requests memory, and then evicts.
func TestYield(t *testing.T) {
	m := newMachine(t, 100, 0, 2)
	a, b := m.processes[0], m.processes[1]
	for _, p := range []*process{a, b} {
		if err := p.set.Add(0, 60, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if a.set.Wanted() || !a.set.TryBegin(true) {
		t.Fatal("nobody wants anything yet")
	}
	over := make(chan error, 1)
	go func() { over <- b.set.BeginKernel(nil) }()
	await(t, "it is wanted", a.set.Wanted)
	yielded := make(chan struct{})
	go func() { a.set.Yield(func() bool { return false }); close(yielded) }()
	a.set.End(true)
	<-yielded
	if err := <-over; err != nil || a.set.Away() != 60 || a.set.TryBegin(true) {
		t.Errorf("%v, %d bytes are away", err, a.set.Away())
	}
	b.set.End(true)
}

// A process whose queued kernels take longer than the requester's first wait evicts in a later one, though it launches
// the next kernels whenever nothing waits.
func TestLongQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, 100, 0, 2)
		a, b := m.processes[0], m.processes[1]
		for _, p := range []*process{a, b} {
			if err := p.set.Add(0, 60, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		var streams sync.WaitGroup
		for i := range 2 {
			streams.Go(func() {
				time.Sleep(time.Duration(i) * patience) // one stream's kernels overlap the other's
				for a.set.TryBegin(true) {
					time.Sleep(3 * patience)
					a.set.End(true)
					a.set.Yield(func() bool { return false })
				}
			})
		}
		time.Sleep(2 * patience)
		if err := b.set.BeginKernel(nil); err != nil {
			t.Fatal(err)
		}
		b.set.End(true)
		streams.Wait()
		for _, p := range m.processes {
			p.set.Close()
		}
	})
}

// BeginKernel and Yield can be stopped while they wait for a kernel that does not end. A request to a process ends after
// the longest wait of a requester, also if the requester died.
func TestAskedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, 100, 0, 2)
		a := m.processes[0]
		if err := a.set.Add(0, 60, false, nil); err != nil {
			t.Fatal(err)
		}
		if !a.set.TryBegin(true) {
			t.Fatal("nothing is away")
		}
		m.processes[1].Ask(Ask{Owner: 0, Bytes: 10}) // never withdrawn: the requester has died
		await(t, "it is wanted", a.set.Wanted)
		stop := make(chan struct{})
		stopped := func() bool {
			select {
			case <-stop:
				return true
			default:
				return false
			}
		}
		over := make(chan error, 1)
		go func() { over <- a.set.BeginKernel(stopped) }()
		go a.set.Yield(stopped)
		close(stop)
		a.set.Look()
		if err := <-over; err != nil && !errors.Is(err, ErrNoRoom) {
			t.Error(err)
		} else if err == nil {
			a.set.End(true)
		}
		await(t, "it is wanted no more", func() bool { return !a.set.Wanted() })
		if !a.set.TryBegin(true) || a.set.Away() != 0 {
			t.Errorf("%d bytes are away", a.set.Away())
		}
		a.set.End(true)
		a.set.End(true)
		for _, p := range m.processes {
			p.set.Close()
		}
	})
}

// While a kernel executes, TryAdd, which is called without the engine, adds no memory for which other processes would
// have to make room.
func TestTryAdd(t *testing.T) {
	m := newMachine(t, 100, 0, 2)
	a, b := m.processes[0], m.processes[1]
	if !a.set.TryAdd(0, 60) || !b.set.TryAdd(0, 60) || b.set.Away() != 60 {
		t.Fatalf("%d bytes are away of what there was no room for", b.set.Away())
	}
	if !a.set.TryBegin(true) {
		t.Fatal("nothing is away")
	}
	if a.set.TryAdd(1000, 60) || !a.set.TryAdd(1000, 40) || a.set.Away() != 0 {
		t.Errorf("beside a kernel %d bytes are away", a.set.Away())
	}
	a.set.End(true)
	if a.resident != 100 || b.resident != 0 {
		t.Errorf("%d and %d bytes are on the device", a.resident, b.resident)
	}
}

// Claim takes device memory without an allocation.
func TestClaim(t *testing.T) {
	m := newMachine(t, 100, 0, 2)
	a, b := m.processes[0], m.processes[1]
	if err := b.set.Add(0, 80, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.set.Claim(50, nil); err != nil || b.set.Away() != 80 || a.resident != 50 {
		t.Errorf("%v, %d bytes are away", err, b.set.Away())
	}
	a.Vacate(50)
}

// On an overcommitted device, Claim takes room step by step from the processes that exceed their guarantees, and takes
// no more than needed.
func TestOvercommitted(t *testing.T) {
	m := newMachine(t, 100, 0, 3)
	a, b, c := m.processes[0], m.processes[1], m.processes[2]
	b.share.Guarantee, b.share.Used = 50, -1
	for i := range uint64(5) {
		for _, p := range []*process{a, b} {
			if err := p.set.Add(i*100, 10, false, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.ForceOccupy(15) // as for the domains' own overhead, without a request to other processes
	if err := c.set.Claim(0, nil); err != nil || a.set.Away() != 20 || b.set.Away() != 0 {
		t.Errorf("%v, %d bytes are away, and %d of what was promised", err, a.set.Away(), b.set.Away())
	}
	c.ForceOccupy(15)
	if err := c.set.Claim(5, nil); err != nil || a.set.Away() != 40 || b.set.Away() != 0 {
		t.Errorf("%v, %d bytes are away, and %d of what was promised", err, a.set.Away(), b.set.Away())
	}
	c.Vacate(35)
}

// Add can be stopped while it waits, beside a kernel of its process, for room that another process is using.
func TestAddStopped(t *testing.T) {
	m := newMachine(t, 100, 0, 2)
	a, b := m.processes[0], m.processes[1]
	for _, p := range []*process{a, b} {
		if err := p.set.Add(0, 50, false, nil); err != nil {
			t.Fatal(err)
		}
		if !p.set.TryBegin(true) {
			t.Fatal("nothing is away")
		}
		defer p.set.End(true)
	}
	began := time.Now()
	stop := func() bool { return time.Since(began) > 20*time.Millisecond }
	if err := a.set.Add(1000, 30, false, stop); !errors.Is(err, ErrNoRoom) || errors.Is(err, ErrInUse) || a.resident != 50 {
		t.Errorf("%v, %d bytes are on the device", err, a.resident)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
}
