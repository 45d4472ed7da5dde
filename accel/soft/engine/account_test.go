package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/test/seeds"
)

// burst exceeds the time for which any test holds an engine at once.
const burst = 3600e9

// clockwork is a domain with workers that use a clock that the test sets.
type clockwork struct {
	t       *testing.T
	memory  *Memory
	engines *Engines
	now     int64
}

func newClockwork(t *testing.T) *clockwork {
	m, err := Create(Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := CreateEngines()
	if err != nil {
		t.Fatal(err)
	}
	return &clockwork{t, m, e, 1000}
}

func (c *clockwork) close() {
	c.engines.Close()
	c.memory.Close()
}

func (c *clockwork) worker() *Worker {
	c.t.Helper()
	w, err := c.memory.Register(c.engines, func() int64 { return c.now })
	if err != nil {
		c.t.Fatal(err)
	}
	return w
}

// held returns for how long a token was held, by tickets that are over.
func (c *clockwork) held(k Token) int64 { return c.engines.Total()[k] }

// queue claims a ticket as Acquire does, without waiting for it.
func (w *Worker) queue(k Token) {
	w.ask(k)
	w.ticket[k], _ = w.engines.l.tokens[k].claim(w.index, w.epoch, false)
}

// die leaves a worker's slot in the state of a killed process.
func (w *Worker) die() { unix.Close(w.lock) }

// paused runs f until it has made a number of writes, and returns a function that lets it run to its end. If f makes
// fewer writes, it has ended, and pause is false.
func paused(writes int, f func()) (resume func(), pause bool) {
	stopped, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	passed = func() {
		if writes--; writes < 0 {
			passed = nil // those that follow are another process's, or after the pause
			close(stopped)
			<-goOn
		}
	}
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-stopped:
		return func() { close(goOn); <-done }, true
	case <-done:
		passed = nil
		return func() {}, false
	}
}

// killed runs f until it has made a number of writes, where its process dies. It reports whether f had more writes to
// make.
func killed(writes int, f func()) (died bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		passed = func() {
			if writes--; writes < 0 {
				died = true
				runtime.Goexit()
			}
		}
		f()
	}()
	<-done
	passed = nil
	return died
}

// A holder dies before any of its writes in Release, the process that finds it dead dies before any of its own, and a
// third one finishes. All of the time is charged, once: the dead one's up to its end, whichever of the three determined
// that, and that of the next in the queue from then on.
func TestDeathWhileHandingOver(t *testing.T) {
	for first, more := 0, true; more; first++ {
		for second, again := 0, true; again; second++ {
			c := newClockwork(t)
			defer c.close()
			a, b := c.worker(), c.worker()
			since, _ := a.Acquire(Compute, nil)
			c.now = 1100
			b.queue(Compute)
			n := a.ticket[Compute]
			c.now = 2000
			more = killed(first, func() { a.Release(Compute) })
			a.die()
			c.now = 3000
			again = killed(second, func() { c.engines.recover(Compute, c.now) })
			c.engines.recover(Compute, 4000)
			where := fmt.Sprintf("deaths before writes %d and %d", first, second)
			if got := c.engines.l.tokens[Compute].serving.Load(); got != n+1 {
				t.Fatalf("%s: ticket %d is served, want %d", where, got, n+1)
			}
			end := c.engines.l.tokens[Compute].slot(n).end.Load()
			if got := c.held(Compute); got != end-since || end < 2000 || end > 4000 {
				t.Errorf("%s: the dead worker held the token from %d to %d and was charged %d", where, since, end, got)
			}
			c.now = 5000
			b.Release(Compute)
			if got := c.held(Compute); got != 5000-since {
				t.Errorf("%s: charged %d ns of %d", where, got, 5000-since)
			}
		}
	}
}

