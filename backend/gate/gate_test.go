package gate

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"pegasus/accel"
)

// fixture returns a Page with its Bell and one Member in this process.
func fixture(t testing.TB) (*Page, *Bell, *Member) {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBell()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Free(); b.Free() })
	return p, b, member(t, p, b)
}

func member(t testing.TB, p *Page, b *Bell) *Member {
	t.Helper()
	i, err := p.TakeSlot()
	if err != nil {
		t.Fatal(err)
	}
	return Join(p, b, i)
}

var always = Terms{Classes: AllClasses, Until: Forever}

func usage(c accel.Class, ns int64) accel.Usage {
	return accel.Usage{Class: c, Start: 1000, End: 1000 + ns}
}

func try(t *testing.T, m *Member, c Class, predicted int64, want Verdict) Ticket {
	t.Helper()
	ticket, v := m.Try(c, predicted, false)
	if v != want {
		t.Fatalf("try: %v, want %v", v, want)
	}
	return ticket
}

// The offsets are the format: a worker of another version reads them, too.
func TestLayout(t *testing.T) {
	var l layout
	h, s := &l.header, &l.slot[1]
	base := uintptr(unsafe.Pointer(&l))
	for name, c := range map[string]struct{ at, want uintptr }{
		"generation":  {uintptr(unsafe.Pointer(&h.generation)), 0x40},
		"alive until": {uintptr(unsafe.Pointer(&h.aliveUntil)), 0x48},
		"limit":       {uintptr(unsafe.Pointer(&h.inFlightLimit)), 0x50},
		"overrun":     {uintptr(unsafe.Pointer(&h.overrun)), 0x80},
		"leases":      {uintptr(unsafe.Pointer(&h.leases)), 0x140},
		"copy lease":  {uintptr(unsafe.Pointer(&h.leases[2])), 0x1c0},
		"budget":      {uintptr(unsafe.Pointer(&h.leases[0].budget)), 0x150},
		"admitted":    {uintptr(unsafe.Pointer(&s.admitted)), 0x7c60},
		"lock":        {uintptr(unsafe.Pointer(&h.lock)), 0xc0},
		"memory":      {uintptr(unsafe.Pointer(&h.memory)), 0xc8},
		"released":    {uintptr(unsafe.Pointer(&h.released)), 0x100},
		"slot":        {uintptr(unsafe.Pointer(s)), 0x7c00},
		"in flight":   {uintptr(unsafe.Pointer(&s.inFlight)), 0x7c40},
		"used":        {uintptr(unsafe.Pointer(&s.used)), 0x7c80},
		"like":        {uintptr(unsafe.Pointer(&s.like)), 0x7c30},
		"size":        {uintptr(unsafe.Pointer(&s.size)), 0x7c38},
		"waits":       {uintptr(unsafe.Pointer(&s.waits)), 0x7d00},
	} {
		if c.at-base != c.want {
			t.Errorf("%s is at %#x, want %#x", name, c.at-base, c.want)
		}
	}
}

func TestLease(t *testing.T) {
	p, _, m := fixture(t)
	try(t, m, Compute, 1, Closed)
	p.Grant(Terms{Classes: ComputeOnly, Until: Forever})
	m.Finish(try(t, m, Compute, 1, Admitted), usage(accel.Compute, 5))
	try(t, m, Copy, 1, Closed)
	p.Grant(Terms{Classes: CopyOnly, Until: Forever})
	m.Finish(try(t, m, Compute, 1, Admitted), usage(accel.Compute, 0)) // each class has its own lease
	p.Revoke(ComputeOnly)
	try(t, m, Compute, 1, Closed)
	m.Finish(try(t, m, Copy, 1, Admitted), usage(accel.CopyOut, 7))
	p.Grant(Terms{Classes: AllClasses, Until: Now() - 1})
	try(t, m, Copy, 1, Closed)
	p.Grant(Terms{Classes: AllClasses, Until: Now() + int64(time.Hour)})
	m.Finish(try(t, m, Copy, 1, Admitted), usage(accel.CopyDevice, 11))
	p.Revoke(AllClasses)
	try(t, m, Compute, 1, Closed)
	w := p.Look()
	if w.Ended != [...]uint64{2, 2} || w.Busy() || w.IdleSince == 0 {
		t.Errorf("work %+v", w)
	}
	if w = p.Look(); w.Ended != [NumClasses]uint64{} {
		t.Errorf("looked again: %+v", w)
	}
	if st, _ := p.Statistics(m.index); st.Used != [...]int64{5, 0, 7, 11} {
		t.Errorf("used %v", st.Used)
	}
}

