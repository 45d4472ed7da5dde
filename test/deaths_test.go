package test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/cuda"
)

const twoDomains = oneAccelerator + `
kernel_timeout = "1s"
[[domain]]
name = "one"
[[domain]]
name = "other"
`

func running(pid int) bool { return syscall.Kill(pid, 0) == nil }

// A guest that is killed leaves nothing behind, and its domain goes on.
func TestGuestKilled(t *testing.T) {
	h := startHost(t, twoDomains)
	stays := load(t, h.dial("one"))
	cmd := h.bench("one", "busy", "--seconds", "3600", "--queue", "2", "--no-check")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, "the guest computes", func() bool { d := h.domains()["one"]; return d.Processes == 2 && d.GPU > 0 })
	memory := h.domains()["one"].Memory
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, soon, "its worker and memory are gone", func() bool {
		d := h.domains()["one"]
		return d.Processes == 1 && d.Memory < memory
	})
	stays.works()
}

// After its worker is killed, a guest gets errors, not silence; other guests are unaffected.
func TestWorkerKilled(t *testing.T) {
	h := startHost(t, twoDomains)
	victim, neighbour, other := h.dial("one"), load(t, h.dial("one")), load(t, h.dial("other"))
	x := load(t, victim)
	at, err := x.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.launch("endless", at); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() { waiting <- x.Synchronize() }()
	time.Sleep(50 * time.Millisecond)
	if err := syscall.Kill(victim.WorkerPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waiting:
		if err == nil {
			t.Error("a call in flight succeeded")
		}
	case <-time.After(soon):
		t.Fatal("a call in flight hangs")
	}
	if _, err := x.Alloc(1); err == nil {
		t.Error("a call after the worker's death succeeded")
	}
	neighbour.works()
	other.works()
	load(t, h.dial("one")).works()
}

// Guests continue without a killed daemon, and the next daemon takes them over.
func TestDaemonKilled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: confinement by uid is not in play")
	}
	h := startSystemHost(t, twoDomains)
	a, b := load(t, h.dial("one")), load(t, h.dial("other"))
	a.works()
	b.works()
	used := h.domains()["one"].GPU
	h.kill()
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		a.works()
		b.works()
	}
	dialled := make(chan loaded)
	go func() { dialled <- load(t, h.dial("one")) }() // waits for the new daemon
	time.Sleep(200 * time.Millisecond)
	h.start()
	(<-dialled).works()
	eventually(t, soon, "the new daemon knows the old guests", func() bool {
		d := h.domains()
		return d["one"].Processes == 2 && d["other"].Processes == 1 && d["one"].GPU >= used
	})
	a.works()
	b.works()
}

// An endless kernel is killed after the timeout, with its process only.
func TestEndlessKernel(t *testing.T) {
	h := startHost(t, twoDomains)
	c, other := h.dial("one"), load(t, h.dial("other"))
	x := load(t, c)
	at, err := x.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.launch("endless", at); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	wantResult(t, x.Synchronize(), cuda.ErrorLaunchTimeout)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("ended after %v, want about 1 s", took)
	}
	_, err = x.Alloc(4)
	wantResult(t, err, cuda.ErrorLaunchTimeout)
	eventually(t, soon, "the worker ends", func() bool { return !running(c.WorkerPID()) })
	if gpu := h.domains()["one"].GPU; gpu < int64(900*time.Millisecond) {
		t.Errorf("the domain was charged %v for the endless kernel, want about 1 s", time.Duration(gpu))
	}
	other.works()
	load(t, h.dial("one")).works()
}

// A changed limit applies to the running kernel.
func TestKernelTimeoutChanges(t *testing.T) {
	hour, brief := strings.Replace(twoDomains, `"1s"`, `"1h"`, 1), strings.Replace(twoDomains, `"1s"`, `"50ms"`, 1)
	for name, change := range map[string]func(h *host){
		"by a reload": func(h *host) {
			h.configure(brief)
			h.pegasus("reload")
		},
		"at a restart": func(h *host) {
			h.stop()
			h.configure(brief)
			h.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := startSystemHost(t, hour)
			x := load(t, h.dial("one"))
			at, err := x.Alloc(4096)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.launch("endless", at); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error)
			go func() { ended <- x.Synchronize() }()
			change(h)
			select {
			case err := <-ended:
				wantResult(t, err, cuda.ErrorLaunchTimeout)
			case <-time.After(soon):
				t.Error("it runs on")
			}
		})
	}
}

// A kernel that accesses memory out of bounds poisons its own context and no other.
func TestOutOfBounds(t *testing.T) {
	h := startHost(t, twoDomains)
	c, other := h.dial("one"), load(t, h.dial("other"))
	x := load(t, c)
	sound := load(t, c) // another context of the same process
	theirs, err := other.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := x.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []uint64{mine + 4096, mine - 4} { // accesses in the same page succeed, as on devices, which map whole pages
		near := load(t, c)
		if err := near.launch("store", at, 1); err != nil {
			t.Fatal(err)
		}
		if err := near.Synchronize(); err != nil {
			t.Errorf("an access at %#x, beside %#x: %v", at, mine, err)
		}
	}
	for _, at := range []uint64{0, 4, theirs, mine + 4096 + 64<<20, mine - 4 - 64<<20, 1 << 46, ^uint64(3)} {
		x := load(t, c)
		if err := x.launch("store", at, 1); err != nil {
			t.Fatal(err)
		}
		wantResult(t, x.Synchronize(), cuda.ErrorIllegalAddress)
		_, err = x.Alloc(4)
		wantResult(t, err, cuda.ErrorIllegalAddress)
	}
	sound.works()
	other.works()
}