// A process is stopped before any of its writes while it ends a dead holder's ticket, perhaps after another one that
// has begun and died. A third one finishes, the dead worker's place gets a new worker, and the queue advances for so
// long that the slot of the ticket is reused. When the process continues it changes nothing.
func TestLateEnder(t *testing.T) {
	for _, later := range []int{0, 1, 2, slotsPerToken - 1, slotsPerToken, slotsPerToken + 1, 2*slotsPerToken + 1} {
		for _, begun := range []int{0, 2, 4} {
			for writes, more := 0, true; more; writes++ {
				more = lateEnder(t, later, begun, writes)
			}
		}
	}
}

func lateEnder(t *testing.T, later, begun, writes int) (more bool) {
	c := newClockwork(t)
	defer c.close()
	a, b, d := c.worker(), c.worker(), c.worker()
	for range 5 { // the tally is not new
		for _, w := range []*Worker{a, b, d} {
			w.Acquire(Compute, nil)
			c.now += 10
			w.Release(Compute)
		}
	}
	a.Acquire(Compute, nil)
	n := a.ticket[Compute]
	c.now += 100
	a.die()
	killed(begun, func() { c.engines.end(Compute, n, c.now) })
	c.now += 50
	resume, more := paused(writes, func() { c.engines.end(Compute, n, c.now) })
	c.now += 50
	c.engines.recover(Compute, c.now)
	c.engines.Sweep()
	c.worker()
	for i := range later {
		w := []*Worker{b, d}[i%2]
		w.Acquire(Compute, nil)
		c.now += 7
		w.Release(Compute)
	}
	d.Acquire(Compute, nil)
	served := c.engines.l.tokens[Compute].serving.Load()
	want := c.held(Compute)
	resume()
	where := fmt.Sprintf("%d tickets later, begun by %d writes, before write %d", later, begun, writes)
	if got := c.held(Compute); got != want {
		t.Errorf("%s: charged are %v, before it went on %v", where, got, want)
	}
	if got := c.engines.l.tokens[Compute].serving.Load(); got != served {
		t.Errorf("%s: ticket %d is served, before it went on %d", where, got, served)
	}
	c.now += 13
	d.Release(Compute)
	if got := c.held(Compute) - want; got != 13 {
		t.Errorf("%s: the holder was charged %d ns of 13", where, got)
	}
	return more
}

// While a process ends a dead worker's ticket, another process reaps that worker, and dies. The place of the ticket is free
// for a later one all the same.
func TestPlaceIsFreed(t *testing.T) {
	for writes, more := 0, true; more; writes++ {
		c := newClockwork(t)
		defer c.close()
		a := c.worker()
		a.Acquire(Compute, nil)
		n := a.ticket[Compute]
		a.die()
		var resume func()
		resume, more = paused(writes, func() { c.engines.end(Compute, n, c.now) })
		killed(0, func() { c.engines.dropAll(Compute, a.index, a.epoch) })
		resume()
		if w := c.engines.l.tokens[Compute].slot(n).word.Load(); w != freeWord(n+slotsPerToken) {
			t.Errorf("before write %d: the place has word %#x", writes, w)
		}
	}
}

// The time between a release and the moment at which the next in the queue notices is charged to the next one, also if
// it is found dead; time in which no ticket is claimed is not charged.
func TestHandOverIsCharged(t *testing.T) {
	c := newClockwork(t)
	defer c.close()
	a, b, d := c.worker(), c.worker(), c.worker()
	a.Acquire(Compute, nil)
	b.queue(Compute)
	d.queue(Compute)
	c.now = 2000
	a.Release(Compute)
	c.now = 5000 // b has not noticed yet, and never will
	b.die()
	c.engines.recover(Compute, c.now)
	if got := c.held(Compute); got != 1000+3000 {
		t.Errorf("charged %d ns, want 1000, and 3000 of the dead successor", got)
	}
	c.now = 9000
	if since := d.got(Compute, d.ticket[Compute], 1000); since < 5000 {
		t.Errorf("the next one has the token since %d, before the reap", since)
	}
}