func TestBudget(t *testing.T) {
	p, _, m := fixture(t)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: 100})
	a := try(t, m, Compute, 60, Admitted)
	b := try(t, m, Compute, 60, Admitted) // some was left
	try(t, m, Compute, 1, Closed)
	m.Finish(a, usage(accel.Compute, 10)) // 50 less than predicted
	if left := p.at.leases[0].budget.Load(); left != 30 {
		t.Errorf("budget %d, want 30", left)
	}
	try(t, m, Compute, 60, Admitted)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: 5})
	m.Finish(b, usage(accel.Compute, 1)) // of the previous lease
	if left := p.at.leases[0].budget.Load(); left != 5 {
		t.Errorf("budget of the new lease %d, want 5", left)
	}
}

func TestRequests(t *testing.T) {
	p, _, m := fixture(t)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Requests: 2})
	a := try(t, m, Compute, 1, Admitted)
	try(t, m, Copy, 1, Admitted)
	m.Finish(a, usage(accel.Compute, 1))
	try(t, m, Compute, 1, Closed)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Requests: 1, Budget: 10})
	try(t, m, Compute, 3, Admitted)
	try(t, m, Compute, 3, Closed)
	if budget, requests := p.at.leases[0].budget.Load(), p.at.leases[0].requests.Load(); budget != 7 || requests != 0 {
		t.Errorf("left: %d ns, %d requests", budget, requests)
	}
}

func TestInFlightLimit(t *testing.T) {
	p, b, m := fixture(t)
	other := member(t, p, b)
	p.Grant(always)
	p.SetInFlightLimit(100)
	large := try(t, m, Compute, 1000, Admitted) // one request is always admitted
	try(t, m, Compute, 1, Full)
	try(t, other, Compute, 1, Full) // by the limit of the whole domain
	c := try(t, other, Copy, 50, Admitted)
	d := try(t, m, Copy, 50, Admitted)
	try(t, m, Copy, 1, Full)
	if _, v := m.Try(Copy, 1, true); v != Admitted {
		t.Error("unbounded, but not admitted")
	}
	m.Finish(large, usage(accel.Compute, 1))
	try(t, other, Compute, 1, Admitted)
	other.Finish(c, usage(accel.CopyIn, 1))
	m.Finish(d, usage(accel.CopyIn, 1))
	if w := p.Look(); w.InFlight != 2 || !w.Busy() || w.IdleSince != 0 {
		t.Errorf("work %+v", w)
	}
}

func TestFailOpen(t *testing.T) {
	p, _, m := fixture(t)
	p.SetInFlightLimit(10)
	p.SetQuota(DeviceMemory, 10)
	p.Tick(Now() + int64(time.Hour))
	try(t, m, Compute, 1, Closed)
	p.Tick(Now() - 1)
	try(t, m, Compute, 10, Admitted)
	try(t, m, Compute, 1, Full)
	if m.Reserve(DeviceMemory, 11) == nil {
		t.Error("the quota is gone with the daemon")
	}
	p.Tick(Now() + int64(time.Hour))
	try(t, m, Copy, 1, Closed)
}

