package test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/cuda"
	"pegasus/frontend"
)

var goodHello = callbuf.Hello{Version: callbuf.Version}.Append(nil)

// answered sends a hello and returns the answer.
func answered(t *testing.T, path string, hello []byte, fds ...int) (callbuf.Welcome, error) {
	t.Helper()
	c, err := connect(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.WriteMsgUnix(hello, unix.UnixRights(fds...), nil); err != nil {
		t.Fatal(err)
	}
	w, got, err := hear(c)
	for _, fd := range got {
		unix.Close(fd)
	}
	return w, err
}

// promptly fails the test unless a correct guest of another domain is served at once.
func (h *host) promptly(what string) {
	h.t.Helper()
	start := time.Now()
	c, err := frontend.Dial(h.socket("good"))
	if err != nil {
		h.t.Fatalf("while %s: %v", what, err)
	}
	defer c.Close()
	if err := c.Ping(); err != nil {
		h.t.Fatalf("while %s: %v", what, err)
	}
	took := time.Since(start)
	h.t.Logf("while %s another domain's guest is served in %v", what, took)
	if took > 10*time.Second {
		h.t.Errorf("while %s another domain's guest waits %v", what, took)
	}
}

// A connection with anything else than a guest's messages is rejected, and leaves nothing behind.
func TestRendezvousAbuse(t *testing.T) {
	h := startHost(t, hostileDomains)
	before := h.quiet()
	bad := h.socket("bad")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	gifts := make([]int, 20)
	for i := range gifts {
		gifts[i] = int(null.Fd())
	}

	t.Run("hello", func(t *testing.T) {
		for name, hello := range map[string][]byte{
			"half":     goodHello[:16],
			"twice":    append(append([]byte{}, goodHello...), goodHello...),
			"version":  callbuf.Hello{Version: callbuf.Version + 1}.Append(nil),
			"no magic": make([]byte, callbuf.HelloBytes),
			"a lot":    make([]byte, 100<<10),
		} {
			w, err := answered(t, bad, hello)
			if err != nil || w.Result != int32(cuda.ErrorSystemDriverMismatch) || w.Message == "" {
				t.Errorf("hello %s: %+v, %v", name, w, err)
			}
		}
		if w, err := answered(t, bad, goodHello, gifts...); err != nil || w.Result != 0 {
			t.Errorf("hello with descriptors: %+v, %v", w, err)
		}
	})
	t.Run("map", func(t *testing.T) {
		for _, m := range []callbuf.MapRequest{{Arena: 4}, {Arena: 1 << 31, Device: 1 << 31}, {Arena: ^uint32(0) - 1, Device: 4}, {Device: 99}} {
			r := welcomed(t, bad)
			for {
				reply, err := r.propose(m.Arena, m.Device)
				if err != nil {
					break // a few suffice
				}
				if reply.ArenaOK && reply.DevOK {
					t.Fatalf("%+v was taken: %+v", m, reply)
				}
			}
			eventually(t, soon, "the worker ends", func() bool { return !running(r.pid) })
			r.leave()
		}
		r := welcomed(t, bad)
		defer r.leave()
		r.worker.WriteMsgUnix(callbuf.MapRequest{}.Append(nil)[:7], unix.UnixRights(gifts...), nil)
		eventually(t, soon, "the worker ends", func() bool { return !running(r.pid) })
	})
	t.Run("hang up", func(t *testing.T) {
		for step := range 5 {
			for range 3 {
				hangUp(t, bad, step)
			}
		}
		h.promptly("guests hang up")
	})
	h.settled(before)
	h.sound()
}

// welcomed returns a guest that has a worker and has not yet agreed on addresses.
func welcomed(t *testing.T, path string) *raw {
	t.Helper()
	c, err := connect(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(goodHello); err != nil {
		t.Fatal(err)
	}
	w, fds, err := hear(c)
	if err != nil || w.Result != 0 {
		t.Fatalf("%+v, %v", w, err)
	}
	unix.Close(fds[0])
	f := os.NewFile(uintptr(fds[1]), "worker")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	return &raw{worker: conn.(*net.UnixConn), pid: int(w.WorkerPID), mem: mem}
}

// hangUp performs some steps of the rendezvous and hangs up.
func hangUp(t *testing.T, path string, step int) {
	t.Helper()
	if step >= 2 {
		r := welcomed(t, path)
		if step >= 3 {
			r.worker.Write(callbuf.MapRequest{Arena: callbuf.NoWindow}.Append(nil))
		}
		if step >= 4 {
			r.worker.Read(make([]byte, 100))
		}
		r.leave()
		return
	}
	c, err := connect(path)
	if err != nil {
		t.Fatal(err)
	}
	if step == 1 {
		c.Write(goodHello)
	}
	c.Close()
}

// A thousand silent connections block only their own domain, and only while they last.
func TestSilentConnections(t *testing.T) {
	h := startHost(t, hostileDomains)
	before := h.quiet()
	var silent []io.Closer
	for range 1000 {
		// Connections beyond the socket's queue would block: those do not exist yet.
		c, err := connectNow(h.socket("bad"))
		if err != nil {
			break
		}
		silent = append(silent, c)
	}
	t.Logf("%d connections", len(silent))
	if len(silent) < 64 {
		t.Fatalf("only %d connections", len(silent))
	}
	h.promptly("connections are held open")
	for _, c := range silent {
		c.Close()
	}
	if err := newContext(t, h.dial("bad")).Destroy(); err != nil {
		t.Error(err)
	}
	before.guests++
	before.fds += 7 // pidfds of guest and worker, the socket to it, its gate, its queue for engines, and the domain's device segments
	before.workers = append(before.workers, 0)
	h.settled(before)
	h.sound()
}

// connectNow connects, or fails if it would block.
func connectNow(path string) (io.Closer, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "silent")
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// shortGuest is a guest that connects, calls once and dies, or dies at once. Its arguments: socket, and "die" for the
// latter.
func shortGuest(args []string) error {
	r, err := enter(args[0])
	if err != nil {
		return err
	}
	if len(args) > 1 && args[1] == "die" {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return r.ping()
}

// Guests that start and end at the highest rate, as of a fork bomb, delay no other domain and leave nothing behind.
func TestShortGuests(t *testing.T) {
	const guests, atOnce = 200, 8
	h := startHost(t, hostileDomains)
	before := h.quiet()
	var all sync.WaitGroup
	todo := make(chan int)
	for range atOnce {
		all.Go(func() {
			for i := range todo {
				args := []any{h.socket("bad")}
				if i%2 == 0 {
					args = append(args, "die")
				}
				out, err := actor("short", args...).CombinedOutput()
				var exit *exec.ExitError
				killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled()
				if err != nil && !(i%2 == 0 && killed) {
					t.Errorf("guest %d: %v\n%s", i, err, out)
				}
			}
		})
	}
	start := time.Now()
	for i := range guests {
		todo <- i
		if i == guests/3 || i == guests*2/3 {
			h.promptly("short guests come and go")
		}
	}
	close(todo)
	all.Wait()
	t.Logf("%d guests in %v", guests, time.Since(start).Round(time.Millisecond))
	h.settled(before)
	h.sound()
}

// A user without access to a domain's socket is none of its guests.
func TestStrangerIsNoGuest(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: this one becomes somebody else")
	}
	h := newHost(t, oneAccelerator+`
[[domain]]
name = "mine"
[[domain]]
name = "open"
socket_mode = "0666"
`)
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.start()
	program := h.dir + "/stranger" // where other users may execute it
	if out, err := exec.Command("cp", os.Args[0], program).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for domain, want := range map[string]string{"mine": "permission denied", "open": ""} {
		cmd := exec.Command(program, h.socket(domain))
		cmd.Env = []string{"PEGASUS_TEST_ACT=short"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242}}
		out, err := cmd.CombinedOutput()
		if (err != nil) != (want != "") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", domain, err, out)
		}
	}
}

