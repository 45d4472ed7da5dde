package linux

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
	"pegasus/hypervisor/linux/switches"
)

// machine is a process with threads named like QEMU's vCPU threads.
type machine struct {
	Name   string
	VCPUs  int
	CPUs   []int         // vCPU n may run on CPUs[n%len] only; none: everywhere
	Run    time.Duration // of work between two rests
	Rest   time.Duration // 0: it never rests
	Weight int           // of its cgroup, 256 being plain
	Quota  int           // of its cgroup, in % of one CPU; 0: none

	pid int
}

const burning = "PEGASUS_TEST_MACHINE"

func TestMain(m *testing.M) {
	if text := os.Getenv(burning); text != "" {
		var b machine
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			panic(err)
		}
		b.burn()
		return
	}
	os.Exit(m.Run())
}

// burn is the process's work until its input ends.
func (m *machine) burn() {
	ready := make(chan error)
	for n := range m.VCPUs {
		go func() {
			runtime.LockOSThread()
			name := append([]byte(fmt.Sprintf("CPU %d/TCG", n)), 0)
			err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
			if len(m.CPUs) > 0 && err == nil {
				var set unix.CPUSet
				set.Set(m.CPUs[n%len(m.CPUs)])
				err = unix.SchedSetaffinity(0, &set)
			}
			ready <- err
			for {
				for start := time.Now(); time.Since(start) < m.Run || m.Rest == 0; {
				}
				time.Sleep(m.Rest)
			}
		}()
	}
	for range m.VCPUs {
		if err := <-ready; err != nil {
			panic(err)
		}
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}

// start starts the process in a cgroup of its own, if it has a weight or quota.
func (m *machine) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), burning+"="+string(text), "GODEBUG=asyncpreemptoff=1", fmt.Sprint("GOMAXPROCS=", m.VCPUs+1))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.pid = cmd.Process.Pid
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("it says %q: %v", line, err)
	}
	if m.Weight != 0 || m.Quota != 0 {
		m.confine(t)
	}
}

// confine moves the process into a cgroup of version 1 or 2, whichever has the CPU controller here.
func (m *machine) confine(t *testing.T) {
	t.Helper()
	root, v1 := "/sys/fs/cgroup/cpu", true
	if _, err := os.Stat(filepath.Join(root, "cpu.shares")); err != nil {
		root, v1 = "/sys/fs/cgroup", false
		put(t, filepath.Join(root, "cgroup.subtree_control"), "+cpu")
	}
	dir := filepath.Join(root, fmt.Sprintf("pegasus-test-%d", m.pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the process is ended
		put(t, filepath.Join(root, "cgroup.procs"), strconv.Itoa(m.pid))
		os.Remove(dir)
	})
	if v1 {
		put(t, filepath.Join(dir, "cpu.shares"), strconv.Itoa(4*m.Weight))
	} else {
		put(t, filepath.Join(dir, "cpu.weight"), strconv.Itoa(100*m.Weight/256))
	}
	if m.Quota != 0 && v1 {
		put(t, filepath.Join(dir, "cpu.cfs_quota_us"), strconv.Itoa(m.Quota*1000))
	} else if m.Quota != 0 {
		put(t, filepath.Join(dir, "cpu.max"), fmt.Sprintf("%d 100000", m.Quota*1000))
	}
	put(t, filepath.Join(dir, "cgroup.procs"), strconv.Itoa(m.pid))
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) guests() hypervisor.Guests {
	return hypervisor.Guests{Domain: m.Name, Processes: []int{m.pid}, VM: true}
}

// The vCPUs of a machine on this host are found by their names; their work and their group's weight and quota are
// reported.
func TestMachineOfThisHost(t *testing.T) {
	for name, load := range map[string]func() (*switches.Table, error){"noted": switches.Load, "read": nil} {
		t.Run(name, func(t *testing.T) {
			m := machine{Name: "m", VCPUs: 2, Run: 2 * ms, Rest: ms}
			if os.Getuid() == 0 {
				m.Weight, m.Quota = 512, 150
			}
			m.start(t)
			c := NewCPUs(discard, load)
			defer c.Close()
			of := []hypervisor.Guests{m.guests()}
			ran := map[int]time.Duration{}
			for deadline := time.Now().Add(time.Minute); ran[0] < 10*ms || ran[1] < 10*ms; time.Sleep(10 * ms) {
				all, _ := look(c, of)
				for _, u := range c.processes[m.pid].threads {
					ran[u.vcpu.ID] += u.done.ran
				}
				if len(all[0].VCPUs) != 2 || len(ran) != 2 || time.Now().After(deadline) {
					t.Fatalf("its two vCPUs ran for %v: %+v", ran, all)
				}
				if w := all[0]; m.Weight != 0 && (w.Weight < 510 || w.Weight > 512 || w.Cap != 150) {
					t.Fatalf("its weight and quota are %d and %d", w.Weight, w.Cap)
				}
			}
		})
	}
}