func TestAcquireWaitsAndTells(t *testing.T) {
	p, b, m := fixture(t)
	rung := b.Rung()
	got := make(chan error)
	go func() {
		_, err := m.Acquire(Compute, 1, false, nil, func() About { return About{Key: 77, Known: true, Size: 1 << 60} })
		got <- err
	}()
	for b.Rung() == rung {
		b.Listen(rung, time.Second)
	}
	if w := p.Look(); !w.Arrived || w.Pending != 1 || !w.Busy() {
		t.Errorf("work %+v", w)
	} else if h := w.Heads[Compute]; h != (Head{Seq: 1, Predicted: 1, About: About{Key: 77, Known: true, Size: maxSize}}) {
		t.Errorf("the request that waits is %+v", h)
	}
	p.Grant(always)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if w := p.Look(); w.Pending != 0 || w.InFlight != 1 {
		t.Errorf("work %+v", w)
	}
	if n := b.Rung() - rung; n != 1 {
		t.Errorf("rung %d times, want once", n)
	}
	st, _ := p.Statistics(0)
	if st.Waits[0] != 0 {
		t.Error("the wait was not counted")
	}
	long := uint64(0)
	for _, n := range st.Waits[10:] {
		long += n
	}
	if long != 1 {
		t.Errorf("waits %v, want one of at least 512 ns", st.Waits)
	}
}

func TestAcquireAtTheLimit(t *testing.T) {
	p, b, m := fixture(t)
	other := member(t, p, b)
	p.Grant(always)
	p.SetInFlightLimit(10)
	first := try(t, m, Compute, 10, Admitted)
	got := make(chan struct{})
	waiting := make(chan struct{})
	var once sync.Once
	go func() {
		other.Acquire(Compute, 10, false, func() (bool, time.Duration) {
			once.Do(func() { close(waiting) })
			return false, time.Second
		}, nil)
		close(got)
	}()
	<-waiting
	m.Finish(first, usage(accel.Compute, 1))
	<-got
	// No request ends any more: after a while the next one is admitted.
	start := Now()
	if _, err := m.Acquire(Compute, 10, false, nil, nil); err != nil {
		t.Fatal(err)
	}
	if waited := time.Duration(Now() - start); waited < limitPatience/2 {
		t.Errorf("it waited for %v only", waited)
	}
}

