package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/worker/workertest"
	"pegasus/callbuf"
	"pegasus/cuda"
	"pegasus/internal/testkit"
)

// TestMain makes the test binary a worker process when it is started as one.
func TestMain(m *testing.M) {
	switch os.Getenv("PEGASUS_TEST_PROCESS") {
	case "worker":
		os.Exit(Main(Config{Driver: os.Getenv("PEGASUS_TEST_DRIVER") != "", Open: func(_ Job, _ []*os.File, p AddressLayout, log *slog.Logger) (accel.Device, error) {
			return &prober{workertest.NewDevice(workertest.DeviceConfig{DeviceBase: p.DeviceBase, Quota: p.Quota, OnTimeout: p.OnTimeout}), log}, nil
		}}))
	case "sleeper":
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// prober is a fake device that, when a guest sets limit 99, attempts from within a confined worker the system calls of
// a hostile guest.
type prober struct {
	*workertest.Device
	log *slog.Logger
}

func (p *prober) NewContext(flags uint32) (accel.Context, cuda.Result) {
	c, r := p.Device.NewContext(flags)
	return &proberContext{c.(*workertest.Context)}, r
}

type proberContext struct{ *workertest.Context }

func (c *proberContext) SetLimit(limit uint32, v uint64) (uint64, cuda.Result) {
	if limit != 99 {
		return v, cuda.Success
	}
	return escapes(), cuda.Success
}

var le = binary.LittleEndian

// parent is another process of the same user; a confined worker cannot read its pid itself.
var parent = os.Getppid()

// attempt makes a system call that the filter should reject: only EPERM counts as rejected, not an error about the
// arguments.
func attempt(number uintptr, a, b, c int) error {
	if _, _, errno := unix.RawSyscall(number, uintptr(a), uintptr(b), uintptr(c)); errno == unix.EPERM {
		return errno
	}
	return nil
}

// Commands and requests by which a process makes the kernel send a signal. They are the same on all architectures with
// a filter.
const (
	fSetSig   = 10 // F_SETSIG
	fSetOwnEx = 15 // F_SETOWN_EX
	fioSetOwn = 0x8901
	siocSPGrp = 0x8902
)

// escapes returns a bit for each forbidden operation that succeeded.
func escapes() (found uint64) {
	for i, try := range []func() error{
		func() error { _, err := os.Open("/etc/passwd"); return err },
		func() error { return exec.Command("/bin/true").Run() },
		func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		func() error {
			_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
			return err
		},
		func() error { return unix.Kill(parent, unix.SIGCONT) },
		func() error { return unix.PtraceAttach(parent) },
		func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
		func() error { return os.Remove("/tmp/nothing") },
		func() error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 10000, Max: 10000}) },
		func() error {
			if os.Getuid() == 0 {
				return nil
			}
			return unix.EPERM
		},
		// Signals to another process of the same user, by every system call for them.
		func() error { return attempt(unix.SYS_TGKILL, parent, parent, int(unix.SIGCONT)) },
		func() error { return attempt(unix.SYS_TKILL, parent, int(unix.SIGCONT), 0) },
		func() error { return attempt(unix.SYS_RT_SIGQUEUEINFO, parent, int(unix.SIGCONT), 0) },
		func() error {
			return attempt(unix.SYS_RT_TGSIGQUEUEINFO, parent, parent, int(unix.SIGCONT))
		},
		func() error { return attempt(unix.SYS_PIDFD_SEND_SIGNAL, 0, int(unix.SIGCONT), 0) },
		func() error { return attempt(unix.SYS_FCNTL, 2, unix.F_SETOWN, parent) },
		func() error { return attempt(unix.SYS_FCNTL, 2, fSetSig, int(unix.SIGKILL)) },
		func() error { return attempt(unix.SYS_FCNTL, 2, fSetOwnEx, 0) },
		func() error { return attempt(unix.SYS_IOCTL, 2, fioSetOwn, 0) },
		func() error { return attempt(unix.SYS_IOCTL, 2, siocSPGrp, 0) },
		func() error { return attempt(unix.SYS_PRLIMIT64, parent, unix.RLIMIT_CPU, 0) },
		func() error { return attempt(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, parent, 19) },
		// A worker can neither shrink files that the daemon has mapped, nor take more locks in files that all workers
		// share.
		func() error { return attempt(unix.SYS_FTRUNCATE, 2, 0, 0) },
		func() error { return attempt(unix.SYS_FCNTL, 2, unix.F_OFD_SETLK, 0) },
		func() error { return attempt(unix.SYS_FCNTL, 2, unix.F_SETLKW, 0) },
		// It may interrupt its own threads, as Go's runtime does.
		func() error {
			if err := unix.Tgkill(os.Getpid(), os.Getpid(), unix.SIGURG); err != nil {
				return nil
			}
			return unix.EPERM
		},
	} {
		if err := try(); err == nil || errors.Is(err, os.ErrNotExist) {
			found |= 1 << i
		}
	}
	return found
}

