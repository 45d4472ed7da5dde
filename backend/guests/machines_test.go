package guests

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
	"pegasus/backend/pidfd"
	"pegasus/backend/workers"
	"pegasus/hypervisor"
	"pegasus/vcpu"
)

func machine(name string, state hypervisor.MachineState, boot uint64, credits vcpu.Credits) hypervisor.Machine {
	return hypervisor.Machine{Domain: name, Host: "u", State: state, Boot: boot, Credits: credits}
}

// A machine is a domain as soon as it is reported, with the credits of its definition, unless the configuration
// declares it or an operator sets other credits.
func TestMachineCredits(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	d.config.Domains = append(d.config.Domains, d.config.Template)
	d.config.Domains[0].Name, d.config.Domains[0].Credits = "named", 77
	credits := func(name string) int {
		t.Helper()
		all, err := d.Requests().Domains(control.DomainParams{Domain: name})
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Credits
	}
	report := func(credits vcpu.Credits) {
		d.updateMachines([]hypervisor.Machine{machine("named", hypervisor.MachineOff, 0, credits), machine("web", hypervisor.MachineRunning, 1, credits)})
	}
	report(512)
	if named, web := credits("named"), credits("web"); named != 77 || web != 512 {
		t.Errorf("credits %d and %d", named, web)
	}
	if all, _ := d.Requests().Domains(control.DomainParams{Domain: "web"}); all[0].Machine == nil || all[0].Machine.State != "running" {
		t.Errorf("%+v", all[0].Machine)
	}
	if _, err := d.Requests().Set(control.Peer{}, control.SetParams{Domain: "web", Settings: map[string]string{"credits": "100"}}); err != nil {
		t.Fatal(err)
	}
	report(512)
	if got := credits("web"); got != 100 {
		t.Errorf("an operator's credits are %d", got)
	}
	if _, err := d.follow(d.config); err != nil { // a reload
		t.Fatal(err)
	}
	if got := credits("web"); got != 100 {
		t.Errorf("an operator's credits are %d after a reload", got)
	}
	report(600)
	if got := credits("web"); got != 600 {
		t.Errorf("what the definition says since counts for %d", got)
	}
	d.updateMachines(nil)
	if d.domains["web"] != nil || d.domains["named"] == nil {
		t.Errorf("without their machines there are %v", slices.Sorted(maps.Keys(d.domains)))
	}
}

// The workers of a machine's processes end when it restarts or is off, and no others: not those of the host's processes
// in its domain, and none when a daemon receives the machine's first report.
func TestMachineBegins(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	dom, err := d.domain("web")
	if err != nil {
		t.Fatal(err)
	}
	employ := func(pid int) (*exec.Cmd, *net.UnixConn) {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		file, err := pidfd.Open(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := connOf(fds[0])
		if err != nil {
			t.Fatal(err)
		}
		its, err := connOf(fds[1])
		if err != nil {
			t.Fatal(err)
		}
		dom.guests[&guest{dom: dom, pid: pid, worker: workers.Adopted(&workers.Survivor{Conn: ours}, file)}] = struct{}{}
		return cmd, its
	}
	hosts, _ := employ(4711)
	first, hears := employ(0)
	is := func(state hypervisor.MachineState, boot uint64) {
		d.updateMachines([]hypervisor.Machine{machine("web", state, boot, 0)})
	}
	is(hypervisor.MachineRunning, 5)
	is(hypervisor.MachinePaused, 5)
	is(hypervisor.MachineRunning, 5)
	if alive(hosts) != alive(first) || !alive(first) {
		t.Error("a worker ended although the machine went on")
	}
	is(hypervisor.MachineRunning, 6)
	first.Wait()
	clear(dom.guests)
	hears.SetReadDeadline(time.Now().Add(time.Second))
	order := make([]byte, 1024)
	if n, err := hears.Read(order); err != nil || !strings.Contains(string(order[:n]), `"End":4`) {
		t.Errorf("it was killed without a word before: %q, %v", order[:n], err)
	}
	second, _ := employ(0)
	is(hypervisor.MachineOff, 0)
	second.Wait()
	clear(dom.guests)
	late := &guest{dom: dom}
	dom.guests[late] = struct{}{}
	d.updateMachines(nil)
	if !late.doomed {
		t.Error("a worker that is only just hired may stay")
	}
	if !alive(hosts) {
		t.Error("a process of the host lost its worker")
	}
}

// connOf returns a connection for a socket, and takes ownership of the descriptor.
func connOf(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

func alive(cmd *exec.Cmd) bool {
	p, err := pidfd.Open(cmd.Process.Pid)
	if err != nil {
		return false
	}
	defer p.Close()
	return !pidfd.HasExited(p)
}