// Work of one worker that depends on its guest is not on the accelerator: the room for the others remains.
func TestDependentLeavesRoom(t *testing.T) {
	p, b, m := fixture(t)
	other := member(t, p, b)
	p.Grant(always)
	p.SetInFlightLimit(10)
	acquire := func(m *Member, dependent bool) Ticket {
		t.Helper()
		got, err := m.Acquire(Compute, 8, dependent, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	stuck := []Ticket{acquire(m, false), acquire(m, true), acquire(m, true)}
	first := try(t, other, Compute, 8, Admitted)
	try(t, other, Compute, 8, Full) // the worker's own work counts
	other.Finish(first, usage(accel.Compute, 1))
	for _, s := range stuck {
		m.Finish(s, usage(accel.Compute, 1))
	}
	acquire(m, false) // it depends on no guest any more
	try(t, other, Compute, 8, Full)
}

// A request larger than the limit is admitted although smaller ones of its domain never leave the room that it needs.
func TestLargeAmongSmall(t *testing.T) {
	p, b, m := fixture(t)
	other := member(t, p, b)
	p.Grant(always)
	p.SetInFlightLimit(10)
	small := try(t, m, Compute, 5, Admitted)
	got := make(chan error, 1)
	go func() {
		_, err := other.Acquire(Compute, 20, false, nil, nil)
		got <- err
	}()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		next, v := m.Try(Compute, 5, false)
		if v != Admitted { // no room: the large request is admitted
			if err := <-got; err != nil {
				t.Error(err)
			}
			return
		}
		m.Finish(small, usage(accel.Compute, 1))
		small = next
	}
	other.Stop()
	t.Errorf("it still waits: %v", <-got)
}

// Work in flight when the gate closes continues within the limit; the rest waits for the next lease.
func TestAwaitTurn(t *testing.T) {
	p, _, m := fixture(t)
	p.SetInFlightLimit(1000)
	p.Grant(always)
	tickets := []Ticket{try(t, m, Compute, 600, Admitted)}
	for range 3 { // in spite of the limit
		ticket, v := m.Try(Compute, 600, true)
		if v != Admitted {
			t.Fatal(v)
		}
		tickets = append(tickets, ticket)
	}
	run := func(stop func() bool) (ended chan struct{}) {
		ended = make(chan struct{})
		ticket := tickets[0]
		tickets = tickets[1:]
		go func() {
			defer close(ended)
			m.AwaitTurn(Compute, stop)
			m.Finish(ticket, usage(accel.Compute, 600))
		}()
		return ended
	}
	never := func() bool { return false }
	p.Revoke(AllClasses)
	<-run(never)
	<-run(never)
	third := run(never)
	select {
	case <-third:
		t.Fatal("1200 ns were used, the limit is 1000, and more runs")
	case <-time.After(30 * time.Millisecond):
	}
	// Without requests at the gate, it counts as one that waits there.
	w := p.Look()
	for end := time.Now().Add(20 * time.Second); w.Heads[Compute].Seq == 0 && time.Now().Before(end); w = p.Look() {
		time.Sleep(time.Millisecond) // until it waits
	}
	if w.Pending != 0 || w.Heads[Compute].Seq == 0 || w.Heads[Compute].Predicted != 600 || w.Heads[Copy].Seq != 0 {
		t.Errorf("%+v", w)
	}
	p.Grant(Terms{Classes: CopyOnly, Until: Forever})
	select {
	case <-third:
		t.Fatal("a lease for copies let a kernel run")
	case <-time.After(30 * time.Millisecond):
	}
	p.Grant(Terms{Classes: ComputeOnly, Until: Now()})
	<-third // however brief, a lease restarts the count
	if w = p.Look(); w.Heads[Compute].Seq != 0 {
		t.Errorf("%+v", w)
	}
	p.at.overrun[Compute].Store(1000)
	<-run(func() bool { return true })
}

func TestStop(t *testing.T) {
	_, b, m := fixture(t)
	rung := b.Rung()
	got := make(chan error)
	go func() {
		_, err := m.Acquire(Compute, 1, false, nil, nil)
		got <- err
	}()
	for b.Rung() == rung {
		b.Listen(rung, time.Second)
	}
	m.Stop()
	if err := <-got; !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
}

func TestWatch(t *testing.T) {
	p, b, m := fixture(t)
	p.Grant(always)
	rung := b.Rung()
	for range 3 {
		m.Finish(try(t, m, Compute, 1, Admitted), usage(accel.Compute, 1))
	}
	if b.Rung() != rung {
		t.Error("nobody asked for the bell")
	}
	p.Watch()
	x, y := try(t, m, Compute, 1, Admitted), try(t, m, Copy, 1, Admitted)
	m.Finish(x, usage(accel.Compute, 1))
	if b.Rung() != rung {
		t.Error("rung while a copy is in flight")
	}
	m.Finish(y, usage(accel.CopyIn, 1))
	m.Finish(try(t, m, Compute, 1, Admitted), usage(accel.Compute, 1))
	if n := b.Rung() - rung; n != 1 {
		t.Errorf("rung %d times, want once", n)
	}
}

// Where each class has a lease of its own, the end of one class's work is reported although there is work of the other:
// a domain that copies does not keep the engine for kernels.
func TestWatchClasses(t *testing.T) {
	p, b, m := fixture(t)
	for _, c := range []Classes{ComputeOnly, CopyOnly} {
		p.Grant(Terms{Classes: c, Until: Forever, Requests: 8})
	}
	p.Watch()
	rung := b.Rung()
	x, y, copying := try(t, m, Compute, 1, Admitted), try(t, m, Compute, 1, Admitted), try(t, m, Copy, 1, Admitted)
	m.Finish(x, usage(accel.Compute, 1))
	if b.Rung() != rung {
		t.Error("rung while a kernel is in flight")
	}
	m.Finish(y, usage(accel.Compute, 1))
	if n := b.Rung() - rung; n != 1 {
		t.Errorf("rung %d times at the end of the kernels, want once", n)
	}
	p.Watch()
	p.Revoke(ComputeOnly)
	m.Finish(copying, usage(accel.CopyIn, 1))
	if n := b.Rung() - rung; n != 2 {
		t.Errorf("rung %d times in all, want twice", n)
	}
}

// The worker counts pauses, so that the counts are exact however seldom they are read. Pauses of a worker beside busy
// ones are not the domain's.
func TestPauses(t *testing.T) {
	p, b, m := fixture(t)
	p.Grant(Terms{Classes: AllClasses, Until: Forever})
	p.Look()
	const pause = 3 * time.Millisecond
	for range 4 {
		time.Sleep(pause)
		m.Finish(try(t, m, Compute, 1, Admitted), usage(accel.Compute, 5))
	}
	w := p.Look()
	if mean := time.Duration(w.Paused / int64(max(w.Pauses, 1))); w.Pauses != 4 || mean < pause {
		t.Errorf("%d pauses of %v, want 4 of %v", w.Pauses, mean, pause)
	}
	if w := p.Look(); w.Pauses != 0 || w.Paused != 0 {
		t.Errorf("told twice: %+v", w)
	}
	i, err := p.TakeSlot()
	if err != nil {
		t.Fatal(err)
	}
	began := Now()
	other := Join(p, b, i)
	other.Finish(try(t, other, Compute, 1, Admitted), usage(accel.Compute, 5))
	other.Finish(try(t, other, Compute, 1, Admitted), usage(accel.Compute, 5))
	most := Now() - began // usually much less than a pause
	time.Sleep(pause)
	m.Finish(try(t, m, Compute, 1, Admitted), usage(accel.Compute, 5))
	if w := p.Look(); w.Pauses != 2 || w.Paused > most {
		t.Errorf("%d pauses of %v in all, want the shorter ones, of %v at most", w.Pauses, time.Duration(w.Paused), time.Duration(most))
	}
	m.slot.pauses.Store(0) // the daemon does not trust a worker's count
	m.slot.idle.Store(math.MinInt64)
	if w := p.Look(); w.Pauses != 0 || w.Paused < 0 {
		t.Errorf("work %+v", w)
	}
}

// The daemon is notified at the end of a series of requests, not at the end of each; of each, if it has closed the gate
// since, because it may wait for that.
func TestRunsRingOnce(t *testing.T) {
	p, b, m := fixture(t)
	rung := b.Rung()
	finish := func(x Ticket, want uint32, when string) {
		t.Helper()
		m.Finish(x, usage(accel.Compute, 1))
		if n := b.Rung() - rung; n != want {
			t.Errorf("%s: rung %d times, want %d", when, n, want)
		}
		rung = b.Rung()
	}
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Requests: 4})
	finish(try(t, m, Compute, 1, Admitted), 0, "one of four")
	x, y, z := try(t, m, Compute, 1, Admitted), try(t, m, Compute, 1, Admitted), try(t, m, Compute, 1, Admitted)
	finish(x, 0, "two are in flight")
	finish(y, 0, "one is in flight")
	finish(z, 1, "the last")
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Requests: 4})
	x, y = try(t, m, Compute, 1, Admitted), try(t, m, Compute, 1, Admitted)
	p.Revoke(AllClasses)
	finish(x, 1, "after the gate closed")
	finish(y, 1, "after the gate closed")
}