// A user with access to a domain can run programs there without access to the control socket.
func TestRunWithoutControl(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: this one becomes somebody else")
	}
	h := newHost(t, oneAccelerator+"[[domain]]\nname = \"mine\"\n[[domain]]\nname = \"open\"\nsocket_mode = \"0666\"\n")
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.start()
	if out, err := exec.Command("cp", built(t, "bin/pegasus"), built(t, "guest/libcuda.so.1"), h.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for domain, want := range map[string]string{"mine": "the daemon at " + h.dir + " doesn't let this user control it", "open": "here"} {
		cmd := exec.Command(h.dir+"/pegasus", "run", "--runtime-dir", h.dir, "--domain", domain, "--", "/bin/echo", "here")
		cmd.Env = []string{"PEGASUS_LIBCUDA=" + h.dir + "/libcuda.so.1"}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242}}
		out, err := cmd.CombinedOutput()
		if (err == nil) != (domain == "open") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", domain, err, out)
		}
	}
}

// Exceeding a limit of a domain or a process is an error that names the limit.
func TestGuestLimits(t *testing.T) {
	h := startHost(t, oneAccelerator+"[[domain]]\nname = \"bad\"\nprocesses = 2\n")
	r, err := enter(h.socket("bad"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.leave()
	for id := uint32(1); id < callbuf.MaxContexts; id++ {
		if _, err := r.call(cuda.OpContextCreate, id, &cuda.ContextCreateArgs{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []uint32{0, 1, callbuf.MaxContexts, 1 << 31, ^uint32(0)} {
		if _, err := r.call(cuda.OpContextCreate, id, &cuda.ContextCreateArgs{}); err == nil {
			t.Errorf("context %d was made too", id)
		}
	}
	second, err := enter(h.socket("bad"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enter(h.socket("bad")); err == nil || !strings.Contains(err.Error(), "processes = 2") {
		t.Errorf("a third process hears %v", err)
	}
	second.leave()
	eventually(t, soon, "there is room again", func() bool {
		again, err := enter(h.socket("bad"))
		if err == nil {
			again.leave()
		}
		return err == nil
	})
	// Ids of one kind are exhausted, and the next call that synchronises returns an error.
	for kind, make := range map[string]func(id uint64) (cuda.Op, arguments){
		"stream": func(id uint64) (cuda.Op, arguments) {
			return cuda.OpStreamCreate, &cuda.StreamCreateArgs{Stream: 16 + id}
		},
		"event": func(id uint64) (cuda.Op, arguments) { return cuda.OpEventCreate, &cuda.EventCreateArgs{Event: 1 + id} },
	} {
		t.Run(kind, func(t *testing.T) {
			if err := r.queueMany(65536, make); err != nil {
				t.Fatalf("the first 65536: %v", err)
			}
			err := r.queueMany(3, func(id uint64) (cuda.Op, arguments) { return make(id + 1<<20) })
			wantResult(t, err, cuda.ErrorOutOfMemory)
		})
	}
	if n := resident(t, r.pid); n > 128<<20 {
		t.Errorf("the worker holds %d MiB", n>>20)
	}
	h.sound()
}

// queueMany queues n calls of context 1 and waits for them.
func (r *raw) queueMany(n int, make func(i uint64) (cuda.Op, arguments)) error {
	for i := range uint64(n) {
		op, a := make(i)
		if err := r.queue(op, 0, a); err != nil {
			return fmt.Errorf("%v, the %dth: %w", op, i, err)
		}
	}
	_, err := r.call(cuda.OpContextSynchronize, 1, nil)
	return err
}

// queue queues a call of context 1.
func (r *raw) queue(op cuda.Op, stream uint64, a arguments) error {
	return r.guest.Send(callbuf.Header{Op: uint16(op), Context: 1, Stream: stream}, a.Append(nil), r.patience(10*time.Second))
}
