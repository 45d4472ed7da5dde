package engine

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/internal/testkit"
)

// The test binary runs itself as worker processes: a role reads commands from
// stdin and answers on stdout, with the pages on descriptors 3 and 4 and scratch memory on 5.
func TestMain(m *testing.M) {
	if os.Getenv("ENGINE_TEST_WORKER") != "" {
		workerMain()
		return
	}
	os.Exit(m.Run())
}

func workerMain() {
	m, err := Open(3)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	e, err := OpenEngines(4)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	w, err := m.Register(e, nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	scratch, err := unix.Mmap(5, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "acquire":
			w.Acquire(Compute, nil)
			fmt.Println("held")
		case "release":
			w.Release(Compute)
			fmt.Println("released")
		case "reserve":
			fmt.Println(w.Reserve(1000))
		case "spin":
			fmt.Println(w.TrySpin())
		case "stress":
			for range 2000 {
				w.Acquire(Compute, nil)
				n := le(scratch)
				put(scratch, n+1) // unlocked on purpose: an overlap loses counts
				w.Release(Compute)
			}
			fmt.Println("done")
		case "forever":
			fmt.Println("going")
			for {
				w.Acquire(Compute, nil)
				put(scratch, le(scratch)+1)
				w.Release(Compute)
			}
		}
	}
}

func le(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
func put(b []byte, v uint32) { b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24) }

type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func (p *process) send(s string) { fmt.Fprintln(p.in, s) }

func (p *process) expect(want string) {
	p.t.Helper()
	if !p.out.Scan() || p.out.Text() != want {
		p.t.Fatalf("process %d said %q, want %q", p.pid(), p.out.Text(), want)
	}
}
func (p *process) ask(s, want string) { p.t.Helper(); p.send(s); p.expect(want) }
func (p *process) pid() int           { return p.cmd.Process.Pid }
func (p *process) kill()              { p.cmd.Process.Kill() }

type fixture struct {
	t       *testing.T
	memory  *Memory
	engines *Engines
	scratch *os.File
	mem     []byte
}

// newPages creates the pages of an accelerator and of its only domain.
func newPages(t testing.TB, o Options) (*Memory, *Engines) {
	t.Helper()
	m, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	e, err := CreateEngines()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); m.Close() })
	return m, e
}

// register takes a place in the pages.
func register(t testing.TB, m *Memory, e *Engines) *Worker {
	t.Helper()
	w, err := m.Register(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func newFixture(t *testing.T, o Options) *fixture {
	m, e := newPages(t, o)
	fd, err := newMemfd("scratch", 4096)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t, m, e, os.NewFile(uintptr(fd), "scratch"), mem}
	t.Cleanup(func() { f.scratch.Close(); unix.Munmap(mem) })
	return f
}

func (f *fixture) start() *process { return f.startIn(f.engines) }

// startIn starts a process of the domain that has the page e.
func (f *fixture) startIn(e *Engines) *process {
	f.t.Helper()
	memory, engines := copyOf(f.t, f.memory.FD()), copyOf(f.t, e.FD())
	defer memory.Close()
	defer engines.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "ENGINE_TEST_WORKER=1")
	cmd.ExtraFiles = []*os.File{memory, engines, f.scratch}
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	p := &process{f.t, cmd, in, bufio.NewScanner(out)}
	f.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	p.expect("ready")
	return p
}

func copyOf(t *testing.T, fd int) *os.File {
	t.Helper()
	fd, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "page")
}

// queued waits until n tickets are held or waited for.
func (f *fixture) queued(n uint64) {
	f.t.Helper()
	t := &f.engines.l.tokens[Compute]
	eventually(f.t, fmt.Sprintf("%d tickets", n), func() bool { return t.tail.Load()-t.serving.Load() == n })
}

func (f *fixture) reap(pid int) { f.memory.Reap(pid); f.engines.Reap(pid) }
func (f *fixture) sweep()       { f.memory.Sweep(); f.engines.Sweep() }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, what, ok)
}

