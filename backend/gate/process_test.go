package gate

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/test/seeds"
)

// TestMain makes the test binary a worker when it is started as one; descriptors 3 and 4 are then page and bell.
func TestMain(m *testing.M) {
	role := os.Getenv("PEGASUS_TEST_PROCESS")
	if role == "" {
		os.Exit(m.Run())
	}
	p, err := Map(os.NewFile(3, "page"))
	if err != nil {
		panic(err)
	}
	b, err := OpenBell(os.NewFile(4, "bell"))
	if err != nil {
		panic(err)
	}
	slot, _ := strconv.Atoi(os.Getenv("PEGASUS_TEST_SLOT"))
	roles[role](Join(p, b, slot))
}

var roles = map[string]func(m *Member){
	// greedy reserves all the memory that it gets, in small pieces, and reports how much.
	"greedy": func(m *Member) {
		total := 0
		for m.Reserve(DeviceMemory, 3) == nil {
			total += 3
		}
		fmt.Println(total)
		io.Copy(io.Discard, os.Stdin)
	},
	// restless takes and returns memory, and submits and finishes requests, for ever.
	"restless": func(m *Member) {
		fmt.Println("ready")
		for n := uint64(1); ; n = n*5%1009 + 1 {
			if m.Reserve(DeviceMemory, n) == nil {
				m.Return(DeviceMemory, n)
			}
			if t, v := m.Try(Compute, int64(n), false); v == Admitted {
				m.Finish(t, accel.Usage{Class: accel.Compute, Start: 0, End: 1})
			}
		}
	},
	// waiter waits at the gate, and reports its admission.
	"waiter": func(m *Member) {
		fmt.Println("ready")
		if _, err := m.Acquire(Compute, 1, false, nil, nil); err != nil {
			panic(err)
		}
		fmt.Println("through")
		io.Copy(io.Discard, os.Stdin)
	},
}

type process struct {
	*exec.Cmd
	in   io.Closer
	out  *bufio.Scanner
	slot int
}

func start(t *testing.T, role string, p *Page, b *Bell) *process {
	t.Helper()
	slot, err := p.TakeSlot()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "PEGASUS_TEST_PROCESS="+role, "PEGASUS_TEST_SLOT="+strconv.Itoa(slot), "GORACE=atexit_sleep_ms=0")
	c.ExtraFiles = []*os.File{p.File(), b.File()}
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w := &process{c, in, bufio.NewScanner(out), slot}
	t.Cleanup(w.kill)
	return w
}

func (w *process) ended(p *Page) uint64 {
	st, _ := p.Statistics(w.slot)
	return st.Ended[Compute]
}

func (w *process) kill() {
	w.Process.Kill()
	w.Wait()
}

func (w *process) line(t *testing.T) string {
	t.Helper()
	if !w.out.Scan() {
		t.Fatal("the worker said nothing more")
	}
	return strings.TrimSpace(w.out.Text())
}

