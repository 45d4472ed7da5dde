package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/test/overwrite"
	"pegasus/test/seeds"
)

// scribbled starts a page with honest workers that take turns at a token, and a hostile one that overwrites n words at
// once, repeatedly. The daemon mends the page. The returned function ends the writing.
func scribbled(t *testing.T, n int) (turns *atomic.Int64, quiet func()) {
	t.Helper()
	m, _ := newPages(t, Options{Memory: 1 << 30})
	e, _ := arbitrate(t, m).domain(t)
	turns = new(atomic.Int64)
	var stop atomic.Bool
	var honest, hostile sync.WaitGroup
	for range 4 {
		w := register(t, m, e)
		honest.Go(func() {
			for !stop.Load() {
				if _, ok := w.Acquire(Compute, &stop); ok {
					time.Sleep(100 * time.Microsecond)
					w.Release(Compute)
					turns.Add(1)
				}
			}
			unix.Close(w.lock)
		})
	}
	honest.Go(func() { // the daemon
		for !stop.Load() {
			e.Mend()
			m.Mend()
			e.Sweep()
			m.Sweep()
			e.Reap(rand.IntN(100))
			e.Charge(burst)
			e.Total()
			e.Charged()
			e.Holder(Compute)
			m.Used()
			m.KeepCommons(nil)
			time.Sleep(5 * time.Millisecond)
		}
	})
	calm := make(chan struct{})
	random := rand.New(rand.NewPCG(seeds.Fixed(t), 0))
	hostile.Go(func() {
		engines, memory := e.mem[64:], m.mem[64:] // OpenEngines and Open checked magic and version before
		for {
			select {
			case <-calm:
				return
			default:
				overwrite.Words(engines, nil, random, n)
				overwrite.Words(memory, nil, random, n)
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	quiet = sync.OnceFunc(func() { close(calm); hostile.Wait() })
	t.Cleanup(func() {
		quiet()
		stop.Store(true)
		ended := make(chan struct{})
		go func() { honest.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Error("a worker or the daemon waits for ever")
		}
	})
	return turns, quiet
}

// Whatever a worker writes into the page, the daemon and the other workers don't fail, and they continue after it has
// ended.
func TestHostilePage(t *testing.T) {
	for _, words := range []int{1, 100, 10000} {
		turns, quiet := scribbled(t, words)
		time.Sleep(300 * time.Millisecond)
		during := turns.Load()
		quiet()
		after := turns.Load()
		for limit := time.Now().Add(20 * time.Second); turns.Load() < after+100; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%d words at once: %d turns after it has ended, %d while it went on", words, turns.Load()-after, during)
			}
		}
		t.Logf("%d words at once: %d turns while it went on", words, during)
	}
}

// A queue with a ticket that no process claimed, or one of the future, is reset.
func TestQueueMadeAnew(t *testing.T) {
	for name, damage := range map[string]func(q *tokenWords){
		"tail beyond":     func(q *tokenWords) { q.tail.Store(1 << 40) },
		"serving beyond":  func(q *tokenWords) { q.serving.Store(1 << 40) },
		"both far":        func(q *tokenWords) { q.serving.Store(1 << 35); q.tail.Store(1 << 35) },
		"unclaimed":       func(q *tokenWords) { q.tail.Add(3) },
		"word of another": func(q *tokenWords) { q.slot(q.tail.Load()).word.Store(12345) },
		"end to come":     func(q *tokenWords) { q.slot(q.serving.Load() - 1).end.Store(Now() + 1e18) },
	} {
		t.Run(name, func(t *testing.T) {
			m, e := newPages(t, Options{Memory: 1 << 30})
			w := register(t, m, e)
			defer w.Close()
			for range 10 {
				w.Acquire(Compute, nil)
				w.Release(Compute)
			}
			e.Mend()
			damage(&e.l.tokens[Compute])
			for limit := time.Now().Add(20 * time.Second); !e.l.tokens[Compute].intact(e.l.tokens[Compute].serving.Load()) || e.damage[Compute].since != 0; e.Mend() {
				if time.Now().After(limit) {
					t.Fatal("the queue stays damaged")
				}
				time.Sleep(5 * time.Millisecond)
			}
			e.Mend()
			before := e.Total()[Compute]
			if _, ok := w.Acquire(Compute, nil); !ok {
				t.Fatal("the token can't be had")
			}
			time.Sleep(2 * time.Millisecond)
			w.Release(Compute)
			if held := e.Total()[Compute] - before; held < 1e6 {
				t.Errorf("2 ms count as %d ns", held)
			}
		})
	}
}

// Damage that no worker can meet before the front of its queue changes is found and mended once the queue is used.
func TestRestingQueueDamaged(t *testing.T) {
	m, e := newPages(t, Options{Memory: 1 << 30})
	w := register(t, m, e)
	defer w.Close()
	use := func() {
		t.Helper()
		if _, ok := w.Acquire(Compute, nil); !ok {
			t.Fatal("the token can't be had")
		}
		w.Release(Compute)
	}
	use()
	e.Mend()
	q, d := &e.l.tokens[Compute], &e.damage[Compute]
	q.slot(q.tail.Load() + 5).word.Store(12345)
	if e.Mend(); d.since != 0 {
		t.Error("a queue that rests is checked again")
	}
	use()
	for limit := time.Now().Add(20 * time.Second); e.Mend() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the queue stays damaged")
		}
	}
	for range 10 {
		use()
	}
}

// A process that has died is reaped from a page in which a hostile worker has lowered the number of places in use.
func TestReapBeyondHigh(t *testing.T) {
	m, e := newPages(t, Options{Memory: 1 << 30})
	register(t, m, e)
	w := register(t, m, e)
	if _, ok := w.Acquire(Compute, nil); !ok {
		t.Fatal("the token can't be had")
	}
	unix.Close(w.lock) // as the kernel does at its end
	e.l.high.Store(0)
	e.Mend()
	e.Reap(ownerPid(w.me))
	if pid := e.Holder(Compute); pid != 0 {
		t.Errorf("process %d, which has died, holds the token", pid)
	}
}

// BenchmarkMend is a check of a domain's page that has not changed.
func BenchmarkMend(b *testing.B) {
	e, err := CreateEngines()
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	for b.Loop() {
		e.Mend()
	}
}
