package vm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/hypervisor/kvm"
)

// bootTime bounds how long a machine may take to do its job.
const bootTime = 100 * time.Second

func built(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("PEGASUS_BUILD")
	if dir == "" {
		dir = "../../build"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run `make build` first", err)
	}
	return path
}

// host is a daemon with machines.
type host struct {
	t       *testing.T
	dir     string
	regions string
	image   *Image
	daemon  *exec.Cmd
}

func startHost(t *testing.T, config string) *host {
	t.Helper()
	image, err := Build(filepath.Dir(filepath.Dir(built(t, "bin/pegasusd"))))
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
	h.daemon.Stdout, h.daemon.Stderr, h.daemon.ExtraFiles = log, log, []*os.File{w}
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

// machine is one that was started, and the name of its domain.
type machine struct {
	*Running
	h    *host
	name string
}

// waitForAgent is how a job begins.
const waitForAgent = `
pegasus-guest agent &
agent=$!
n=0
while [ ! -S /run/pegasus/guest.sock ]; do sleep 0.1; n=$((n+1)); [ $n -lt 200 ] || exit 9; done
`

// boot starts a machine with a region of its own, and a port to wake its agent and hub.
func (h *host) boot(name, job string) *machine {
	h.t.Helper()
	return h.bootMachine(name, Machine{Job: waitForAgent + job})
}

// bootMachine starts one that is special.
func (h *host) bootMachine(name string, kind Machine) *machine {
	h.t.Helper()
	region := filepath.Join(h.regions, name)
	if err := kvm.MakeRegion(region, 128<<20, -1); err != nil {
		h.t.Fatal(err)
	}
	dir := h.path("machine-" + name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	kind.Image, kind.Dir, kind.Region = h.image, dir, region
	if !kind.NoPort {
		kind.Port = kvm.PortPath(region)
		if err := kvm.MakePorts(h.regions); err != nil {
			h.t.Fatal(err)
		}
	}
	r, err := kind.Start()
	if err != nil {
		h.t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	m := &machine{r, h, name}
	h.t.Cleanup(func() {
		m.Kill()
		m.Wait()
		if h.t.Failed() {
			h.t.Logf("%s printed:\n%s\nand said:\n%s", name, m.Output(), m.Messages())
		}
	})
	return m
}

// finish waits until the machine has switched itself off, and its job succeeded.
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

// remove takes away the region of a machine that is off.
func (m *machine) remove() { os.Remove(filepath.Join(m.h.regions, m.name)) }

func eventually(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

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

// CUDA programs in a virtual machine compute on the host's accelerator, whoever runs
// them; several at once, with memory that both sides see at one address, and nothing
// of them is left afterwards.
func TestPrograms(t *testing.T) {
	h := startHost(t, twoMachines)
	m := h.boot("one", `
set -e
PEGASUS_LOG=info /bench/vectoradd --json
su -s /bin/sh -c '/bench/blackscholes --size 65536 --json' nobody
/bench/srad --quiet --json
for i in 1 2 3; do (/bench/reduction --quiet --json || echo failed) & all="$all $!"; done
wait $all
pegasus-guest doctor
sleep 0.5
echo left: $(ls /run/pegasus/region | grep -v -e control -e lost)
`)
	out := m.finish()
	if n := len(regexp.MustCompile(`"result": *"right"`).FindAllString(out, -1)); n != 6 || strings.Contains(out, "failed") {
		t.Errorf("%d of 6 programs computed what is right:\n%s", n, out)
	}
	if strings.Contains(out, "not shared") || !strings.Contains(out, "arena at 0x") {
		t.Errorf("its pinned memory isn't at one address on both sides:\n%s", out)
	}
	if !strings.Contains(out, "left: \n") && !strings.Contains(out, "left:\n") {
		t.Errorf("call buffers are left of programs that ended:\n%s", out)
	}
	d := h.domain("one")
	if d.GPU == 0 || d.Calls == 0 {
		t.Errorf("the domain used nothing: %+v", d)
	}
	if d.Processes != 0 || d.Memory != 0 {
		t.Errorf("%d processes and %d bytes are left", d.Processes, d.Memory)
	}
}

// A machine that loses its power leaves nothing behind, and another goes on.
func TestPower(t *testing.T) {
	h := startHost(t, twoMachines)
	const job = "/bench/busy --seconds 3600 --queue 4 --no-check --quiet\n"
	h.boot("one", job)
	three := h.boot("three", job)
	eventually(t, bootTime, "both compute", func() bool { return h.domain("one").GPU > 0 && h.domain("three").GPU > 0 })
	three.Kill()
	three.Wait()
	three.remove()
	eventually(t, 2*time.Second, "nothing is left of a machine without power", func() bool {
		d := h.domain("three")
		return d.Processes == 0 && d.Memory == 0
	})
	used := h.domain("one").GPU
	eventually(t, 5*time.Second, "the other machine computes", func() bool { return h.domain("one").GPU > used })
}

// A machine's programs go on while the daemon is away, and find the next one. When the
// hub dies, those that run get an error, and the next are served by another hub.
func TestDeaths(t *testing.T) {
	h := startHost(t, twoMachines)
	m := h.boot("one", `
/bench/busy --seconds 6 --queue 2 --no-check --quiet --json && echo "went on"
echo "kill the hub"
/bench/busy --seconds 60 --queue 2 --no-check --quiet >/dev/null 2>&1 || echo "lost its worker"
/bench/vectoradd --quiet --json
`)
	running := func() bool { return h.domain("one").Processes == 1 }
	used := int64(0)
	computes := func() bool { d := h.domain("one"); return d.Processes == 1 && d.GPU > used }
	eventually(t, bootTime, "a program computes", computes)
	h.daemon.Process.Kill()
	h.daemon.Wait()
	time.Sleep(time.Second)
	h.start()
	eventually(t, 5*time.Second, "the new daemon knows the machine's worker", running)
	eventually(t, bootTime, "the program went on", func() bool { return strings.Contains(m.Output(), "kill the hub") })
	used = h.domain("one").GPU
	eventually(t, 10*time.Second, "the next program computes", computes)
	h.killHub(m)
	out := m.finish()
	for _, want := range []string{"went on", "lost its worker", `"right"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
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

// checkShares looks whether a machine with three times the credits of another has three
// times its share. Machines without hardware's help share the host's processors with the
// accelerator, so that one may now and then have nothing queued: some points are theirs.
func (h *host) checkShares(one, three string) {
	h.t.Helper()
	used := func() (a, b int64) { return h.domain(one).GPU, h.domain(three).GPU }
	enough := int64(300 * time.Millisecond) // for both to have begun in earnest
	eventually(h.t, bootTime, "both compute", func() bool { a, b := used(); return a > enough && b > enough })
	a0, b0 := used()
	time.Sleep(8 * time.Second)
	a1, b1 := used()
	part := 100 * float64(b1-b0) / float64(a1-a0+b1-b0)
	h.t.Logf("credits 256 and 768: of the accelerator's time the machines had %.1f %% and %.1f %%", 100-part, part)
	if part < 69 || part > 81 {
		h.t.Errorf("the machine with three quarters of the credits had %.1f %%", part)
	}
}
