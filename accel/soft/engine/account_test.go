package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/test/seeds"
)

// clockwork is a page whose workers live by a clock that the test sets.
type clockwork struct {
	t    *testing.T
	page *Page
	now  int64
}

func newClockwork(t *testing.T) *clockwork {
	p, err := Create(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &clockwork{t, p, 1000}
}

// worker registers a worker of a domain with an account.
func (c *clockwork) worker(domain uint64) (*Worker, Account) {
	c.t.Helper()
	a, err := c.page.OpenAccount(domain)
	if err != nil {
		c.t.Fatal(err)
	}
	w, err := c.page.Register(func() int64 { return c.now })
	if err != nil {
		c.t.Fatal(err)
	}
	w.SetShare(domain, 0, 0)
	return w, a
}

// queue claims a ticket as Acquire does, without waiting for it.
func (w *Worker) queue(k Token) {
	w.ask(k)
	w.ticket[k], _ = w.page.l.tokens[k].claim(w.index, w.epoch, false)
}

// die leaves a worker's slot as its process does when it is killed.
func (w *Worker) die() { unix.Close(w.lock) }

// balanced checks that all of the time for which a token was held was charged, and returns it.
func (c *clockwork) balanced(k Token) int64 {
	c.t.Helper()
	held, charged, ok := c.page.Balance(k)
	if !ok || held != charged || held != c.page.BusyTime(k) {
		c.t.Errorf("token %d was held for %d ns, and %d ns were charged (%v)", k, held, charged, ok)
	}
	return held
}

// paused runs f until it has made a number of writes, and returns what has it go on to its end. Without more to write f has
// ended, and pause is false.
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

// killed runs f until it has made a number of writes, where its process dies. It reports whether f had more to write.
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

// A holder dies before any of its writes in Release, the process that finds it dead dies before any of its own, and a third one
// finishes. All of the time is charged, once, to the domain that held the engine: to the dead one up to its end, whichever of the
// three decided when that was, and to the next in the queue from then on.
func TestDeathWhileHandingOver(t *testing.T) {
	for first, more := 0, true; more; first++ {
		for second, again := 0, true; again; second++ {
			c := newClockwork(t)
			defer c.page.Close()
			a, charged := c.worker(1)
			b, others := c.worker(2)
			since, _ := a.Acquire(Compute, nil)
			c.now = 1100
			b.queue(Compute)
			n := a.ticket[Compute]
			c.now = 2000
			more = killed(first, func() { a.Release(Compute) })
			a.die()
			c.now = 3000
			again = killed(second, func() { c.page.recover(Compute, c.now) })
			c.page.recover(Compute, 4000)
			where := fmt.Sprintf("deaths before writes %d and %d", first, second)
			if got := c.page.l.tokens[Compute].serving.Load(); got != n+1 {
				t.Fatalf("%s: ticket %d is served, want %d", where, got, n+1)
			}
			end := c.page.l.tokens[Compute].slot(n).end.Load()
			if got := charged.Total()[Compute]; got != end-since || end < 2000 || end > 4000 {
				t.Errorf("%s: the dead worker held the token from %d to %d and was charged %d", where, since, end, got)
			}
			c.now = 5000
			b.Release(Compute)
			if got := others.Total()[Compute]; got != 5000-end {
				t.Errorf("%s: the next worker held the token from %d to 5000 and was charged %d", where, end, got)
			}
			if held := c.balanced(Compute); held != 5000-since {
				t.Errorf("%s: held for %d ns of %d", where, held, 5000-since)
			}
		}
	}
}

// A process is stopped before any of its writes while it ends a dead holder's ticket, perhaps after another one that has begun and
// died. A third one finishes, the dead worker's slot gets a new worker, and the queue goes on, for so long that the place of the
// ticket is used again. When the process goes on it changes nothing.
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
	defer c.page.Close()
	a, accountA := c.worker(1)
	b, accountB := c.worker(2)
	d, accountD := c.worker(3)
	for range 5 { // the tallies are not new
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
	killed(begun, func() { c.page.end(Compute, n, c.now) })
	c.now += 50
	resume, more := paused(writes, func() { c.page.end(Compute, n, c.now) })
	c.now += 50
	c.page.recover(Compute, c.now)
	c.page.Sweep()
	_, accountE := c.worker(4)
	for i := range later {
		w := []*Worker{b, d}[i%2]
		w.Acquire(Compute, nil)
		c.now += 7
		w.Release(Compute)
	}
	d.Acquire(Compute, nil)
	served := c.page.l.tokens[Compute].serving.Load()
	totals := func() [4]Times {
		return [4]Times{accountA.Total(), accountB.Total(), accountD.Total(), accountE.Total()}
	}
	want := totals()
	resume()
	where := fmt.Sprintf("%d tickets later, begun by %d writes, before write %d", later, begun, writes)
	if got := totals(); got != want {
		t.Errorf("%s: charged are %v, before it went on %v", where, got, want)
	}
	if got := c.page.l.tokens[Compute].serving.Load(); got != served {
		t.Errorf("%s: ticket %d is served, before it went on %d", where, got, served)
	}
	c.now += 13
	d.Release(Compute)
	if got := accountD.Total()[Compute] - want[2][Compute]; got != 13 {
		t.Errorf("%s: the holder was charged %d ns of 13", where, got)
	}
	c.balanced(Compute)
	return more
}

// The worker whose ticket a process ends is reaped meanwhile by another one, which dies. The place of the ticket is free for a
// later one all the same.
func TestPlaceIsFreed(t *testing.T) {
	for writes, more := 0, true; more; writes++ {
		c := newClockwork(t)
		defer c.page.Close()
		a, _ := c.worker(1)
		a.Acquire(Compute, nil)
		n := a.ticket[Compute]
		a.die()
		var resume func()
		resume, more = paused(writes, func() { c.page.end(Compute, n, c.now) })
		killed(0, func() { c.page.dropAll(Compute, a.index, a.epoch) })
		resume()
		if w := c.page.l.tokens[Compute].slot(n).word.Load(); w != freeWord(n+slotsPerToken) {
			t.Errorf("before write %d: the place has word %#x", writes, w)
		}
	}
}

// What passes between a release and the moment at which the next in the queue notices is the next one's time, also if it is
// found dead; what passes while no ticket is claimed belongs to no account.
func TestHandOverIsCharged(t *testing.T) {
	c := newClockwork(t)
	defer c.page.Close()
	a, _ := c.worker(1)
	b, account := c.worker(2)
	d, _ := c.worker(3)
	a.Acquire(Compute, nil)
	b.queue(Compute)
	d.queue(Compute)
	c.now = 2000
	a.Release(Compute)
	c.now = 5000 // b has not noticed yet, and never will
	b.die()
	c.page.recover(Compute, c.now)
	if got := account.Total()[Compute]; got != 3000 {
		t.Errorf("the dead successor was charged %d ns, want 3000", got)
	}
	c.now = 9000
	if since := d.got(Compute, d.ticket[Compute], 1000); since < 5000 {
		t.Errorf("the next one has the token since %d, before the reap", since)
	}
}

// The holder may say since when it needs the engine no more.
func TestReleaseAt(t *testing.T) {
	c := newClockwork(t)
	defer c.page.Close()
	a, mine := c.worker(1)
	b, next := c.worker(2)
	a.Acquire(Compute, nil)
	b.queue(Compute)
	c.now = 3000
	if end := a.ReleaseAt(Compute, 2500); end != 2500 || mine.Total()[Compute] != 1500 {
		t.Errorf("ended at %d, charged %d", end, mine.Total()[Compute])
	}
	if end := b.ReleaseAt(Compute, 2000); end != 2501 || next.Total()[Compute] != 1 { // before it had it
		t.Errorf("ended at %d, charged %d", end, next.Total()[Compute])
	}
	if since, _ := a.TryAcquire(Compute); since != 3000 {
		t.Errorf("got at %d, want 3000: the engine was idle", since)
	}
	a.Release(Compute)
	c.balanced(Compute)
}

// Waiters give up, or die in the queue; each nanosecond still belongs to an account.
func TestAbandonedTickets(t *testing.T) {
	c := newClockwork(t)
	defer c.page.Close()
	a, _ := c.worker(1)
	since, _ := a.Acquire(Compute, nil)
	var all []*Worker
	for i := range 6 {
		w, _ := c.worker(uint64(2 + i))
		w.queue(Compute)
		all = append(all, w)
	}
	all[0].abandon(Compute, all[0].ticket[Compute])
	all[2].abandon(Compute, all[2].ticket[Compute])
	all[3].die()
	c.page.Sweep()
	c.now = 2000
	a.Release(Compute)
	all[1].Release(Compute)
	c.now = 3000
	all[4].abandon(Compute, all[4].ticket[Compute]) // it is its turn
	c.now = 4000
	all[5].Release(Compute)
	if held := c.balanced(Compute); held != 4000-since {
		t.Errorf("held for %d ns of %d", held, 4000-since)
	}
}

// An account goes on when a daemon takes over, charges nothing twice, and starts at 0 for the next domain in its place, to which
// it is not given while a worker is left that charges it.
func TestAccounts(t *testing.T) {
	c := newClockwork(t)
	defer c.page.Close()
	w, a := c.worker(7)
	use := func(w *Worker, ns int64) {
		w.Acquire(CopyIn, nil)
		c.now += ns
		w.Release(CopyIn)
		w.Charge(CopyOut, 2*ns)
	}
	use(w, 100)
	want := func(what string, got, want Times) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("charge", a.Charge(), Times{0, 100, 200})
	use(w, 10)
	again, err := c.page.OpenAccount(7)
	if err != nil || again.Opened() != a.Opened() {
		t.Fatal("another account", err)
	}
	want("charge of the next daemon", again.Charge(), Times{0, 10, 20})
	want("total", again.Total(), Times{0, 110, 220})
	c.page.KeepAccounts([]uint64{7})
	want("total", a.Total(), Times{0, 110, 220})
	c.page.KeepAccounts(nil)
	use(w, 1) // a worker that is not reaped yet
	other, _ := c.page.OpenAccount(8)
	use(w, 1)
	want("total of another domain", other.Total(), Times{})
	w.Close()
	third, _ := c.page.OpenAccount(9)
	if third.a != a.a {
		t.Error("the place is lost")
	}
	want("total of a new domain", third.Total(), Times{})
	want("charge of a new domain", third.Charge(), Times{})
	c.balanced(CopyIn)
	c.balanced(CopyOut)
	for i := uint64(0); err == nil; i++ {
		if _, err = c.page.OpenAccount(1000 + i); i > MaxAccounts {
			t.Fatal("there is no end of accounts")
		}
	}
	if !errors.Is(err, ErrAccounts) {
		t.Error(err)
	}
	stray, _ := c.page.Register(nil) // of a domain that has none
	stray.SetShare(999, 0, 0)
	use(stray, 5)
	c.balanced(CopyIn)
}

// What a domain holds is charged while it goes on, and all of it once.
func TestChargeWhileHeld(t *testing.T) {
	page, err := Create(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	mine, _ := page.OpenAccount(1)
	others, _ := page.OpenAccount(2)
	w, err := page.Register(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.SetShare(1, 0, 0)
	var charged int64
	for range 100 {
		w.Acquire(Compute, nil)
		for range 3 {
			for start := Now(); Now() < start+1000; {
			}
			if ns := mine.Charge()[Compute]; ns < 1000 {
				t.Fatalf("%d ns are charged of a token that was held for 1000", ns)
			} else {
				charged += ns
			}
		}
		w.Release(Compute)
		charged += mine.Charge()[Compute]
	}
	if total := mine.Total()[Compute]; total != charged {
		t.Errorf("%d ns were charged, %d held", charged, total)
	}
	if got := others.Charge(); got != (Times{}) {
		t.Errorf("another domain is charged %v", got)
	}
}

// An engine without a token that does something for a worker that dies is charged up to the reap.
func TestExecutesAtDeath(t *testing.T) {
	c := newClockwork(t)
	defer c.page.Close()
	w, a := c.worker(1)
	start := Now()
	w.Executes(Compute, start)
	w.die()
	c.page.Sweep()
	c.page.Sweep()
	if got := a.Total()[Compute]; got <= 0 || got > Now()-start {
		t.Errorf("charged %d ns", got)
	}
	c.balanced(Compute)
}

// Processes of several domains are killed at random points while they pass the token on: all of the time for which it was held is
// charged, and there is no more of it than has passed.
func TestConservationUnderKills(t *testing.T) {
	seed := seeds.Fixed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	f := newFixture(t, Options{})
	start := Now()
	var accounts []Account
	for i := range 4 {
		a, err := f.page.OpenAccount(uint64(1 + i))
		if err != nil {
			t.Fatal(err)
		}
		accounts = append(accounts, a)
	}
	begin := func(domain int) *process {
		os.Setenv("ENGINE_TEST_DOMAIN", fmt.Sprint(1+domain))
		defer os.Unsetenv("ENGINE_TEST_DOMAIN")
		p := f.start()
		p.ask("forever", "going")
		return p
	}
	all := []*process{begin(0), begin(1), begin(2), begin(3)}
	rounds := 25
	if testing.Short() {
		rounds = 8
	}
	for i := range rounds {
		time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
		d := random.IntN(len(all))
		all[d].kill()
		if i%2 == 0 {
			all[d].cmd.Wait()
			f.page.Reap(all[d].pid())
		}
		if held, charged, ok := f.page.Balance(Compute); ok && held != charged {
			t.Fatalf("after %d kills the token was held for %d ns and %d ns were charged", i+1, held, charged)
		}
		all[d] = begin(d)
	}
	for _, p := range all {
		p.kill()
		p.cmd.Wait()
		f.page.Reap(p.pid())
	}
	elapsed := Now() - start
	var sum int64
	for _, a := range accounts {
		sum += a.Total()[Compute]
	}
	held, charged, ok := f.page.Balance(Compute)
	if !ok || held != charged || sum != held || held > elapsed || held == 0 {
		t.Errorf("of %d ns the token was held for %d; charged were %d, to the domains %d (%v)", elapsed, held, charged, sum, ok)
	}
}
