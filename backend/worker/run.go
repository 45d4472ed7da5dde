// Package worker is the process that serves one guest process: it receives its job from the daemon, agrees with the
// guest on addresses, opens the device, gives up its privileges (package confine), serves the guest's calls (package
// session), and watches the guest process and the daemon meanwhile. A worker is started by the daemon and independent
// of it afterwards, so that a guest process can crash its own worker only, as on a machine of its own.
//
// Callers: cmd/pegasusd and cmd/pegasus-nvidia, with the function that opens a device. The daemon communicates with the
// worker over one socket (job.go).
//
// Trust boundary: the worker trusts the daemon and the device, and nothing in the guest.
//
// The worker's mutex guards the connection to the daemon, and is held while a report is sent.
package worker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/worker/confine"
	"pegasus/backend/worker/session"
	"pegasus/callbuf"
	"pegasus/cuda"
	"pegasus/internal/logs"
)

// Config is a worker program's configuration.
type Config struct {
	// Open opens the device of a job. The worker keeps ownership of hardware, the Job's files for the device, which the
	// next daemon needs.
	Open func(j Job, hardware []*os.File, p AddressLayout, log *slog.Logger) (accel.Device, error)
	// Driver reports that a third-party library in this process drives the devices: it opens files of its own, issues
	// ioctls and maps code.
	Driver bool
	// Log receives the log lines; nil: os.Stderr.
	Log io.Writer
}

// Main is the main function of a worker process. Descriptor 3 is the socket to the daemon. It returns the exit status.
func Main(c Config) int {
	if c.Log == nil {
		c.Log = os.Stderr
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end before the worker
	runtime.MemProfileRate = 0     // no heap profile is read
	debug.SetGCPercent(25)         // there are many workers, each with a small live heap: 1 MiB instead of 4
	go warmUpGC()
	conn, err := connOf(os.NewFile(3, "daemon"))
	if err != nil {
		logs.New(c.Log, nil).Error("connect a worker to the daemon", "err", err)
		return 2
	}
	if err := Run(c, conn); err != nil && !errors.Is(err, io.EOF) {
		return 1
	}
	return 0
}

// A worker collects garbage often in its first two minutes, since loading modules leaves much, and the runtime grows
// its own lists one collection at a time; after that less often, and only after calls.
const (
	earlyCollections = 60
	earlyPause       = 2 * time.Second
	laterPause       = 10 * time.Second
)

// collectGarbage collects garbage and returns memory to the host while the session lasts. By default the runtime
// collects the heap of a process with little garbage every two minutes, lets it grow between, and keeps its size; there
// are many workers.
func (w *worker) collectGarbage(over <-chan struct{}) {
	called, pause := uint64(0), earlyPause
	for collected := 0; ; {
		select {
		case <-over:
			return
		case <-time.After(pause):
		}
		if n := w.member.Called(); n != called {
			called = n
			debug.FreeOSMemory()
			collected++
		}
		if collected == earlyCollections {
			pause = laterPause
		}
	}
}

// warmUpGC makes the runtime allocate its memory for garbage collection while the worker waits for its job, and not in
// the two minutes after.
func warmUpGC() {
	for range 3 {
		runtime.GC()
	}
}

// connOf returns a connection for a socket and closes the file.
func connOf(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("%T: not a unix socket", c)
	}
	return u, nil
}

// Run receives a job and executes it. It returns when the guest process has ended, and io.EOF if the daemon ended
// before it sent a job.
func Run(c Config, daemon *net.UnixConn) error {
	var j Job
	l, err := receive(daemon, &j)
	if err != nil {
		return err
	}
	var f Files
	if err := f.assign(&j, l); err != nil {
		closeAll(l)
		return err
	}
	defer f.Close()
	lines := &rateLimiter{to: c.Log, note: logs.New(c.Log, nil)}
	w := &worker{config: c, job: j, files: f, daemon: daemon, lines: lines}
	w.level.UnmarshalText([]byte(j.LogLevel)) // an unknown level is the default
	w.log = logs.New(lines, &w.level).With("domain", j.Domain, "worker", j.ID, "guest", j.GuestPID)
	if err = w.run(); err != nil {
		w.log.Error("worker ended", "err", err)
	}
	return err
}

// worker is a worker process with a job.
type worker struct {
	config Config
	job    Job
	files  Files
	lines  *rateLimiter // writes log's lines
	level  slog.LevelVar
	log    *slog.Logger

	layout   callbuf.Layout
	host     *callbuf.Host
	member   *gate.Member
	device   accel.Device
	can      accel.Capabilities // of device
	guest    *net.UnixConn
	guestFD  int               // of guest, valid until serve returns
	listener *net.UnixListener // for future daemons; nil if there is none

	mu     sync.Mutex
	daemon *net.UnixConn // nil while there is none
}

func (w *worker) run() (err error) {
	setName(&w.job)
	defer func() {
		r := Report{State: Ended}
		if err != nil {
			r.Why = err.Error()
		}
		w.report(r)
	}()
	if err := w.attach(); err != nil {
		return err
	}
	s, err := w.open()
	if err != nil {
		w.host.Poison(int32(cuda.ErrorSystemNotReady))
		return err
	}
	if err := confine.Apply(w.job.UID, w.job.GID, w.config.Driver); err != nil {
		s.End(cuda.ErrorSystemNotReady, err.Error())
		return err
	}
	w.report(Report{State: Serving})
	w.serve(s)
	if why := s.Why(); why != "" {
		return errors.New(why)
	}
	return nil
}