func TestQuota(t *testing.T) {
	p, b, m := fixture(t)
	other := member(t, p, b)
	p.SetQuota(DeviceMemory, 100)
	if m.Reserve(DeviceMemory, 60) != nil || other.Reserve(DeviceMemory, 40) != nil {
		t.Fatal("within the quota")
	}
	for _, n := range []uint64{1, math.MaxUint64, math.MaxUint64 - 50} {
		if err := m.Reserve(DeviceMemory, n); !errors.Is(err, ErrQuota) {
			t.Errorf("%d more: %v", n, err)
		}
	}
	if m.Reserve(HostMemory, 1<<40) != nil {
		t.Error("host memory has no quota here")
	}
	p.SetQuota(DeviceMemory, 50)
	other.Return(DeviceMemory, 40)
	if err := other.Reserve(DeviceMemory, 1); !errors.Is(err, ErrQuota) {
		t.Errorf("over the new quota: %v", err)
	}
	m.Return(DeviceMemory, 1000) // more than it held
	if used, quota := m.Memory(DeviceMemory); used != 0 || quota != 50 {
		t.Errorf("used %d of %d", used, quota)
	}
}

func TestReap(t *testing.T) {
	p, b, m := fixture(t)
	p.Grant(always)
	dead := member(t, p, b)
	dead.Reserve(DeviceMemory, 70)
	m.Reserve(DeviceMemory, 7)
	done, _ := dead.Try(Compute, 1, false)
	dead.Finish(done, usage(accel.Compute, 99))
	dead.Try(Copy, 5000, false)
	p.SetInFlightLimit(10)
	try(t, m, Copy, 6, Full)
	p.Reap(dead.index)
	try(t, m, Copy, 6, Admitted)
	if used, _ := p.Memory(DeviceMemory); used != 7 {
		t.Errorf("%d bytes are used, want 7", used)
	}
	if w := p.Look(); w.Ended != [...]uint64{1, 1} || w.InFlight != 1 {
		t.Errorf("work %+v", w)
	}
	if _, ok := p.Statistics(dead.index); ok {
		t.Error("the slot is still taken")
	}
	again, err := p.TakeSlot()
	if err != nil || again != dead.index {
		t.Errorf("next slot %d, %v", again, err)
	}
	if w := p.Look(); w.Ended != [NumClasses]uint64{} {
		t.Errorf("ended again: %+v", w)
	}
}

