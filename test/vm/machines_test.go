package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// useInDaemon restarts the daemon with this libvirtd in its configuration, by way of the libvirtd's own mount namespace.
func (l *libvirt) useInDaemon() {
	h := l.h
	h.t.Helper()
	mounts := l.command("sleep", "3600")
	if err := mounts.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		mounts.Process.Kill()
		mounts.Wait()
	})
	l.mounts = mounts.Process.Pid
	eventually(h.t, soon, "a process is where libvirtd is", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", l.mounts))
		return string(text) == "sleep\n"
	})
	text, err := os.ReadFile(h.path("pegasus.toml"))
	if err != nil {
		h.t.Fatal(err)
	}
	with := strings.Replace(string(text), "[daemon]\n", fmt.Sprintf("[daemon]\nlibvirt = [%q]\n", l.uri()), 1)
	if err := os.WriteFile(h.path("pegasus.toml"), []byte(with), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.stop()
	h.start()
}

// uri returns libvirtd's URI for a process outside its mount namespace.
func (l *libvirt) uri() string {
	return fmt.Sprintf("qemu+unix:///system?socket=/proc/%d/root/run/libvirt/libvirt-sock", l.mounts)
}

// end ends libvirtd; its machines go on.
func (l *libvirt) end(how os.Signal) {
	l.cmd.Process.Signal(how)
	l.cmd.Wait()
}

// again starts it again.
func (l *libvirt) again() {
	l.h.t.Helper()
	l.cmd = exec.Command("nsenter", "-m", "-r", "-t", fmt.Sprint(l.mounts), "libvirtd", "--pid-file", "/run/libvirt/libvirtd.pid")
	l.cmd.Env = append(os.Environ(), l.h.mark())
	if err := l.cmd.Start(); err != nil {
		l.h.t.Fatal(err)
	}
	eventually(l.h.t, soon, "libvirtd answers again", func() bool { return l.command("virsh", "list").Run() == nil })
}

// checkDoctor checks that the doctor reports a machine's state and requirements.
func (l *libvirt) checkDoctor(finding string) {
	l.h.t.Helper()
	out, _ := l.command(built(l.h.t, "bin/pegasus"), "doctor", "--runtime-dir", l.h.dir).CombinedOutput()
	for _, want := range []string{": 1 machine attached", "machine one", finding, "libvirt runs it as root", "/etc/libvirt/hooks/qemu.d/pegasus"} {
		if !strings.Contains(string(out), want) {
			l.h.t.Errorf("the doctor doesn't say %q:\n%s", want, out)
		}
	}
}

// state returns a machine's state in the daemon's record.
func (h *host) state(name string) string {
	if m := h.domain(name).Machine; m != nil {
		return m.State
	}
	return ""
}

// computes reports whether a domain gets accelerator time.
func (h *host) computes(name string) bool {
	was := h.domain(name).GPU
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if h.domain(name).GPU > was {
			return true
		}
	}
	return false
}

// drained blocks until the submitted work of a paused domain has ended, and returns the accelerator
// time that the domain has used.
func (h *host) drained(name string) (used int64) {
	h.t.Helper()
	same := 0
	eventually(h.t, soon, "what was submitted has drained", func() bool {
		was := used
		time.Sleep(300 * time.Millisecond)
		if used = h.domain(name).GPU; used != was {
			same = 0
		}
		same++
		return same > 3
	})
	return used
}