// serve serves until the session has ended and its contexts are destroyed, or the time for that is over.
func (w *worker) serve(s *session.Session) {
	var watching sync.WaitGroup
	watching.Go(func() { w.watchGuest(s) })
	watching.Go(func() { w.serveDaemons(s) })
	over := make(chan struct{})
	go w.collectGarbage(over)
	s.Poll()
	close(over)
	if s.Close() {
		w.device.Close()
	} else {
		w.log.Warn("contexts not destroyed in time; leaving running work to the kernel")
	}
	unix.Shutdown(w.guestFD, unix.SHUT_RDWR) // ends watchGuest, and signals the guest
	w.hangUp()
	watching.Wait()
	w.guest.Close()
}

// reportTimeout bounds the wait for a daemon that does not read.
const reportTimeout = 100 * time.Millisecond

func (w *worker) report(r Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.daemon != nil {
		if err := sendNow(w.daemon, r, nil); errors.Is(err, unix.EAGAIN) {
			w.daemon.SetWriteDeadline(time.Now().Add(reportTimeout))
			send(w.daemon, r, nil) // an ended daemon does not need it
		}
	}
}

// reportFault reports a kernel's fault. The kernel's engine is held meanwhile, so a report that would block is dropped.
func (w *worker) reportFault(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.daemon != nil {
		sendNow(w.daemon, Report{State: Faulted, Why: text}, nil)
	}
}

// attach maps and opens the job's files.
func (w *worker) attach() (err error) {
	if w.layout, err = w.job.Geometry.Layout(); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	parts := w.job.parts(w.layout)
	if err := parts.CheckFile(w.layout.SegmentBytes, w.files.Segment); err != nil {
		return fmt.Errorf("job: segment: %w", err)
	}
	front, _ := parts.Part(0, w.layout.ArenaOffset)
	mem, err := callbuf.MapParts(w.files.Segment, front)
	if err != nil {
		return err
	}
	w.host = callbuf.NewHost(mem, w.layout, w.job.Features)
	page, err := gate.Map(w.files.Gate)
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	w.lines.use(page.Log())
	bell, err := gate.OpenBell(w.files.Bell)
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if w.job.Slot < 0 || w.job.Slot >= gate.Slots {
		return fmt.Errorf("job: slot %d", w.job.Slot)
	}
	w.member = gate.Join(page, bell, w.job.Slot)
	w.member.Serves(w.job.GuestPID)
	guest := w.files.Guest
	w.files.Guest = nil
	if w.guest, err = connOf(guest); err != nil {
		return fmt.Errorf("job: guest socket: %w", err)
	}
	if w.files.Listener != nil {
		l, err := net.FileListener(w.files.Listener)
		if err != nil {
			return fmt.Errorf("job: listener: %w", err)
		}
		w.listener, _ = l.(*net.UnixListener)
	}
	raw, err := w.guest.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { w.guestFD = int(fd) })
}

// open agrees with the guest on addresses, opens the device there, and replies to the guest.
func (w *worker) open() (*session.Session, error) {
	layout, last, err := agreeOnAddresses(w.guest, w.files.Segment, w.layout, &w.job)
	if err != nil {
		return nil, err
	}
	w.host.UseArena(layout.Arena)
	w.files.Segment.Close() // all parts in use are mapped
	w.files.Segment = nil
	s := session.New(w.host, w.member, w.job.SpinTime, w.log)
	layout.Shared, _ = w.host.Arena(0, w.layout.ArenaBytes)
	layout.Quota = w.quota
	layout.Swapped = w.member.Swapped
	layout.Turn = turn{w.member}
	layout.OnTimeout = func() { s.Abandon(cuda.ErrorLaunchTimeout, "a kernel ran for longer than its timeout") }
	layout.OnFault = func(r cuda.Result, text string) {
		if r != cuda.ErrorAssert { // assert has printed the failed expression
			w.host.LastWords(text)
		}
		w.reportFault(text)
	}
	var d accel.Device
	err = w.member.Reserve(gate.HostMemory, w.layout.ArenaBytes)
	if err == nil {
		d, err = w.config.Open(w.job, w.files.Hardware, layout, w.log)
	}
	if err != nil {
		r := cuda.ErrorSystemNotReady
		if errors.Is(err, gate.ErrQuota) {
			r = cuda.ErrorOutOfMemory
		}
		answerMap(w.guest, r, true, true)
		return nil, fmt.Errorf("open the accelerator: %w", err)
	}
	w.device, w.can = d, d.Capabilities()
	s.Use(d)
	s.ShareMemory(w.files.Store)
	ok := last.Device != callbuf.NoWindow
	return s, answerMap(w.guest, cuda.Success, last.Arena != callbuf.NoWindow, ok)
}

// turn implements accel.Turn with the domain's gate.
type turn struct{ member *gate.Member }

func (t turn) Held(c accel.Class) bool { return t.member.HasTurn(gate.ClassOf(c)) }

func (t turn) Await(c accel.Class, stop func() bool) { t.member.AwaitTurn(gate.ClassOf(c), stop) }

func (t turn) Queued(c accel.Class, by int) { t.member.Queued(gate.ClassOf(c), by) }

func (w *worker) quota(delta int64) bool {
	if delta < 0 {
		w.member.Return(gate.DeviceMemory, uint64(-delta))
		return true
	}
	return w.member.Reserve(gate.DeviceMemory, uint64(delta)) == nil
}
