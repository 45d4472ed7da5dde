//go:build cgo && libvirt_dlopen

package main

import (
	"fmt"
	"net"
	"os"
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
		pid, err = report.ProcessOf(a.run.name, ids)
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
	conn, err := net.DialTimeout("unix", report.SocketOf(uri), answerTime)
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
	return report.ParseThreads(out)
}
