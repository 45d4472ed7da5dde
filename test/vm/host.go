package vm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pegasus/backend/control"
	"pegasus/hypervisor/kvm"
	"pegasus/internal/testkit"
)

// bootTime bounds a machine's boot and job, and soon the time until an immediate effect is
// observed, both for a slow and busy host.
const (
	bootTime = 300 * time.Second
	soon     = time.Minute
)

// A tester is a caller that runs machines: a test, or a demonstration.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

func built(t tester, name string) string {
	t.Helper()
	return testkit.Built(t, name)
}

// twoMachines configures two domains that share an accelerator 1:3.
const twoMachines = `
[[accelerator]]
name   = "soft0"
type   = "soft"
memory = "256MiB"
policy = "accc"
[default_domain]
arena = "16MiB"
[[domain]]
name    = "one"
credits = 256
[[domain]]
name    = "three"
credits = 768
`

// buildDir is the directory that `make build` fills.
func buildDir(t tester) string { return filepath.Dir(filepath.Dir(built(t, "bin/pegasusd"))) }

// host is a daemon with its machines.
type host struct {
	t       tester
	dir     string
	regions string
	image   *Image
	daemon  *exec.Cmd
}

func startHost(t tester, config string) *host {
	t.Helper()
	image, err := Build(buildDir(t), cloudKernel)
	if err != nil {
		t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	regions, err := os.MkdirTemp("/dev/shm", "pg")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: dir, regions: regions, image: image}
	config = fmt.Sprintf("[daemon]\nregions = %q\n%s", regions, config)
	if err := os.WriteFile(h.path("pegasus.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.RemoveAll(regions)
		others, _ := filepath.Glob(regions + "-*") // the further names of regions that are PCI devices
		for _, path := range others {
			os.Remove(path)
		}
		h.stop()
		if t.Failed() {
			log, _ := os.ReadFile(h.path("log"))
			t.Logf("the host's log:\n%s", log)
		}
		os.RemoveAll(dir)
	})
	h.start()
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

// mark is the environment variable that marks the processes of this host.
func (h *host) mark() string { return "PEGASUS_TEST_HOST=" + h.dir }

func (h *host) start() {
	h.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}
	defer r.Close()
	log, err := os.OpenFile(h.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	h.daemon = exec.Command(built(h.t, "bin/pegasusd"), "--runtime-dir", h.dir, "--config", h.path("pegasus.toml"), "--ready-fd", "3")
	h.daemon.Env = append(os.Environ(), h.mark())
	h.daemon.Stdout, h.daemon.Stderr, h.daemon.ExtraFiles = log, log, []*os.File{w}
	h.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that an interrupt of the test doesn't reach it
	err = h.daemon.Start()
	w.Close()
	if err != nil {
		h.t.Fatal(err)
	}
	if said, _ := bufio.NewReader(r).ReadString('\n'); said != "ready\n" {
		h.t.Fatalf("the daemon didn't start: %q", said)
	}
}

func (h *host) stop() {
	if h.daemon != nil {
		h.daemon.Process.Signal(syscall.SIGTERM)
		h.daemon.Wait()
		h.daemon = nil
	}
}

func (h *host) domain(name string) (found control.Domain) {
	h.t.Helper()
	out, err := exec.Command(built(h.t, "bin/pegasus"), "domains", "--runtime-dir", h.dir, "--json").Output()
	if err != nil {
		h.t.Fatal(err)
	}
	var list []control.Domain
	if err := json.Unmarshal(out, &list); err != nil {
		h.t.Fatal(err)
	}
	for _, d := range list {
		if d.Name == name {
			found = d
		}
	}
	return found
}

// machine is a started machine, and the name of its domain.
type machine struct {
	*Running
	h    *host
	name string
}

// startAgent is the beginning of a job, and waitForAgent that of a job in a machine with a region:
// programs wait for the agent, too, but not as long as a machine without hardware virtualization may
// need. waitForShared is for machines with a PCI device as their region.
//
// WaitForAgent and WaitForShared are these for tests of other packages.
const (
	WaitForAgent  = waitForAgent
	WaitForShared = waitForShared

	startAgent = `
pegasus-guest install >/dev/ttyS1 || exit 8
pegasus-guest agent &
agent=$!
n=0
`
	waitForAgent = startAgent + `
stays() { # what stays of programs that have ended
	for i in $(seq 200); do
		left=$(ls /run/pegasus-guest/region | grep -v -e control -e lost)
		[ -n "$left" ] || break
		sleep 0.1
	done
	echo $left
}
until grep -q /run/pegasus-guest/region /proc/mounts; do sleep 0.1; n=$((n+1)); [ $n -lt 1000 ] || exit 9; done
`
	waitForShared = waitForSocket + `
pegasus-guest doctor >/dev/ttyS1
left() { sed -e 's/,/\n/g' /run/pegasus-guest/region.json | grep -c '"at"'; }
stays() { for i in $(seq 200); do [ $(left) != 0 ] || break; sleep 0.1; done; left; }
`
	waitForSocket = startAgent + `
until [ -S /run/pegasus/guest.sock ]; do sleep 0.1; n=$((n+1)); [ $n -lt 1000 ] || exit 9; done
`
)

// boot starts a machine with a region of its own, and a port to wake its agent and hub.
func (h *host) boot(name, job string) *machine {
	h.t.Helper()
	return h.bootMachine(name, Machine{Job: waitForAgent + job})
}

// bootMachine is boot for a machine of another kind.
func (h *host) bootMachine(name string, kind Machine) *machine {
	h.t.Helper()
	kind.Region = filepath.Join(h.regions, name)
	if err := kvm.MakeRegion(kind.Region, 128<<20, -1); err != nil {
		h.t.Fatal(err)
	}
	if !kind.NoPort {
		kind.Port = kvm.PortPath(kind.Region)
		if err := kvm.MakePorts(h.regions); err != nil {
			h.t.Fatal(err)
		}
	}
	return h.launch(name, kind)
}

// launch starts a machine that may have no region.
func (h *host) launch(name string, kind Machine) *machine {
	h.t.Helper()
	if kind.Image == nil {
		kind.Image = h.image
	}
	kind.Dir = h.path("machine-" + name)
	if err := os.MkdirAll(kind.Dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	r, err := kind.Start()
	if err != nil {
		h.t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	return h.watch(&machine{r, h, name})
}

// watch ends a machine with the test, and logs the machine's output if the test fails.
func (h *host) watch(m *machine) *machine {
	h.t.Cleanup(func() {
		m.Kill()
		m.Wait()
		if h.t.Failed() {
			h.t.Logf("%s printed:\n%s\nand said:\n%s", m.name, m.Output(), m.Messages())
		}
	})
	return m
}

// finish blocks until the machine has switched itself off, checks that its job succeeded, and returns its output.
func (m *machine) finish() string {
	m.h.t.Helper()
	stop := time.AfterFunc(bootTime, m.Kill)
	defer stop.Stop()
	m.Wait()
	out := m.Output()
	if !strings.Contains(out, "job ended: 0\n") {
		m.h.t.Fatalf("%s: its job failed", m.name)
	}
	return out
}

// remove deletes the region of a machine that is off.
func (m *machine) remove() { os.Remove(filepath.Join(m.h.regions, m.name)) }

func eventually(t tester, d time.Duration, what string, ok func() bool) {
	t.Helper()
	testkit.Within(t, d, what, ok)
}

// killHub kills the hub of a machine.
func (h *host) killHub(m *machine) {
	h.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, path := range all {
		line, _ := os.ReadFile(path)
		args := bytes.Split(line, []byte{0})
		if len(args) > 1 && string(args[1]) == "hub" && bytes.Contains(line, []byte(filepath.Join(h.regions, m.name))) {
			var pid int
			fmt.Sscanf(path, "/proc/%d/", &pid)
			syscall.Kill(pid, syscall.SIGKILL)
			return
		}
	}
	h.t.Fatal("the machine has no hub")
}
