package gate

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/test/overwrite"
	"pegasus/test/seeds"
)

// A worker that keeps the page's lock delays neither the reaping of another worker nor, beyond the daemon's patience,
// the clearing of segments.
func TestLockKeptByALivingWorker(t *testing.T) {
	p, b, m := fixture(t)
	dead := member(t, p, b)
	dead.Reserve(DeviceMemory, 70)
	m.Reserve(DeviceMemory, 7)
	for _, holder := range []uint32{uint32(m.index) + 1, Slots} {
		p.at.slot[holder-1].pid.Store(uint32(os.Getpid()))
		p.at.lock.Store(holder)
		done := make(chan error)
		go func() {
			p.Reap(dead.index)
			done <- p.ClearSegments(&bank{}, time.Millisecond)
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrLocked) {
				t.Errorf("holder %d: clearing returns %v, want %v", holder, err, ErrLocked)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("holder %d: the daemon waits for a worker", holder)
		}
	}
	if used, _ := p.Memory(DeviceMemory); used != 7 {
		t.Errorf("%d bytes are used, want 7", used)
	}
}

// No value of the lock word makes the daemon wait for longer than its patience, or fail.
func TestLockWordRewritten(t *testing.T) {
	p, _, _ := fixture(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for r := rand.New(rand.NewPCG(seeds.Fixed(t), 0)); ; {
			select {
			case <-stop:
				return
			default:
				p.at.lock.Store([]uint32{1, 2, Slots, daemonHolder, math.MaxUint32, r.Uint32()}[r.IntN(6)])
			}
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			p.ClearSegments(&bank{}, time.Millisecond)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("the daemon waits for a worker")
	}
	close(stop)
	<-stopped
}

// A worker's changes of the words that open gates are reported and repaired.
func TestWordsOfTheDaemonChanged(t *testing.T) {
	p, _, m := fixture(t)
	p.SetInFlightLimit(5)
	p.Tick(Now() + int64(time.Hour))
	p.Grant(Terms{Classes: AllClasses, Until: Now() + int64(time.Hour), Budget: 1000, Requests: 7})
	m.Finish(try(t, m, Compute, 1, Admitted), usage(0, 1))
	p.Revoke(AllClasses)
	if !p.Intact() {
		t.Fatal("a page that a worker used as it should is not intact")
	}
	h := &p.at.header
	for name, change := range map[string]func(){
		"terms":      func() { h.leases[1].terms.Store(termOpen) },
		"deadline":   func() { h.leases[0].deadline.Store(Forever) },
		"limit":      func() { h.inFlightLimit.Store(0) },
		"alive":      func() { h.aliveUntil.Store(1) },
		"version":    func() { h.version++ },
		"generation": func() { h.generation.Add(7) },
	} {
		change()
		if p.Intact() {
			t.Errorf("%s: the change is not seen", name)
		}
		p.Mend()
		if !p.Intact() {
			t.Errorf("%s: the change is not mended", name)
		}
		try(t, m, Compute, 1, Closed)
	}
}

// Whatever a page contains, the daemon's methods return, and their figures can be summed without overflow.
func FuzzPage(f *testing.F) {
	f.Add(uint64(1), true)
	f.Add(uint64(2), false)
	f.Fuzz(func(t *testing.T, seed uint64, everywhere bool) {
		p, b, m := fixture(t)
		member(t, p, b)
		random := rand.New(rand.NewPCG(seed, 0))
		reader := NewReader(p)
		page := p.mem
		if !everywhere { // where it is likelier to matter
			page = p.mem[:headerBytes+2*slotBytes]
		}
		for range 20 {
			overwrite.Words(page, nil, random, 100)
			w := p.Look()
			for _, sum := range []int64{w.Paused, w.InFlight, w.Heads[0].Predicted, w.Heads[1].Predicted} {
				if sum < 0 || sum > maxTime*Slots*4 {
					t.Fatalf("work %+v", w)
				}
			}
			if w.IdleSince < 0 || w.IdleSince > Now() {
				t.Fatalf("idle since %d", w.IdleSince)
			}
			p.Intact()
			p.Mend()
			p.Occupants()
			reader.Read(func(Noted) {})
			for i := range Slots {
				p.Statistics(i)
				p.Holds(i)
			}
			p.ClearSegments(&bank{}, time.Microsecond)
			p.Reap(random.IntN(Slots))
			if bytes := p.SegmentBytes(); bytes > 2*Segments*SegmentStore {
				t.Fatalf("segments of %d bytes", bytes)
			}
			p.Grant(always)
			m.Try(Compute, 1, false)
		}
	})
}

// A file that can shrink is rejected as a page: it could crash the daemon.
func TestFileThatCanShrink(t *testing.T) {
	fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "page")
	defer f.Close()
	p, _, _ := fixture(t)
	if err := f.Truncate(pageBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(p.mem[:headerBytes], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(f); !errors.Is(err, ErrPage) {
		t.Errorf("mapped: %v", err)
	}
}