func TestQuotaAcrossProcesses(t *testing.T) {
	p, b, _ := fixture(t)
	const quota = 300000
	p.SetQuota(DeviceMemory, quota)
	var workers []*process
	for range 4 {
		workers = append(workers, start(t, "greedy", p, b))
	}
	total := 0
	for _, w := range workers {
		n, err := strconv.Atoi(w.line(t))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if used, _ := p.Memory(DeviceMemory); total != quota || used != quota {
		t.Errorf("workers have %d, the page says %d, the quota is %d", total, used, quota)
	}
	for _, w := range workers {
		w.kill()
		p.Reap(w.slot)
	}
	if used, _ := p.Memory(DeviceMemory); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// A daemon that was killed while it held the lock leaves it to the next, even if that has the same pid, as in a
// container.
func TestDaemonKilledWithLock(t *testing.T) {
	for _, pid := range []int{0, os.Getpid()} {
		p, err := New()
		if err != nil {
			t.Fatal(err)
		}
		p.at.daemon.Store(uint32(pid))
		p.at.lock.Store(daemonHolder)
		f, err := unix.FcntlInt(p.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		next, err := Adopt(os.NewFile(uintptr(f), "page"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			next.ClearSegments(&bank{}, time.Hour)
			close(done)
		}()
		select {
		case <-done:
			next.Free()
			p.Free()
		case <-time.After(time.Minute):
			t.Fatal("the next daemon waits for the lock")
		}
	}
}

// A worker killed at any instruction leaves no reservation behind, and blocks no other worker.
func TestKilledWhileReserving(t *testing.T) {
	seed := seeds.Fixed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	p, b, m := fixture(t)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: 1 << 60})
	p.SetInFlightLimit(1 << 40)
	p.SetQuota(DeviceMemory, 2000)
	m.Reserve(DeviceMemory, 11)
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	survivor := start(t, "restless", p, b)
	survivor.line(t)
	for range rounds {
		w := start(t, "restless", p, b)
		w.line(t)
		time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
		w.kill()
		p.Reap(w.slot)
	}
	survivor.kill()
	// Without a daemon, too, living workers break the lock of a dead one.
	if err := m.Reserve(DeviceMemory, 1); err != nil {
		t.Error(err)
	}
	p.Reap(survivor.slot)
	if used, _ := p.Memory(DeviceMemory); used != 12 {
		t.Errorf("%d bytes are used, want 12", used)
	}
	if w := p.Look(); w.InFlight != 0 || w.Pending != 0 {
		t.Errorf("work %+v", w)
	}
}

// The lock of a dead holder is broken by the next caller of lock.
func TestLockOfTheDead(t *testing.T) {
	p, b, m := fixture(t)
	w := start(t, "waiter", p, b)
	w.line(t)
	p.at.lock.Store(uint32(w.slot) + 1)
	p.at.slot[w.slot].memory[DeviceMemory].Store(5)
	w.kill()
	if err := m.Reserve(DeviceMemory, 1); err != nil {
		t.Fatal(err)
	}
	if used, _ := p.Memory(DeviceMemory); used != 6 {
		t.Errorf("used %d, want 6", used)
	}
	p.Reap(w.slot)
	if used, _ := p.Memory(DeviceMemory); used != 1 {
		t.Errorf("used %d, want 1", used)
	}
}

func TestProcessFailsOpen(t *testing.T) {
	p, b, _ := fixture(t)
	p.Tick(Now() + int64(300*time.Millisecond))
	w := start(t, "waiter", p, b)
	w.line(t)
	start := time.Now()
	if got := w.line(t); got != "through" {
		t.Fatal(got)
	}
	if waited := time.Since(start); waited > 20*time.Second {
		t.Errorf("it took %v to notice that the daemon is gone", waited)
	}
}

func TestAdopt(t *testing.T) {
	p, b, _ := fixture(t)
	p.Grant(always)
	w := start(t, "restless", p, b)
	w.line(t)
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", p.File().Fd()))
	if err == nil {
		f.Close()
		f, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.File().Fd()), os.O_RDWR, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := w.ended(p)
	q, err := Adopt(f)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Free()
	if ended, now := q.Look().Ended[Compute], w.ended(p); ended > now-before {
		t.Errorf("a new daemon counts %d requests of %d", ended, now-before)
	}
	q.Revoke(AllClasses)
	if st, ok := p.Statistics(w.slot); !ok || st.PID != w.Process.Pid {
		t.Errorf("statistics %+v, %v", st, ok)
	}
}

// A new daemon finds the slots of workers that ended while no daemon ran, and of workers that never joined.
func TestOccupants(t *testing.T) {
	p, b, m := fixture(t)
	p.SetQuota(DeviceMemory, 30)
	w := start(t, "greedy", p, b)
	w.line(t)
	never, err := p.TakeSlot()
	if err != nil {
		t.Fatal(err)
	}
	w.kill()
	fd, err := unix.Dup(int(p.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	q, err := Adopt(os.NewFile(uintptr(fd), "page"))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Free()
	want := map[int]int{m.index: os.Getpid(), w.slot: w.Process.Pid, never: 0}
	if got := q.Occupants(); !maps.Equal(got, want) {
		t.Errorf("occupants %v, want %v", got, want)
	}
	q.Reap(w.slot)
	q.Reap(never)
	delete(want, w.slot)
	delete(want, never)
	if got := q.Occupants(); !maps.Equal(got, want) {
		t.Errorf("occupants %v, want %v", got, want)
	}
	if used, _ := q.Memory(DeviceMemory); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

func TestNotAPage(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Map(f); err == nil {
		t.Error("an empty file is a page")
	}
	f.Truncate(pageBytes)
	if _, err := Map(f); err == nil {
		t.Error("zeros are a page")
	}
	if _, err := OpenBell(f); err == nil {
		t.Error("zeros are a bell")
	}
}