// employed is a worker process with its daemon and guest, both played by the test.
type employed struct {
	log    *strings.Builder // complete when the worker has ended
	t      testing.TB
	cmd    *exec.Cmd
	daemon *net.UnixConn
	guest  *net.UnixConn
	mem    []byte // the segment
	page   *gate.Page
	bell   *gate.Bell
	g      *callbuf.Guest
	socket string
	slot   int
	ended  chan struct{} // closed when the process has ended
	status error         // then: the process's exit status
}

// promptly bounds the time in which a worker must end on its own: usually much less, but the machine may be slow and
// busy.
const promptly = 20 * time.Second

func employ(t testing.TB, change func(*Job, *Files)) *employed {
	t.Helper()
	e := &employed{t: t, socket: filepath.Join(t.TempDir(), "w.sock"), ended: make(chan struct{})}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pair := func() (*net.UnixConn, *os.File) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		must(err)
		ours, err := connOf(os.NewFile(uintptr(fds[0]), "ours"))
		must(err)
		return ours, os.NewFile(uintptr(fds[1]), "theirs")
	}
	var theirs *os.File
	e.daemon, theirs = pair()
	e.cmd = exec.Command("/proc/self/exe")
	e.cmd.Env = append(os.Environ(), "PEGASUS_TEST_PROCESS=worker", "GORACE=atexit_sleep_ms=0")
	e.cmd.ExtraFiles = []*os.File{theirs}
	var log strings.Builder
	e.cmd.Stderr, e.log = &log, &log
	must(e.cmd.Start())
	theirs.Close()
	t.Cleanup(func() {
		e.cmd.Process.Kill()
		<-e.ended
		if t.Failed() {
			t.Logf("worker: %s", log.String())
		}
	})
	go func() {
		e.status = e.cmd.Wait()
		close(e.ended)
	}()

	l, err := workertest.SmallGeometry().Layout()
	must(err)
	var f Files
	f.Segment, err = callbuf.NewFile(l)
	must(err)
	mem, err := callbuf.Map(f.Segment, l.SegmentBytes)
	must(err)
	e.guest, f.Guest = pair()
	e.page, err = gate.New()
	must(err)
	e.bell, err = gate.NewBell()
	must(err)
	e.page.Grant(gate.Terms{Classes: gate.AllClasses, Until: gate.Forever})
	e.slot, err = e.page.TakeSlot()
	must(err)
	f.Gate, f.Bell = e.page.File(), e.bell.File()
	f.Store, err = os.CreateTemp(t.TempDir(), "store")
	must(err)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: e.socket, Net: "unixpacket"})
	must(err)
	listener.SetUnlinkOnClose(false)
	f.Listener, err = listener.File()
	must(err)
	listener.Close()
	j := Job{ID: 7, Domain: "red", Generation: 1, Geometry: workertest.SmallGeometry(), Slot: e.slot, Slice: 3, DeviceBytes: 1 << 30, GuestPID: os.Getpid(), LogLevel: "DEBUG", SpinTime: 50 * time.Microsecond}
	if change != nil {
		change(&j, &f)
	}
	_, err = callbuf.Format(mem, l, 1, j.Features)
	must(err)
	must(SendJob(e.daemon, j, f))
	f.Listener.Close()
	f.Store.Close()
	f.Guest.Close()
	f.Segment.Close()
	e.mem = mem
	e.g, err = callbuf.Open(mem)
	must(err)
	t.Cleanup(func() { callbuf.Unmap(mem) })
	return e
}