func TestSlotsRunOut(t *testing.T) {
	p, b, _ := fixture(t)
	for range Slots - 1 {
		member(t, p, b)
	}
	if _, err := p.TakeSlot(); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}

// A compromised worker can write any value into its slot.
func TestLookBelievesNothing(t *testing.T) {
	p, _, m := fixture(t)
	m.slot.ended[Compute].Store(5)
	p.Look()
	m.slot.ended[Compute].Store(4)
	m.slot.requests[Compute].Store(-1 << 60)
	m.slot.pending.Store(math.MaxUint32)
	w := p.Look()
	if w.Ended[Compute] != 0 || w.InFlight != 0 || w.Pending != 1 {
		t.Errorf("work %+v", w)
	}
	p.at.top.Store(math.MaxUint32)
	p.Look()
}

func BenchmarkTry(b *testing.B) {
	p, _, m := fixture(b)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: math.MaxInt64})
	p.SetInFlightLimit(1000)
	for b.Loop() {
		t, _ := m.Try(Compute, 10, false)
		m.Finish(t, accel.Usage{})
	}
}

// A dead worker's requests in flight count as ended: the policy that leased it a request does not wait for it.
func TestReapEndsRequests(t *testing.T) {
	p, b, _ := fixture(t)
	p.Grant(Terms{Classes: AllClasses, Until: Forever})
	i, err := p.TakeSlot()
	if err != nil {
		t.Fatal(err)
	}
	m := Join(p, b, i)
	try(t, m, Compute, 1, Admitted)
	try(t, m, Copy, 1, Admitted)
	p.Look()
	p.Reap(i)
	if w := p.Look(); w.Ended != [NumClasses]uint64{1, 1} || w.InFlight != 0 {
		t.Errorf("%+v", w)
	}
}