func TestFirstInFirstOut(t *testing.T) {
	f := newFixture(t, Options{})
	w := register(t, f.memory, f.engines)
	w.Acquire(Compute, nil)
	var ps []*process
	for i := range 4 {
		p := f.start()
		p.send("acquire")
		f.queued(uint64(i + 2))
		ps = append(ps, p)
	}
	w.Release(Compute)
	for i, p := range ps {
		p.expect("held")
		if h := f.engines.Holder(Compute); h != p.pid() {
			t.Fatalf("holder is %d, want %d", h, p.pid())
		}
		f.queued(uint64(len(ps) - i))
		p.ask("release", "released")
	}
	if f.engines.Holder(Compute) != 0 {
		t.Fatal("held by nobody, they say")
	}
}

func TestStressLosesNothing(t *testing.T) {
	f := newFixture(t, Options{})
	var ps []*process
	for range 4 {
		ps = append(ps, f.start())
	}
	for _, p := range ps {
		p.send("stress")
	}
	for _, p := range ps {
		p.expect("done")
	}
	if n := le(f.mem); n != 8000 {
		t.Fatalf("%d increments, want 8000", n)
	}
	if f.engines.Total()[Compute] <= 0 {
		t.Fatal("no busy time")
	}
}

func TestHolderKilled(t *testing.T) {
	for _, reap := range []bool{true, false} {
		t.Run("reap="+strconv.FormatBool(reap), func(t *testing.T) {
			f := newFixture(t, Options{})
			a, b, c, d := f.start(), f.start(), f.start(), f.start()
			a.ask("acquire", "held")
			for i, p := range []*process{b, c, d} {
				p.send("acquire")
				f.queued(uint64(i + 2))
			}
			b.kill() // a waiter first, then the holder: neither is waited for, so both stay zombies
			a.kill()
			if reap {
				a.cmd.Wait()
				b.cmd.Wait()
				f.reap(a.pid())
				f.reap(b.pid())
			}
			c.expect("held")
			c.ask("release", "released")
			d.expect("held")
			d.ask("release", "released")
		})
	}
}

// Processes are killed at random points of acquire and release; a live one must always make progress.
func TestKilledAnywhere(t *testing.T) {
	f := newFixture(t, Options{})
	w := register(t, f.memory, f.engines)
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	for i := range rounds {
		a, b := f.start(), f.start()
		a.ask("forever", "going")
		b.ask("forever", "going")
		from := le(f.mem)
		eventually(t, "progress", func() bool { return le(f.mem) != from })
		for range i * 37 % 11 {
			w.Acquire(Compute, nil)
			w.Release(Compute)
		}
		a.kill()
		if i%2 == 0 {
			a.cmd.Wait()
			f.reap(a.pid())
		}
		for range 20 {
			w.Acquire(Compute, nil)
			w.Release(Compute)
		}
		b.kill()
		b.cmd.Wait()
		w.Acquire(Compute, nil)
		w.Release(Compute)
		f.sweep()
	}
	if n := f.memory.used(); n > 8 {
		t.Errorf("%d worker slots used: dead workers keep theirs", n)
	}
}

func TestMemory(t *testing.T) {
	f := newFixture(t, Options{Memory: 2500, Spinners: 1})
	w := register(t, f.memory, f.engines)
	a := f.start()
	a.ask("reserve", "true")
	a.ask("spin", "true")
	if !w.Reserve(1500) || w.Reserve(1) || w.TrySpin() {
		t.Fatal("limits do not hold")
	}
	if w.Reserve(1 << 60) {
		t.Fatal("reserved more than there is")
	}
	a.ask("reserve", "false")
	a.kill()
	a.cmd.Wait()
	f.reap(a.pid())
	f.reap(a.pid())
	if n := f.memory.Used(); n != 1500 {
		t.Fatalf("%d bytes in use, want 1500", n)
	}
	if !w.TrySpin() || !w.Reserve(1000) {
		t.Fatal("what a dead worker had is gone")
	}
	b := f.start() // takes the dead one's slot, without its memory
	b.ask("reserve", "false")
	w.Unreserve(1500)
	b.ask("reserve", "true")
}