func (e *employed) report(want State) Report {
	e.t.Helper()
	e.daemon.SetReadDeadline(time.Now().Add(20 * time.Second))
	r, err := ReceiveReport(e.daemon)
	if err != nil || r.State != want {
		e.t.Fatalf("report %+v, %v: want %q", r, err, want)
	}
	return r
}

// propose is one round of the exchange about addresses.
func (e *employed) propose(arena, device uint32) callbuf.MapReply {
	e.t.Helper()
	if _, err := e.guest.Write(callbuf.MapRequest{Arena: arena, Device: device}.Append(nil)); err != nil {
		e.t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := e.guest.Read(b)
	if err != nil {
		e.t.Fatal(err)
	}
	m, err := callbuf.ParseMapped(b[:n])
	if err != nil {
		e.t.Fatal(err)
	}
	return m
}

func (e *employed) serve() *employed {
	e.t.Helper()
	if m := e.propose(0, 0); m.Result != 0 || !m.ArenaOK || !m.DevOK {
		e.t.Fatalf("mapped: %+v", m)
	}
	e.report(Serving)
	return e
}

// call is like bench.call, but returns an error as part of the result.
func (e *employed) call(op cuda.Op, ctx uint32, a workertest.Appender) (cuda.Result, []byte) {
	e.t.Helper()
	alive := workertest.Patience()
	r, data, err := e.g.Call(callbuf.Header{Op: uint16(op), Context: ctx}, workertest.Payload(a), nil, func() error {
		if p := e.g.Poison(); p != 0 {
			return cuda.Result(p)
		}
		return alive()
	})
	var poison cuda.Result
	if errors.As(err, &poison) {
		return poison, nil
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return cuda.Result(r), data
}

func (e *employed) want(want cuda.Result, op cuda.Op, ctx uint32, a workertest.Appender) []byte {
	e.t.Helper()
	r, data := e.call(op, ctx, a)
	if r != want {
		e.t.Fatalf("%v: %v, want %v", op, r, want)
	}
	return data
}

// end waits for the worker's prompt end, and returns its exit status.
func (e *employed) end() error {
	e.t.Helper()
	select {
	case <-e.ended:
	case <-time.After(promptly):
		e.t.Fatalf("worker lives %v later", promptly)
	}
	return e.status
}

func TestProcess(t *testing.T) {
	e := employ(t, nil).serve()
	e.want(0, cuda.OpNop, 0, nil)
	e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
	data := e.want(0, cuda.OpMemAlloc, 1, &cuda.MemAllocArgs{Size: 100})
	var m cuda.MemAllocResult
	m.Decode(data)
	if base := callbuf.DeviceBases(3)[0]; m.Address != base {
		t.Errorf("first allocation at %#x, want %#x", m.Address, base)
	}
	data = e.want(0, cuda.OpContextSetLimit, 1, &cuda.ContextSetLimitArgs{Limit: 99})
	var l cuda.ContextSetLimitResult
	l.Decode(data)
	if os.Getuid() == 0 {
		l.Value &^= 1 << 9 // no user to assume was given
	}
	if l.Value != 0 {
		t.Errorf("from inside a worker these were possible: %b", l.Value)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", e.cmd.Process.Pid))
	if string(comm) != "pegasus-worker\n" {
		t.Errorf("comm %q, %v", comm, err)
	}
	e.guest.Close()
	if err := e.end(); err != nil {
		t.Error(err)
	}
	if r := e.report(Ended); r.Why != "" {
		t.Errorf("why: %q", r.Why)
	}
}

// A worker with a driver may do more, but none of it reaches another process.
func TestDriversWorkerSignalsNobody(t *testing.T) {
	t.Setenv("PEGASUS_TEST_DRIVER", "1")
	e := employ(t, nil).serve()
	e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
	const others = (1<<1 | 1<<4 | 1<<5 | ^uint64(1<<10-1)) &^ (7 << 22) // programs, tracing and signals; not files
	if found := le.Uint64(e.want(0, cuda.OpContextSetLimit, 1, &cuda.ContextSetLimitArgs{Limit: 99})) & others; found != 0 {
		t.Errorf("from inside a worker with a driver these were possible: %b", found)
	}
}

func TestBecomesAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: this one becomes somebody else")
	}
	e := employ(t, func(j *Job, _ *Files) { j.UID, j.GID = 12345, 12345 }).serve()
	e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
	data := e.want(0, cuda.OpContextSetLimit, 1, &cuda.ContextSetLimitArgs{Limit: 99})
	if le.Uint64(data) != 0 {
		t.Errorf("from inside a worker these were possible: %b", le.Uint64(data))
	}
}

func TestArenaElsewhere(t *testing.T) {
	e := employ(t, nil)
	e.guest.Write([]byte{0}) // a ring meant for another worker
	if m := e.propose(9, 0); m.ArenaOK || !m.DevOK {
		t.Errorf("candidate 9: %+v", m)
	}
	if m := e.propose(2, callbuf.NoWindow); !m.ArenaOK || m.Result != 0 {
		t.Errorf("candidate 2: %+v", m)
	}
	e.report(Serving)
	e.want(0, cuda.OpNop, 0, nil)
}

// A mapped arena stays where it is, though the guest proposes another address: some memory can be mapped only once. The
// worker keeps no way to map more.
func TestArenaStays(t *testing.T) {
	e := employ(t, nil)
	if m := e.propose(1, 9); !m.ArenaOK || m.DevOK {
		t.Errorf("candidate 1: %+v", m)
	}
	if m := e.propose(2, 9); m.ArenaOK {
		t.Errorf("candidate 2 after 1: %+v", m)
	}
	if m := e.propose(callbuf.NoWindow, callbuf.NoWindow); m.ArenaOK || m.Result != 0 {
		t.Errorf("no candidate: %+v", m)
	}
	e.report(Serving)
	e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
	copy(e.g.Arena(), "fake")
	e.want(0, cuda.OpModuleLoad, 1, &cuda.ModuleLoadArgs{Module: 1, ImageLength: 4, LayoutOffset: 4096, LayoutCapacity: 4096})
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", e.cmd.Process.Pid))
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.Contains(to, "pegasus-segment") {
			t.Errorf("%s is its segment", fd)
		}
	}
}