// The daemon follows libvirt's changes of a machine. A paused machine's share goes to the
// others until it resumes, a restarted machine loses its workers at once, and neither
// the death of libvirtd nor that of the daemon affects the machine's programs.
func TestMachines(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	l := startLibvirt(h)
	l.useInDaemon()
	l.edit = func(s string) string { return strings.Replace(s, "<on_reboot>destroy", "<on_reboot>restart", 1) }
	l.machine("one", "/bench/busy --seconds 3600 --queue 4 --no-check --quiet\n")
	eventually(t, soon, "the machine is known before it was ever started", func() bool { return h.state("one") == "off" })
	l.checkDoctor("off; it will have a region of 128 MiB")
	beside := exec.Command(built(t, "bin/pegasus"), "run", "--runtime-dir", h.dir, "--domain", "three", "--",
		built(t, "bench/busy"), "--seconds", "3600", "--queue", "4", "--no-check", "--quiet")
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		beside.Process.Kill()
		beside.Wait()
	})

	l.run("virsh", "start", "one")
	eventually(t, soon, "the threads of its vCPUs are known", func() bool {
		m := h.domain("one").Machine
		return m.State == "running" && m.PID != 0 && len(m.VCPUs) == 1 && !m.Agent
	})
	m := h.domain("one").Machine
	if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", m.PID, m.VCPUs[0])); string(comm) != "CPU 0/TCG\n" {
		t.Errorf("thread %d of process %d is %q", m.VCPUs[0], m.PID, comm)
	}
	eventually(t, bootTime, "its program computes", func() bool { return h.domain("one").GPU > 0 && h.domain("one").Machine.Agent })
	said, err := exec.Command(built(t, "bin/pegasus-guest"), "version").Output()
	if r := h.domain("one").Machine.AgentRelease; err != nil || r == "" || !strings.Contains(string(said), r) {
		t.Errorf("its agent is %q, not %s (%v)", r, said, err)
	}

	l.checkDoctor("runs, with a region of 128 MiB")

	l.run("virsh", "suspend", "one")
	eventually(t, soon, "it is paused", func() bool { return h.domain("one").State == "paused" })
	used := h.drained("one")
	if !h.computes("three") || h.domain("one").GPU != used || h.domain("one").Processes != 1 {
		t.Errorf("while it is paused: %+v", h.domain("one"))
	}
	if owed := h.domain("three").Entitled; owed != 1 {
		t.Errorf("the other is owed %v meanwhile", owed)
	}
	l.run("virsh", "resume", "one")
	eventually(t, soon, "it goes on", func() bool { return h.domain("one").GPU > used })

	for _, how := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		l.end(how)
		if !h.computes("one") || h.state("one") != "running" {
			t.Fatalf("it doesn't go on without libvirtd (%v)", how)
		}
		l.again()
		eventually(t, soon, "the daemon hears of it again", func() bool {
			l.run("virsh", "suspend", "one")
			time.Sleep(500 * time.Millisecond)
			paused := h.state("one") == "paused"
			l.run("virsh", "resume", "one")
			return paused
		})
		if h.domain("one").Processes != 1 || !h.computes("one") {
			t.Errorf("its program ended with libvirtd (%v)", how)
		}
	}

	h.stop()
	h.start()
	eventually(t, soon, "the next daemon finds it", func() bool { return h.state("one") == "running" })
	if h.domain("one").Processes != 1 || !h.computes("one") {
		t.Error("its program ended with the daemon")
	}

	l.run("virsh", "reset", "one")
	eventually(t, soon, "the worker of before ends", func() bool { return h.domain("one").Processes == 0 })
	eventually(t, bootTime, "it computes after the reboot", func() bool { return h.domain("one").Processes == 1 && h.computes("one") })

	l.run("virsh", "destroy", "one")
	eventually(t, soon, "it is off, and nothing is left of it", func() bool {
		_, err := os.Stat(filepath.Join(h.regions, "one"))
		return h.state("one") == "off" && h.domain("one").Processes == 0 && err != nil
	})
}

// A machine that ends while libvirtd is away leaves nothing behind once libvirtd is back.
func TestEndsUnseen(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	l := startLibvirt(h)
	l.useInDaemon()
	l.machine("one", "/bench/busy --seconds 3600 --queue 4 --no-check --quiet\n")
	l.run("virsh", "start", "one")
	eventually(t, bootTime, "its program computes", func() bool { return h.domain("one").GPU > 0 && h.domain("one").Machine.PID != 0 })
	m := h.domain("one").Machine
	l.end(syscall.SIGKILL)
	qemu, err := os.FindProcess(m.PID)
	if err != nil {
		t.Fatal(err)
	}
	qemu.Kill()
	l.command("rm", "-f", "/etc/libvirt/hooks/qemu.d/pegasus").Run() // the hook isn't called, either
	l.again()
	eventually(t, 2*soon, "it is off, and nothing is left of it", func() bool {
		_, err := os.Stat(filepath.Join(h.regions, "one"))
		return h.state("one") == "off" && h.domain("one").Processes == 0 && err != nil
	})
}