// The holder may report since when it needs the engine no more.
func TestReleaseAt(t *testing.T) {
	c := newClockwork(t)
	defer c.close()
	a, b := c.worker(), c.worker()
	a.Acquire(Compute, nil)
	b.queue(Compute)
	c.now = 3000
	if end := a.ReleaseAt(Compute, 2500); end != 2500 || c.held(Compute) != 1500 {
		t.Errorf("ended at %d, charged %d", end, c.held(Compute))
	}
	if end := b.ReleaseAt(Compute, 2000); end != 2501 || c.held(Compute) != 1501 { // before it had it
		t.Errorf("ended at %d, charged %d", end, c.held(Compute))
	}
	if since, _ := a.TryAcquire(Compute); since != 3000 {
		t.Errorf("got at %d, want 3000: the engine was idle", since)
	}
	a.Release(Compute)
}

// Waiters give up, or die in the queue; each nanosecond is still charged.
func TestAbandonedTickets(t *testing.T) {
	c := newClockwork(t)
	defer c.close()
	a := c.worker()
	since, _ := a.Acquire(Compute, nil)
	var all []*Worker
	for range 6 {
		w := c.worker()
		w.queue(Compute)
		all = append(all, w)
	}
	all[0].abandon(Compute, all[0].ticket[Compute])
	all[2].abandon(Compute, all[2].ticket[Compute])
	all[3].die()
	c.engines.Sweep()
	c.now = 2000
	a.Release(Compute)
	all[1].Release(Compute)
	c.now = 3000
	all[4].abandon(Compute, all[4].ticket[Compute]) // it is its turn
	c.now = 4000
	all[5].Release(Compute)
	if held := c.held(Compute); held != 4000-since {
		t.Errorf("held for %d ns of %d", held, 4000-since)
	}
}

// The account of a page continues when a daemon takes over, and charges nothing twice.
func TestAccounts(t *testing.T) {
	c := newClockwork(t)
	defer c.close()
	w := c.worker()
	use := func(ns int64) {
		w.Acquire(CopyIn, nil)
		c.now += ns
		w.Release(CopyIn)
		w.Charge(CopyOut, 2*ns)
	}
	want := func(what string, got, want Times) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	use(100)
	want("charge", c.engines.Charge(burst), Times{0, 100, 200})
	want("charged", c.engines.Charged(), Times{0, 100, 200})
	use(10)
	fd, err := unix.Dup(c.engines.FD())
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenEngines(fd)
	if err != nil || again.Opened() != c.engines.Opened() {
		t.Fatal("another account", err)
	}
	defer again.Close()
	want("charge of the next daemon", again.Charge(burst), Times{0, 10, 20})
	want("total", again.Total(), Times{0, 110, 220})
}

// A domain is not charged for more time than has passed, for any values that a worker has written into its page, and
// for no less than the observed time of its holds; the daemon reports the forgery.
func TestChargeCannotBeForged(t *testing.T) {
	_, e := newPages(t, Options{})
	start := Now()
	e.Charge(burst)
	e.l.added[Compute].Store(1 << 62)
	e.l.added[CopyIn].Store(-5)
	for range 3 {
		e.Charge(burst)
	}
	if got, most := e.Total(), Now()-e.Opened(); got[Compute] > most || got[CopyIn] != 0 {
		t.Errorf("charged %v in %d ns", got, most)
	}
	if e.unforge() {
		t.Error("forged, they say") // the time is only much
	}
	e.l.charged[CopyOut].Store(1 << 62)
	e.Charge(burst)
	if !e.unforge() || e.unforge() {
		t.Error("that the page was forged is not seen, or twice")
	}
	e.extra[CopyOut].Add(1000)
	for Now() < start+5000 {
	}
	if got := e.Charge(burst)[CopyOut]; got != 1000 {
		t.Errorf("charged %d ns, want the 1000 that were seen", got)
	}
}