func TestNoRoomForDeviceMemory(t *testing.T) {
	e := employ(t, func(j *Job, _ *Files) { j.DeviceBytes = 1 << 60 })
	if m := e.propose(0, 0); !m.ArenaOK || m.DevOK || m.Result != 0 {
		t.Errorf("candidate 0: %+v", m)
	}
	if m := e.propose(0, callbuf.NoWindow); cuda.Result(m.Result) != cuda.ErrorSystemNotReady {
		t.Errorf("no candidate left: %+v", m)
	}
	if r := e.report(Ended); !strings.Contains(r.Why, "ulimit -v") {
		t.Errorf("why: %q", r.Why)
	}
	e.end()
}

func TestBadMapEndsWorker(t *testing.T) {
	e := employ(t, nil)
	e.guest.Write([]byte("nonsense"))
	if r := e.report(Ended); !strings.Contains(r.Why, "map of 8 bytes") {
		t.Errorf("why: %q", r.Why)
	}
	if e.end() == nil {
		t.Error("exit status 0")
	}
	if p := e.g.Poison(); cuda.Result(p) != cuda.ErrorSystemNotReady {
		t.Errorf("poison %d", p)
	}
}

func TestGuestKilledWhileKernelRuns(t *testing.T) {
	sleeper := exec.Command("/proc/self/exe")
	sleeper.Env = append(os.Environ(), "PEGASUS_TEST_PROCESS=sleeper")
	fd := -1
	sleeper.SysProcAttr = &syscall.SysProcAttr{PidFD: &fd}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sleeper.Process.Kill(); sleeper.Wait() })
	e := employ(t, func(_ *Job, f *Files) { f.GuestProcess = os.NewFile(uintptr(fd), "pidfd") }).serve()
	e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
	copy(e.g.Arena(), "fake")
	e.want(0, cuda.OpModuleLoad, 1, &cuda.ModuleLoadArgs{Module: 1, ImageLength: 4, LayoutOffset: 4096, LayoutCapacity: 4096})
	launch := &cuda.LaunchArgs{Function: cuda.LaunchFunction(1, 1), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 8)}
	e.g.Send(callbuf.Header{Op: uint16(cuda.OpLaunch), Context: 1}, workertest.Payload(launch), workertest.Patience())
	e.want(0, cuda.OpNop, 0, nil)
	sleeper.Process.Kill()
	sleeper.Wait()
	if err := e.end(); err != nil {
		t.Error(err)
	}
}

