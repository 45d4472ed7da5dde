package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/callbuf"
)

// container is a mount namespace in which a domain's directory is mounted where a container would have it.
type container struct {
	h     *host
	pid   int
	mount string
}

// contain makes a container of an existing domain.
func (h *host) contain(domain string) *container {
	h.t.Helper()
	c := &container{h: h, mount: filepath.Join(h.t.TempDir(), "mount")}
	if err := os.Mkdir(c.mount, 0o755); err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount --bind "$0" "$1" && mount -o remount,ro,bind "$1" && echo ready && exec cat`, filepath.Dir(h.socket(domain)), c.mount)
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(out, ready); err != nil {
		h.t.Fatalf("unshare (as root): %v", err)
	}
	c.pid = cmd.Process.Pid
	return c
}

// guest starts a program in the container that connects to the mounted socket.
func (c *container) guest() *guest {
	c.h.t.Helper()
	return c.h.served(exec.Command("nsenter", "--mount", "--target", fmt.Sprint(c.pid), os.Args[0]), filepath.Join(c.mount, "sock"))
}

// A container computes on over restarts of the daemon, in its old processes and in new ones.
func TestContainerOverRestarts(t *testing.T) { containerOverRestarts(t, 3) }

func containerOverRestarts(t *testing.T, restarts int) {
	h := newHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\n")
	h.mustCreate(control.CreateParams{Domain: "pod", Settings: map[string]string{"credits": "512"}, Holder: "pod-1"})
	c := h.contain("pod")
	old := c.guest()
	old.must("context")
	for n := range restarts {
		if n%2 == 0 {
			h.stop()
		} else {
			h.crash()
		}
		h.start()
		old.must("busy 20ms")
		fresh := c.guest()
		fresh.must("context")
		fresh.must("busy 20ms")
		fresh.kill()
	}
	if d := h.domain("pod"); d.Credits != 512 || d.Owner != control.OwnerHeld {
		t.Errorf("%+v", d)
	}
}

func (h *host) mustCreate(q control.CreateParams) {
	h.t.Helper()
	if _, err := h.api().Create(bg, q); err != nil {
		h.t.Fatal(err)
	}
}

// Created domains survive a crash without any process, with their settings; expired leases and
// released domains don't.
func TestDomainsWithoutProcesses(t *testing.T) {
	h := newHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\n")
	h.mustCreate(control.CreateParams{Domain: "kept", Settings: map[string]string{"memory": "64MiB", "socket_mode": "0606"}})
	h.mustCreate(control.CreateParams{Domain: "brief", Expires: int64(time.Millisecond)})
	h.eventually("a lease expires", func() bool { return !h.knows("brief") })
	h.hold("program")
	h.crash() // at once: create has been recorded
	h.start()
	if d := h.domain("kept"); d.MemoryQuota != 64<<20 || d.Owner != control.OwnerHeld {
		t.Errorf("%+v", d)
	}
	if info, err := os.Stat(h.socket("kept")); err != nil || info.Mode().Perm() != 0o606 {
		t.Errorf("its socket: %v, %v", info, err)
	}
	if d := h.domain("program"); d.Owner != control.OwnerGuest || len(d.Programs) != 1 || d.Programs[0] != os.Getpid() {
		t.Errorf("%+v", d)
	}
	h.guest("kept").must("ping")
	if err := h.api().Release(bg, control.LeaseParams{Domain: "kept"}); err != nil {
		t.Fatal(err)
	}
	h.guest("kept").must("ping") // it may enter, while other processes are in it
	if d := h.domain("kept"); d.Owner != control.OwnerGuest {
		t.Errorf("%+v", d)
	}
}

// A domain made by programs is removed with the last process that has or holds it, and leaves nothing.
func TestGuestDomainGoes(t *testing.T) {
	h := newHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\n")
	for _, name := range []string{"", "a/b"} {
		holder := exec.Command(os.Args[0], filepath.Join(h.dir, control.SocketName), name)
		holder.Env = append(os.Environ(), "BECOME=holder")
		if out, err := holder.CombinedOutput(); err == nil {
			t.Errorf("domain %q was held: %s", name, out)
		}
	}
	program := exec.Command(os.Args[0], filepath.Join(h.dir, control.SocketName), "web")
	program.Env = append(os.Environ(), "BECOME=holder")
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	h.eventually("the program holds it", func() bool { return h.knows("web") })
	g := h.guest("web")
	in.Close()
	program.Wait()
	h.eventually("the program has ended", func() bool { return len(h.domain("web").Programs) == 0 })
	g.must("ping")
	if d := h.domain("web"); d.Owner != control.OwnerGuest || d.Processes != 1 {
		t.Errorf("%+v", d)
	}
	g.kill()
	h.eventually("it is gone", func() bool { return !h.knows("web") })
	if left, _ := os.ReadDir(filepath.Join(h.dir, "domains")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// holdUntilTold holds a domain, as `pegasus run` does, until standard input ends.
func holdUntilTold(path, domain string) int {
	c, err := client.Dial(path)
	if err == nil {
		_, err = c.Hold(bg, control.HoldParams{Domain: domain})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// A domain with processes is removed when they have ended, or by ending their use of the accelerator.
func TestRemoveWithGuests(t *testing.T) {
	h := newHost(t, twoDomains)
	remove := func(mode string) error {
		c, err := client.Dial(filepath.Join(h.dir, control.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Remove(bg, control.RemoveParams{Domain: "pod", Mode: mode})
	}
	make := func() *guest {
		h.mustCreate(control.CreateParams{Domain: "pod"})
		g := h.guest("pod")
		g.must("context")
		return g
	}
	g := make()
	var refused *control.Error
	if err := remove(control.RemoveRefuse); !errors.As(err, &refused) || refused.Code != control.CodeConflict || !strings.Contains(err.Error(), "it has 1 guest process") {
		t.Errorf("refuse: %v", err)
	}
	g.must("ping")
	done := asynchronously(func() error { return remove(control.RemoveWait) })
	h.eventually("it is being removed", func() bool { return h.domain("pod").Removing })
	g.must("ping")
	if exists(h.socket("pod")) {
		t.Error("a process can still enter")
	}
	select {
	case err := <-done:
		t.Errorf("with a process in it, the removal returned: %v", err)
	default:
	}
	g.kill()
	if err := <-done; err != nil {
		t.Errorf("wait: %v", err)
	}
	g = make()
	if err := remove(control.RemoveEnd); err != nil {
		t.Errorf("end: %v", err)
	}
	if said := g.sendOrder("ping"); !strings.HasPrefix(said, "error:") {
		t.Errorf("a guest of a domain that is no more hears %q", said)
	}
	if h.knows("pod") || alive(g.worker) {
		t.Error("it goes on")
	}

	// A removal continues after a restart.
	g = make()
	done = asynchronously(func() error { return remove(control.RemoveWait) })
	h.eventually("it is being removed", func() bool { return h.domain("pod").Removing })
	h.crash()
	<-done
	h.start()
	if d := h.domain("pod"); !d.Removing || d.Processes != 1 || exists(h.socket("pod")) {
		t.Errorf("%+v", d)
	}
	g.must("ping")
	g.kill()
	h.eventually("it is gone", func() bool { return !h.knows("pod") })
}

func asynchronously(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

// Created and removed domains leave nothing: no files, descriptors, goroutines, memory or names.
func TestManyLives(t *testing.T) { manyLives(t, 1000) }

func manyLives(t *testing.T, domains int) {
	h := newHostHere(t, "[daemon]\nworker_pool = 0\n[[accelerator]]\nname = \"soft0\"\nmemory = \"64MiB\"\n")
	c := h.api()
	live := func(n int) {
		for i := range n {
			name := fmt.Sprint("pod-", i)
			if _, err := c.Create(bg, control.CreateParams{Domain: name, Settings: map[string]string{"credits": "7"}, Holder: name, Expires: int64(time.Hour)}); err != nil {
				t.Fatal(err)
			}
			var err error
			if i%2 == 0 {
				err = c.Release(bg, control.LeaseParams{Domain: name, Holder: name})
			} else {
				err = c.Remove(bg, control.RemoveParams{Domain: name, Mode: control.RemoveEnd})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	live(300) // the journal of events fills up
	before := measure(t)
	start := time.Now()
	live(domains)
	took := time.Since(start)
	var after measured
	h.eventually("goroutines and descriptors end", func() bool {
		after = measure(t)
		return after.files <= before.files && after.goroutines <= before.goroutines
	})
	t.Logf("%d domains in %v: %+v before, %+v after", domains, took, before, after)
	if grown := int64(after.heap) - int64(before.heap); grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	names, err := c.Domains(bg)
	if err != nil || len(names) != 0 {
		t.Errorf("domains %v, %v", names, err)
	}
	if left, _ := os.ReadDir(filepath.Join(h.dir, "domains")); len(left) != 0 {
		t.Errorf("left behind: %d files, the first %v", len(left), left[0])
	}
	if state, err := os.ReadFile(filepath.Join(h.dir, "state.json")); err != nil || strings.Contains(string(state), "pod-") {
		t.Errorf("the state is %.200s, %v", state, err)
	}
}

// newHostHere is newHost with the daemon in this process, where its goroutines and memory can be counted, and
// the race detector sees it.
func newHostHere(t *testing.T, config string) *host {
	t.Helper()
	h := prepareHost(t, config)
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		ended <- run([]string{"--runtime-dir", h.dir, "--config", filepath.Join(h.dir, "pegasus.toml")}, io.Discard, log)
	}()
	t.Cleanup(func() {
		if err := h.api().Shutdown(bg, control.ShutdownParams{}); err != nil {
			t.Error(err)
		}
		if code := <-ended; code != 0 {
			t.Errorf("the daemon ended with %d", code)
		}
		log.Close()
	})
	h.eventually("the daemon is ready", func() bool { // its socket is bound a moment before it listens
		c, err := client.Dial(filepath.Join(h.dir, control.SocketName))
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	return h
}

// Domains are made and removed while processes connect to them, are served, and leave: no process waits for
// ever, and nothing of them remains.
func TestLivesUnderConnections(t *testing.T) {
	h := newHostHere(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"64MiB\"\n")
	names := []string{"pod-0", "pod-1", "pod-2"}
	var owners, guests sync.WaitGroup
	over := make(chan struct{})
	for i := range 4 {
		c := h.api()
		owners.Go(func() {
			defer c.Close()
			for n := range 25 {
				name, holder := names[(i+n)%len(names)], fmt.Sprint("holder-", i%2)
				_, created := c.Create(bg, control.CreateParams{Domain: name, Holder: holder})
				_, set := c.Set(bg, control.SetParams{Domain: name, Settings: map[string]string{"credits": fmt.Sprint(n + 1)}})
				released := c.Release(bg, control.LeaseParams{Domain: name, Holder: holder})
				removed := c.Remove(bg, control.RemoveParams{Domain: name, Mode: control.RemoveEnd})
				for i, err := range []error{created, set, released, removed} {
					var said *control.Error
					if err != nil && (!errors.As(err, &said) || said.Code == control.CodeInternal) {
						t.Errorf("request %d about %s: %v", i, name, err)
					}
				}
			}
		})
	}
	var served atomic.Int64
	for _, name := range names {
		guests.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.socket(name), Net: "unixpacket"})
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				c.Write(callbuf.Hello{Version: callbuf.Version}.Append(nil))
				if n%2 == 0 { // otherwise it has been removed at the answer
					c.SetReadDeadline(time.Now().Add(soon))
					buf := make([]byte, 512)
					k, _, _, _, err := c.ReadMsgUnix(buf, nil) // the descriptors are dropped
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("a process that connected hears nothing")
					} else if w, bad := callbuf.ParseWelcome(buf[:max(k, 0)]); err == nil && bad == nil && w.Result == 0 {
						served.Add(1)
					}
				}
				c.Close()
			}
		})
	}
	owners.Wait()
	close(over)
	guests.Wait()
	t.Logf("%d processes were served", served.Load())
	c := h.api()
	defer c.Close()
	for _, name := range names {
		var said *control.Error
		if err := c.Remove(bg, control.RemoveParams{Domain: name, Mode: control.RemoveEnd}); err != nil && (!errors.As(err, &said) || said.Code != control.CodeNotFound) {
			t.Error(err)
		}
	}
	left, err := c.Domains(bg)
	if err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	for _, dir := range []string{"domains", "workers"} {
		if left, _ := os.ReadDir(filepath.Join(h.dir, dir)); len(left) != 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
}

// measured is the resource use of this process.
type measured struct {
	files, goroutines int
	heap              uint64
}

func measure(t *testing.T) measured {
	t.Helper()
	runtime.GC()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return measured{len(files), runtime.NumGoroutine(), m.HeapAlloc}
}