// Time that the daemon has observed is charged for any later contents of the page, and is in the page for the next
// daemon. Time held while no daemon ran is charged, however long it is.
func TestSeenIsCharged(t *testing.T) {
	_, e := newPages(t, Options{})
	e.Charge(burst)
	e.l.added[Compute].Store(1 << 60)
	e.Charge(burst)
	e.l.added[Compute].Store(0)
	e.extra[Compute].Add(1000)
	for start := Now(); Now() < start+5000; {
	}
	if got := e.Charge(burst)[Compute]; got != 1000 {
		t.Errorf("charged %d ns, want the 1000 that were seen", got)
	}
	_, e = newPages(t, Options{})
	e.l.opened -= 500e9
	e.l.added[CopyIn].Store(400e9)
	var next Engines
	next.l = e.l
	next.account.open(e.l)
	if got := next.Charge(burst / 60)[CopyIn]; got != 400e9 {
		t.Errorf("charged %d ns of 400 s that were held without a daemon", got)
	}
}

// The time for which a domain holds a token is charged meanwhile, and all of it once.
func TestChargeWhileHeld(t *testing.T) {
	m, e := newPages(t, Options{})
	w := register(t, m, e)
	var charged int64
	for range 100 {
		w.Acquire(Compute, nil)
		for range 3 {
			for start := Now(); Now() < start+1000; {
			}
			if ns := e.Charge(burst)[Compute]; ns < 1000 {
				t.Fatalf("%d ns are charged of a token that was held for 1000", ns)
			} else {
				charged += ns
			}
		}
		w.Release(Compute)
		charged += e.Charge(burst)[Compute]
	}
	if total := e.Total()[Compute]; total != charged {
		t.Errorf("%d ns were charged, %d held", charged, total)
	}
}

// An engine that is held without a token for a worker that dies is charged up to the reap.
func TestExecutesAtDeath(t *testing.T) {
	c := newClockwork(t)
	defer c.close()
	w := c.worker()
	start := Now()
	w.Executes(Compute, start)
	w.die()
	c.engines.Sweep()
	c.engines.Sweep()
	if got := c.held(Compute); got <= 0 || got > Now()-start {
		t.Errorf("charged %d ns", got)
	}
}

// Processes of several domains are killed at random points while engines go from one to the next: the charges of all
// domains together are not more than the time that has passed, since no two held an engine at once, and nearly all of
// it, since there was always one that requested it.
func TestConservationUnderKills(t *testing.T) {
	seed := seeds.Fixed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	f := newFixture(t, Options{})
	a := arbitrate(t, f.memory)
	start := Now()
	var pages []*Engines
	for range 4 {
		e, _ := a.domain(t)
		pages = append(pages, e)
	}
	begin := func(domain int) *process {
		p := f.startIn(pages[domain])
		p.ask("forever", "going")
		return p
	}
	all := []*process{begin(0), begin(1), begin(2), begin(3)}
	rounds := 25
	if testing.Short() {
		rounds = 8
	}
	var charged int64
	charge := func() {
		for _, e := range pages {
			charged += e.Charge(burst)[Compute]
		}
	}
	for i := range rounds {
		time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
		d := random.IntN(len(all))
		all[d].kill()
		if i%2 == 0 {
			all[d].cmd.Wait()
			pages[d].Reap(all[d].pid())
		}
		charge()
		all[d] = begin(d)
	}
	for d, p := range all {
		p.kill()
		p.cmd.Wait()
		pages[d].Reap(p.pid())
	}
	charge()
	elapsed := Now() - start
	var held int64
	for _, e := range pages {
		held += e.Total()[Compute]
		if n := e.Charged()[Compute]; n != e.Total()[Compute] {
			t.Errorf("of %d ns of a domain %d were charged", e.Total()[Compute], n)
		}
	}
	if charged != held || held > elapsed || held == 0 {
		t.Errorf("of %d ns the engine was held for %d; charged were %d", elapsed, held, charged)
	}
}

// BenchmarkCharge is the charge of a domain that has not used its engines.
func BenchmarkCharge(b *testing.B) {
	e, err := CreateEngines()
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	for b.Loop() {
		e.Charge(burst)
	}
}
