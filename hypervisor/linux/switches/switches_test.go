package switches

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

const ms = time.Millisecond

// allowed reports whether this machine lets us load BPF programs, determined without the code under test.
func allowed() (bool, string) {
	var caps [2]unix.CapUserData
	unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0])
	has := func(c int) bool { return caps[c/32].Effective&(1<<(c%32)) != 0 }
	if !has(unix.CAP_SYS_ADMIN) && !(has(unix.CAP_BPF) && has(unix.CAP_PERFMON)) {
		return false, "no capability"
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return false, err.Error()
	}
	if ns, _ := os.Readlink("/proc/self/ns/pid"); ns != "pid:[4026531836]" {
		return false, "not the host's PID namespace"
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return false, err.Error()
	}
	p.Close()
	return true, ""
}

// loaded returns a table, or nil where BPF is not allowed. Where it is, loading has to work.
func loaded(t testing.TB) *Table {
	t.Helper()
	table, err := Load()
	ok, why := allowed()
	switch {
	case ok && err != nil:
		t.Fatalf("BPF is allowed, but: %v", err)
	case !ok && err == nil:
		table.Close()
		t.Fatalf("it was loaded where BPF is not allowed (%s)", why)
	case !ok:
		t.Logf("BPF is not allowed here (%s); Load says: %v", why, err)
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "thread switches") {
			t.Errorf("the reason should be one line that says what failed: %v", err)
		}
		return nil
	}
	t.Cleanup(table.Close)
	return table
}

// burner is a thread that computes, on one processor, while it is on.
type burner struct {
	tid  int
	on   atomic.Bool
	end  atomic.Bool
	done chan struct{}
}

