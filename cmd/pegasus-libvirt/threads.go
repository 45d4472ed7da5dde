//go:build cgo && libvirt_dlopen

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/digitalocean/go-qemu/qmp"

	"pegasus/hypervisor"
	report "pegasus/hypervisor/libvirt"
)

// threads knows the vCPU threads of machines. QEMU is asked once for each run of a
// machine, in a goroutine of its own: one that doesn't answer keeps nobody else waiting.
type threads struct {
	changed func() // called when more is known

	mu    sync.Mutex
	known map[string]*answer // by machine
	said  string             // what was last complained of
}

// machineRun is for what the threads of a machine stay the same.
type machineRun struct {
	name  string
	id    uint
	vcpus int
	state hypervisor.MachineState
}

type answer struct {
	run   machineRun
	asked time.Time
	done  bool
	pid   int
	vcpus []int
}

// askAgain is how long it takes until a question that failed is asked again.
const askAgain = 3 * time.Second

// of are the process and the vCPU threads of a machine, as far as they are known.
func (t *threads) of(uri string, run machineRun) (pid int, vcpus []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.known[run.name]
	if a == nil || a.run != run || !a.done && time.Since(a.asked) > askAgain {
		next := &answer{run: run, asked: time.Now()}
		if a != nil && a.run.id == run.id { // known until better is
			next.pid, next.vcpus = a.pid, a.vcpus
		}
		if t.known == nil {
			t.known = map[string]*answer{}
		}
		t.known[run.name], a = next, next
		go t.ask(uri, next)
	}
	return a.pid, a.vcpus
}

func (t *threads) ask(uri string, a *answer) {
	ids, err := queryThreads(uri, a.run.name)
	var pid int
	if err == nil {
		pid, err = processOf(a.run.name, ids)
	}
	t.mu.Lock()
	if err != nil {
		if text := fmt.Sprintf("the vCPUs of %s aren't known: %v", a.run.name, err); text != t.said { // once, not at each look
			t.said = text
			fmt.Fprintln(os.Stderr, text)
		}
		t.mu.Unlock()
		return
	}
	a.pid, a.vcpus, a.done = pid, ids, true
	t.mu.Unlock()
	t.changed()
}

// forget drops machines that aren't there any more.
func (t *threads) forget(there []report.Machine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := map[string]*answer{}
	for _, m := range there {
		if a := t.known[m.Name]; a != nil && m.State != hypervisor.MachineOff {
			left[m.Name] = a
		}
	}
	t.known = left
}

// answerTime is how long QEMU may take to answer.
const answerTime = 5 * time.Second

// queryThreads asks a machine's QEMU for the threads of its vCPUs, through libvirt.
func queryThreads(uri, name string) ([]int, error) {
	conn, err := net.DialTimeout("unix", socketOf(uri), answerTime)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(answerTime))
	m := qmp.NewLibvirtRPCMonitor(name, conn)
	if err := m.Connect(); err != nil {
		return nil, err
	}
	defer m.Disconnect()
	out, err := m.Run([]byte(`{"execute":"query-cpus-fast"}`))
	if err != nil {
		return nil, err
	}
	return parseThreads(out)
}

// parseThreads reads QEMU's answer.
func parseThreads(out []byte) ([]int, error) {
	var r struct {
		Return []struct {
			Index  int `json:"cpu-index"`
			Thread int `json:"thread-id"`
		} `json:"return"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	var ids []int
	for _, c := range r.Return {
		if c.Thread <= 0 {
			return nil, fmt.Errorf("thread %d of vCPU %d", c.Thread, c.Index)
		}
		ids = append(ids, c.Thread)
	}
	if len(ids) == 0 {
		return nil, errors.New("QEMU knows of no vCPU")
	}
	return ids, nil
}

// socketOf is where a libvirt listens.
func socketOf(uri string) string {
	if u, err := url.Parse(uri); err == nil {
		if s := u.Query().Get("socket"); s != "" {
			return s
		}
	}
	for _, s := range []string{"/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock"} {
		if _, err := os.Stat(s); err == nil {
			return s
		}
	}
	return "/run/libvirt/libvirt-sock"
}

// processOf is the process of a machine's threads. QEMU isn't trusted with the numbers of
// others: all must be of one process, which was started for that machine.
func processOf(name string, ids []int) (pid int, err error) {
	for _, id := range ids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
		if err != nil {
			return 0, err
		}
		of := field(text, "Tgid:")
		if pid != 0 && of != pid {
			return 0, fmt.Errorf("threads of processes %d and %d", pid, of)
		}
		pid = of
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return 0, err
	}
	for _, arg := range bytes.Split(command, []byte{0}) {
		if strings.HasPrefix(string(arg), "guest="+name+",") {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d isn't its QEMU", pid)
}

func field(text []byte, key string) int {
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return 0
}