// TestSetStops: on an accelerator that preempts work, admitted work waits for a lease while there is none.
func TestSetStops(t *testing.T) {
	p, _, m := fixture(t)
	p.Grant(Terms{Classes: AllClasses, Until: Forever})
	ticket := try(t, m, Compute, 600, Admitted)
	for _, c := range []struct {
		stops, leased, ran, queued, waits bool
	}{
		{false, false, true, true, false}, {true, false, true, false, true}, {true, false, false, true, true},
		{true, false, false, false, false}, {true, true, true, true, false},
	} {
		p.SetStops(c.stops)
		p.Ran(c.ran, !c.ran)
		if c.queued {
			m.Queued(Compute, 1)
		}
		if p.Revoke(AllClasses); c.leased {
			p.Grant(Terms{Classes: ComputeOnly, Until: Forever})
		}
		if h := p.Look().Heads[Compute]; (h.Seq == 2 && h.Predicted == 600) != c.waits || (h.Seq == 0) == c.waits {
			t.Errorf("%+v: %+v waits", c, h)
		}
		if c.queued {
			m.Queued(Compute, -1)
		}
	}
	m.Finish(ticket, usage(accel.Compute, 600))
	if p.Revoke(AllClasses); p.Look().Heads[Compute].Seq != 0 {
		t.Error("work that has ended waits")
	}
}

// A lease of single requests wakes as many of the waiting threads as it admits, also when one of them ends its wait
// without admission.
func TestLeaseWakesThoseThatItAdmits(t *testing.T) {
	const workers = 8
	p, b, first := fixture(t)
	members := []*Member{first}
	for range workers - 1 {
		members = append(members, member(t, p, b))
	}
	admitted := make(chan error, workers)
	for _, m := range members {
		go func() {
			_, err := m.Acquire(Compute, 1, true, nil, nil)
			admitted <- err
		}()
	}
	for _, m := range members {
		for m.slot.pending.Load() == 0 {
			runtime.Gosched()
		}
	}
	members[0].Stop()
	if err := <-admitted; !errors.Is(err, ErrStopped) {
		t.Fatal("the stopped member's request:", err)
	}
	for range workers - 1 {
		p.Grant(Terms{Classes: AllClasses, Until: Forever, Requests: 1})
		if err := <-admitted; err != nil {
			t.Fatal(err)
		}
		p.Revoke(AllClasses)
	}
	select {
	case err := <-admitted:
		t.Fatal("more requests than leases were admitted:", err)
	default:
	}
}

// A worker that waits for something else besides admission, and therefore sleeps for a short time at a time, gets its
// part of single requests: the kernel wakes the longest sleeper first.
func TestShortSleepersAreAdmitted(t *testing.T) {
	p, b, first := fixture(t)
	members := []*Member{first, member(t, p, b), member(t, p, b)}
	admitted := make(chan int)
	var running sync.WaitGroup
	for i, m := range members {
		var between Between
		if i == 0 {
			between = func() (bool, time.Duration) { return true, time.Millisecond }
		}
		running.Go(func() {
			for {
				ticket, err := m.Acquire(Compute, 1, true, between, nil)
				if err != nil {
					return
				}
				m.Finish(ticket, usage(accel.Compute, 1))
				admitted <- i
			}
		})
	}
	var count [3]int
	for range 90 {
		for _, m := range members {
			for m.slot.pending.Load() == 0 {
				runtime.Gosched()
			}
		}
		time.Sleep(2 * time.Millisecond) // the first one has gone to sleep again since
		p.Grant(Terms{Classes: AllClasses, Until: Forever, Requests: 1})
		count[<-admitted]++
		p.Revoke(AllClasses)
	}
	for _, m := range members {
		m.Stop()
	}
	running.Wait()
	if count[0] < 20 || count[1]+count[2] < 20 {
		t.Errorf("requests admitted: %v; the first one sleeps for short times", count)
	}
}