func TestTimeoutEndsWorker(t *testing.T) {
	e := employ(t, nil).serve()
	e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
	copy(e.g.Arena(), "fake")
	e.want(0, cuda.OpModuleLoad, 1, &cuda.ModuleLoadArgs{Module: 1, ImageLength: 4, LayoutOffset: 4096, LayoutCapacity: 4096})
	launch := &cuda.LaunchArgs{Function: cuda.LaunchFunction(1, 3), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 8)}
	e.g.Send(callbuf.Header{Op: uint16(cuda.OpLaunch), Context: 1}, workertest.Payload(launch), workertest.Patience())
	e.want(cuda.ErrorLaunchTimeout, cuda.OpContextSynchronize, 1, nil)
	e.end()
	if p := e.g.Poison(); cuda.Result(p) != cuda.ErrorLaunchTimeout {
		t.Errorf("poison %d", p)
	}
}

func TestAdoption(t *testing.T) {
	e := employ(t, func(_ *Job, f *Files) {
		hardware, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { hardware.Close() })
		f.Hardware = []*os.File{hardware}
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		f.GuestProcess = os.NewFile(uintptr(fd), "pidfd")
		t.Cleanup(func() { f.GuestProcess.Close() })
	}).serve()
	e.daemon.Close()
	e.want(0, cuda.OpNop, 0, nil)
	for range 3 {
		c, err := DialSurvivor(e.socket)
		if err != nil {
			t.Fatal(err)
		}
		s, f, err := ReceiveSurvivor(c)
		if err != nil {
			t.Fatal(err)
		}
		if s.PID != e.cmd.Process.Pid || s.Job.Domain != "red" || s.Job.Slice != 3 || s.Job.Slot != e.slot {
			t.Errorf("survivor %+v", s)
		}
		if len(f.Hardware) != 1 || f.GuestProcess == nil || f.Store == nil {
			t.Errorf("files %+v", f)
		}
		closeAll(append(f.Hardware, f.GuestProcess, f.Store))
		page, err := gate.Adopt(f.Gate)
		if err != nil {
			t.Fatal(err)
		}
		var st gate.Statistics
		testkit.Eventually(t, "calls are counted, which happens when there are no more to serve", func() bool {
			st, _ = page.Statistics(s.Job.Slot)
			return st.Calls != 0
		})
		if st.PID != s.PID {
			t.Errorf("statistics %+v", st)
		}
		e.daemon = c
		f.Bell.Close()
		e.want(0, cuda.OpNop, 0, nil)
	}
	SendOrder(e.daemon, Order{End: int32(cuda.ErrorSystemNotReady), Why: "the host said so"})
	if r := e.report(Ended); r.Why != "the host said so" {
		t.Errorf("why: %q", r.Why)
	}
	e.end()
	e.want(cuda.ErrorSystemNotReady, cuda.OpNop, 0, nil)
}

func TestNoJob(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := connOf(os.NewFile(uintptr(fds[0]), "a"))
	b, _ := connOf(os.NewFile(uintptr(fds[1]), "b"))
	a.Close()
	if err := Run(Config{}, b); !errors.Is(err, io.EOF) {
		t.Errorf("a worker without a daemon: %v", err)
	}
}
