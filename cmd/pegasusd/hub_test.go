package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/hub"
	"pegasus/hypervisor/kvm"
	"pegasus/internal/testkit"
)

// A hub with a log that is not read serves its machine, and ends on a signal: otherwise its mappings would keep
// the memory of a domU that has gone.
func TestHubLogStuck(t *testing.T) {
	const size, controlAt = 16 << 20, 4 << 20
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "vm")
	if err := kvm.MakeRegion(path, size, -1); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := callbuf.Map(f, size)
	if err != nil {
		t.Fatal(err)
	}
	defer callbuf.Unmap(mem)
	cmd := exec.Command(os.Args[0], "--runtime-dir", dir, "--region", path, "--domain", "vm")
	cmd.Env = append(os.Environ(), "BECOME=hub")
	cmd.Stderr = fullPipe(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	agent := wire.NewGuest(mem[controlAt:])
	agent.Begin(100)
	copy(mem[size-wire.PageBytes+wire.PointerOffset:], wire.Pointer{Offset: controlAt, Boot: 1}.Append(nil))
	testkit.Eventually(t, "the hub answers", agent.Answered)
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the hub doesn't end")
	}
}

// fullPipe returns a full pipe.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	for full := make([]byte, 1<<16); ; {
		if _, err := unix.Write(fds[1], full); err == unix.EAGAIN {
			if full = full[:len(full)/2]; len(full) == 0 {
				break
			}
		}
	}
	if err := unix.SetNonblock(fds[1], false); err != nil {
		t.Fatal(err)
	}
	w := os.NewFile(uintptr(fds[1]), "full")
	t.Cleanup(func() { w.Close() })
	return w
}

// The daemon's answer to a hub is a refusal if its domain may not exist, otherwise the domain's socket.
func TestHubEndpoint(t *testing.T) {
	h := newHost(t, "[daemon]\nundeclared_domains = false\n"+twoDomains)
	if path, err := holdDomain(h.dir, "a", false); err != nil || path != h.socket("a") {
		t.Errorf("%q, %v", path, err)
	}
	if _, err := holdDomain(h.dir, "c", false); !errors.As(err, new(*hub.Refusal)) || !strings.Contains(err.Error(), "isn't declared") {
		t.Errorf("an undeclared domain: %v", err)
	}
	if _, err := holdDomain(t.TempDir(), "a", false); err == nil || errors.As(err, new(*hub.Refusal)) {
		t.Errorf("without a daemon: %v", err)
	}
}

// The hub of a machine in a container waits for the domain, which it does not create.
func TestHubWaitsForDomain(t *testing.T) {
	h := newHost(t, twoDomains)
	if path, err := holdDomain(h.dir, "k8s-web", true); err == nil || errors.As(err, new(*hub.Refusal)) {
		t.Errorf("a domain that does not exist: %q, %v", path, err)
	}
	if path, err := holdDomain(h.dir, "a", true); err != nil || path != h.socket("a") {
		t.Errorf("%q, %v", path, err)
	}
}

// oneAtATime checks that a second daemon with a configuration is refused while the first runs, and starts
// after it.
func oneAtATime(t *testing.T, config string) {
	t.Helper()
	first := newHost(t, config)
	second := prepareHost(t, config)
	if said := second.tryStart(); !strings.Contains(said, fmt.Sprintf("served by another daemon, process %d:", first.cmd.Process.Pid)) {
		t.Errorf("it says %q", said)
	}
	second.stop()
	first.stop()
	second.start()
}

// A second daemon with the same directory of regions is refused, and names the first: both would start hubs there.
func TestRegionsOfAnother(t *testing.T) {
	config := twoDomains + fmt.Sprintf("[daemon]\nregions = %q\nlibvirt = []\n", filepath.Join(shortDir(t), "regions"))
	oneAtATime(t, config)
}

// Under Xen a second daemon with the same directory of attachments is refused, and names the first.
func TestMachinesOfAnother(t *testing.T) {
	capabilities := filepath.Join(t.TempDir(), "capabilities")
	if err := os.WriteFile(capabilities, []byte("control_d\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XEN_CAPABILITIES", capabilities)
	config := twoDomains + fmt.Sprintf("[daemon]\nmachines = %q\n", filepath.Join(shortDir(t), "machines"))
	oneAtATime(t, config)
}