func TestReserveSweepsTheDead(t *testing.T) {
	f := newFixture(t, Options{Memory: 1000})
	w := register(t, f.memory, f.engines)
	a := f.start()
	a.ask("reserve", "true")
	a.kill()
	a.cmd.Wait()
	if !w.Reserve(1000) {
		t.Fatal("a dead worker's memory is not found")
	}
}

func TestStop(t *testing.T) {
	m, e := newPages(t, Options{})
	a := register(t, m, e)
	b := register(t, m, e)
	c := register(t, m, e)
	a.Acquire(Compute, nil)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, ok := b.Acquire(Compute, &stop); ok {
			t.Error("b got a token that a holds")
		}
	})
	eventually(t, "b waits", func() bool { return e.l.tokens[Compute].tail.Load() == 2 })
	wg.Go(func() {
		if _, ok := c.Acquire(Compute, &stop); !ok {
			c.Acquire(Compute, nil)
		}
		c.Release(Compute)
	})
	stop.Store(true)
	b.Nudge(Compute)
	c.Nudge(Compute)
	eventually(t, "b gone", func() bool { return e.l.tokens[Compute].slot(1).word.Load().abandoned() })
	if _, ok := b.TryAcquire(Compute); ok {
		t.Error("TryAcquire of a held token")
	}
	a.Release(Compute)
	wg.Wait()
	if _, ok := b.TryAcquire(Compute); !ok {
		t.Error("TryAcquire of a free token")
	}
	b.Release(Compute)
}

func TestGarbageEnds(t *testing.T) {
	for _, scribble := range []func(*tokenWords){
		func(t *tokenWords) { t.serving.Store(1 << 50) },
		func(t *tokenWords) { t.tail.Store(1 << 50) },
		func(t *tokenWords) { t.slot(0).word.Store(^ticketWord(0)) },
		func(t *tokenWords) { t.slot(1).word.Store(0x1234567) },
	} {
		m, e := newPages(t, Options{})
		w := register(t, m, e)
		v := register(t, m, e)
		w.Acquire(Compute, nil)
		scribble(&e.l.tokens[Compute])
		v.Acquire(Compute, nil) // whatever it answers, it does answer
		w.Release(Compute)
		e.Reap(os.Getpid())
	}
}

func TestSaturated(t *testing.T) {
	m, e := newPages(t, Options{AllCores: true})
	w := register(t, m, e)
	if w.Saturated() {
		t.Error("idle, but saturated")
	}
	w.Acquire(Compute, nil)
	if !w.Saturated() {
		t.Error("a kernel runs on all cores, but not saturated")
	}
	w.Release(Compute)
	other, err := CreateEngines()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	v := register(t, m, other)
	w.Acquire(Compute, nil)
	w.Computes(Now())
	if !v.Saturated() {
		t.Error("a kernel of another domain runs on all cores, but not saturated")
	}
	w.Release(Compute)
	if v.Saturated() {
		t.Error("it has ended")
	}
}

func BenchmarkToken(b *testing.B) {
	m, e := newPages(b, Options{})
	w := register(b, m, e)
	b.ReportAllocs()
	for b.Loop() {
		w.Acquire(Compute, nil)
		w.Release(Compute)
	}
}

// BenchmarkHandOver measures two waiters that pass a token back and forth.
func BenchmarkHandOver(b *testing.B) {
	m, e := newPages(b, Options{})
	var wg sync.WaitGroup
	for range 2 {
		w := register(b, m, e)
		wg.Go(func() {
			for range b.N / 2 {
				w.Acquire(Compute, nil)
				w.Release(Compute)
			}
		})
	}
	wg.Wait()
}