func burn(t testing.TB, cpu int) *burner {
	t.Helper()
	b := &burner{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(b.done)
		err := pin(cpu)
		b.tid = unix.Gettid()
		started <- err
		for !b.end.Load() {
			if !b.on.Load() {
				syscall.Select(0, nil, nil, nil, &syscall.Timeval{Usec: 200})
			}
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *burner) stop() {
	b.end.Store(true)
	<-b.done
}

func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// until reads an entry until it satisfies `wanted`.
func until(t *testing.T, table *Table, p Slot, what string, wanted func(Entry) bool) Entry {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(ms) {
		e, ok := table.Read(p)
		if ok && wanted(e) {
			return e
		}
		if time.Now().After(deadline) {
			t.Fatalf("a thread that %s is %+v", what, e)
		}
	}
}

// last returns a processor that tests keep busy; they themselves prefer the others.
func last(t testing.TB) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for cpu := 1023; cpu >= 0; cpu-- {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	t.Fatal("there is no processor")
	return 0
}

func TestLayout(t *testing.T) {
	var s slotLayout
	for name, at := range map[string][2]uintptr{
		"sequence": {unsafe.Offsetof(s.sequence), slotSequence}, "state": {unsafe.Offsetof(s.state), slotState},
		"key": {unsafe.Offsetof(s.key), slotKey}, "since": {unsafe.Offsetof(s.since), slotSince},
		"ran": {unsafe.Offsetof(s.ran), slotRan}, "waited": {unsafe.Offsetof(s.waited), slotWaited},
		"times": {unsafe.Offsetof(s.times), slotTimes}, "cpu": {unsafe.Offsetof(s.cpu), slotCPU},
		"all": {unsafe.Sizeof(s), slotBytes},
	} {
		if at[0] != at[1] {
			t.Errorf("%s lies at %d, the programs take it to be at %d", name, at[0], at[1])
		}
	}
}

func TestStates(t *testing.T) {
	table := loaded(t)
	if table == nil {
		return
	}
	cpu := last(t)
	b := burn(t, cpu)
	p, ok := table.Watch(b.tid)
	if !ok {
		t.Fatal("there is no room for one thread")
	}
	if _, again := table.Watch(b.tid); again {
		t.Error("a thread is watched twice")
	}
	before := monotonic()
	e := until(t, table, p, "sleeps now and then", func(e Entry) bool { return e.State == Blocked && e.Times > 0 })
	if e.Since < before || e.Since > monotonic() || e.CPU != cpu {
		t.Errorf("it sleeps since %d on %d, and it is %d on %d", e.Since, e.CPU, monotonic(), cpu)
	}
	b.on.Store(true)
	until(t, table, p, "computes", func(e Entry) bool { return e.State == Running && e.CPU == cpu })
	other := burn(t, cpu)
	q, _ := table.Watch(other.tid)
	other.on.Store(true)
	until(t, table, p, "waits for the other", func(e Entry) bool { return e.State == Runnable && e.Waited > 0 })
	until(t, table, q, "waits for the other", func(e Entry) bool { return e.State == Runnable && e.Waited > 0 })

	// The two threads share one processor's time.
	ran := func() (both, at int64) {
		for {
			at = monotonic()
			for _, place := range []Slot{p, q} {
				e, _ := table.Read(place)
				if both += e.Ran; e.State == Running {
					both += max(at-e.Since, 0)
				}
			}
			if monotonic()-at < int64(ms) { // else the reads were too far apart
				return both, at
			}
			both = 0
		}
	}
	first, begin := ran()
	time.Sleep(200 * ms)
	second, end := ran()
	if both, passed := second-first, end-begin; both > passed+4*int64(ms) || both < passed/20 {
		t.Errorf("two threads ran for %v in %v of one processor", time.Duration(both), time.Duration(passed))
	}
	b.stop()
	other.stop()
	ended(t, table)
}

// ended ends threads until the kernel records one's end: it may miss an event, so users of a table have to detect
// ends in another way, too.
func ended(t *testing.T, table *Table) {
	t.Helper()
	for range 5 {
		b := burn(t, last(t))
		p, _ := table.Watch(b.tid)
		until(t, table, p, "sleeps now and then", func(e Entry) bool { return e.State != Unknown })
		b.stop()
		for range 500 {
			if e, ok := table.Read(p); ok && e.State == Ended {
				forget(t, table, p)
				return
			}
			time.Sleep(ms)
		}
	}
	t.Error("the end of no thread is noted")
}

func forget(t *testing.T, table *Table, p Slot) {
	t.Helper()
	table.Forget(p)
	if e, ok := table.Read(p); !ok || e.State != Ended {
		t.Errorf("what is known of a forgotten thread is lost before its place is given away: %+v", e)
	}
}

// The entry of a waiting thread equals its schedstat.
func TestAgreesWithSchedstat(t *testing.T) {
	table := loaded(t)
	if table == nil {
		return
	}
	cpu := last(t)
	a, b := burn(t, cpu), burn(t, cpu)
	p, ok := table.Watch(a.tid)
	if !ok {
		t.Fatal("there is no room")
	}
	a.on.Store(true)
	b.on.Store(true)
	until(t, table, p, "computes", func(e Entry) bool { return e.Times > 0 && e.Waited > 0 })
	both := func() (e Entry, ran, waited int64) {
		for {
			e, _ = table.Read(p)
			text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", a.tid))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Sscan(string(text), &ran, &waited)
			// Both count up to the same time only when the thread waits all the while.
			if after, _ := table.Read(p); e.State == Runnable && after == e {
				return e, ran, waited
			}
			time.Sleep(ms / 2)
		}
	}
	e1, ran1, waited1 := both()
	time.Sleep(300 * ms)
	e2, ran2, waited2 := both()
	if e1.Ran != ran1 || e1.Waited != waited1 || e2.Ran != ran2 || e2.Waited != waited2 {
		t.Errorf("it ran %v and waited %v; by schedstat %v and %v", time.Duration(e2.Ran-e1.Ran), time.Duration(e2.Waited-e1.Waited),
			time.Duration(ran2-ran1), time.Duration(waited2-waited1))
	}
}

// A thread that gets the number and place of another starts anew.
func TestPlaceIsGivenAway(t *testing.T) {
	table := loaded(t)
	if table == nil {
		return
	}
	b := burn(t, last(t))
	p, _ := table.Watch(b.tid)
	before := until(t, table, p, "runs", func(e Entry) bool { return e.Times > 3 })
	table.Forget(p)
	q, ok := table.Watch(b.tid)
	if !ok || q.at != p.at {
		t.Fatalf("watched in place %d after %d", q.at, p.at)
	}
	if e := until(t, table, q, "runs", func(e Entry) bool { return e.State != Unknown }); e.Times < before.Times {
		t.Errorf("it is %+v, and was %+v", e, before)
	}
	if e, ok := table.Read(p); !ok || e != (Entry{}) {
		t.Errorf("the former of this place is said to be %+v", e)
	}
}

func TestRoom(t *testing.T) {
	table := loaded(t)
	if table == nil {
		return
	}
	var places []Slot
	for i := range ways {
		p, ok := table.Watch(1<<20 + i*buckets)
		if !ok {
			t.Fatalf("only %d of %d ways", i, ways)
		}
		places = append(places, p)
	}
	if _, ok := table.Watch(1<<20 + ways*buckets); ok {
		t.Error("a bucket has more places than it has")
	}
	table.Forget(places[2])
	if p, ok := table.Watch(1<<20 + ways*buckets); !ok || p.at != places[2].at {
		t.Error("a place that is free is not used")
	}
}

const adopting = "PEGASUS_TEST_ADOPTS_TABLE"

func TestMain(m *testing.M) {
	if os.Getenv(adopting) != "" {
		if err := adopt(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// adopt is a process without privileges that receives a table over a socket, and watches itself.
func adopt() error {
	f := os.NewFile(3, "socket")
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	files, err := Receive(c.(*net.UnixConn))
	if err != nil {
		return err
	}
	table, err := Open(files)
	if err != nil {
		return err
	}
	fmt.Println("open")
	bufio.NewReader(c).ReadByte() // until the loader has closed the table
	runtime.LockOSThread()
	p, ok := table.Watch(unix.Gettid())
	if !ok {
		return fmt.Errorf("there is no room")
	}
	for range 1000 {
		time.Sleep(ms)
		if e, ok := table.Read(p); ok && e.State == Running && e.Times > 2 {
			fmt.Println("seen")
			return nil
		}
	}
	e, _ := table.Read(p)
	return fmt.Errorf("this thread is said to be %+v", e)
}

// The table is passed to an unprivileged process, and works on when the loader has closed it.
func TestHandedOver(t *testing.T) {
	table := loaded(t)
	if table == nil {
		return
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	c, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), adopting+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if err := Send(c.(*net.UnixConn), table); err != nil {
		t.Error(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "open" {
		t.Errorf("it said %q", lines.Text())
	}
	for _, f := range table.files {
		f.Close()
	}
	c.Write([]byte{1})
	rest, _ := io.ReadAll(out)
	if !lines.Scan() && !strings.Contains(string(rest), "seen") || cmd.Wait() != nil {
		t.Errorf("a process without privileges does not see itself run: %q %s", lines.Text(), rest)
	}
}
