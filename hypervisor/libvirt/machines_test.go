package libvirt

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pegasus/hypervisor"
	"pegasus/internal/testkit"
)

func running(name string, started, resets uint64, pid int) Machine {
	return Machine{Name: name, State: hypervisor.MachineRunning, Started: started, Resets: resets, PID: pid, VCPUs: []int{pid + 1}}
}

// A machine has another boot number whenever it restarted, and only then.
func TestBoots(t *testing.T) {
	b := newBook([]string{"u"})
	was := uint64(0)
	for _, c := range []struct {
		what string
		anew bool // the program has only just started
		m    Machine
		same bool
	}{
		{"starts", true, Machine{Name: "a", State: hypervisor.MachineRunning, Started: 7}, false},
		{"its process is known", false, running("a", 7, 0, 100), true},
		{"pauses", false, Machine{Name: "a", State: hypervisor.MachinePaused, Started: 7, PID: 100}, true},
		{"reboots", false, running("a", 7, 1, 100), false},
		{"another program, which has counted no reboot", true, running("a", 7, 0, 100), true},
		{"reboots again", false, running("a", 7, 1, 100), false},
		{"libvirtd counts from the beginning again", true, running("a", 7, 1, 200), false},
		{"another emulator", false, running("a", 8, 1, 300), false},
	} {
		all, _ := b.enter(heard{"u", c.anew, Report{Machines: []Machine{c.m}}})
		if len(all) == 0 {
			all = b.lastReported
		}
		if now := all[0].Boot; now == 0 || (now == was) != c.same {
			t.Errorf("%s: %d after %d", c.what, now, was)
		}
		was = all[0].Boot
	}
	all, changed := b.enter(heard{"u", false, Report{Machines: []Machine{{Name: "a", State: hypervisor.MachineOff}}}})
	if !changed || all[0].Boot != 0 {
		t.Errorf("off: %+v", all)
	}
}

// A subscriber receives each machine's changes once, whichever libvirt connection reports them.
func TestSeveral(t *testing.T) {
	b := newBook([]string{"u", "v"})
	all, changed := b.enter(heard{"v", true, Report{Machines: []Machine{running("a", 1, 0, 10), running("c", 1, 0, 20)}}})
	if !changed || len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	all, changed = b.enter(heard{"u", true, Report{Machines: []Machine{running("b", 1, 0, 30), running("a", 1, 0, 40)}}})
	if !changed || len(all) != 3 || all[0].Host != "u" || all[1].Domain != "b" || all[2].Host != "v" {
		t.Errorf("%+v", all)
	}
	if _, changed = b.enter(heard{"u", false, Report{Machines: []Machine{running("a", 1, 0, 40), running("b", 1, 0, 30)}}}); changed {
		t.Error("told of no change")
	}
	// A machine that is off at one libvirt doesn't hide another's machine of that name.
	all, _ = b.enter(heard{"u", false, Report{Machines: []Machine{{Name: "a", State: hypervisor.MachineOff}}}})
	if len(all) != 2 || all[0].Host != "v" || all[0].State != hypervisor.MachineRunning {
		t.Errorf("%+v", all)
	}
}

// A program that ends is started again, and one that reports why the machines are unknown changes nothing.
func TestWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	const script = `echo '{"machines":[{"name":"a","state":"running","started":1,"pid":5,"vcpus":[6]}]}'
		echo '{"away":"for a test"}'; [ -e $0 ] || { >$0; exit 1; }
		echo '{"machines":[{"name":"a","state":"paused","started":1,"pid":5,"vcpus":[6]}]}'; cat`
	lastReported := make(chan []hypervisor.Machine)
	done := make(chan struct{})
	file := t.TempDir() + "/again"
	go func() {
		Machines{
			URIs: []string{"u"}, Log: slog.New(slog.DiscardHandler),
			Command: func(string) []string { return []string{"sh", "-c", script, file} },
		}.Watch(ctx, func(all []hypervisor.Machine) { lastReported <- all })
		close(done)
	}()
	var boots []uint64
	for _, want := range []hypervisor.MachineState{hypervisor.MachineRunning, hypervisor.MachinePaused} {
		select {
		case all := <-lastReported:
			if len(all) != 1 || all[0].State != want || !slices.Equal(all[0].VCPUs, []int{6}) {
				t.Errorf("%+v", all)
			}
			boots = append(boots, all[0].Boot)
		case <-time.After(20 * time.Second):
			t.Fatal("nothing was told")
		}
	}
	if boots[0] != boots[1] {
		t.Error("the machine began anew because its reporter did")
	}
	cancel()
	<-done
}

// A program that hangs, or trickles without ever ending a line, is killed and started again; one that ignores the end
// of its standard input keeps nothing waiting.
func TestSilentProgram(t *testing.T) {
	for what, silent := range map[string]string{
		"hangs":    "exec sleep 600",
		"stopped":  "kill -STOP $$",
		"trickles": "while :; do printf x; sleep .05; done",
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			script := `trap "" TERM; echo '{"machines":[{"name":"a","state":"running","started":1}]}'; echo >>$0; ` + silent
			file := t.TempDir() + "/runs"
			done := make(chan struct{})
			var log lines
			go func() {
				Machines{
					URIs: []string{"u"}, Log: slog.New(slog.NewTextHandler(&log, nil)), silent: 300 * time.Millisecond,
					Command: func(string) []string { return []string{"sh", "-c", script, file} },
				}.Watch(ctx, func([]hypervisor.Machine) {})
				close(done)
			}()
			testkit.Eventually(t, "it is started again", func() bool { runs, _ := os.ReadFile(file); return len(runs) >= 2 })
			cancel()
			select {
			case <-done:
			case <-time.After(30 * time.Second):
				t.Fatal("it keeps the daemon waiting")
			}
			if text := log.String(); !strings.Contains(text, "reported nothing for 300ms and was killed") {
				t.Errorf("log:\n%s", text)
			}
		})
	}
}

// lines are the logged lines.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"machines":[{"name":"a","state":"running","started":3,"resets":1,"pid":5,"vcpus":[6,7],"credits":512}]}`))
	f.Add([]byte(`{"away":"libvirt isn't installed"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ParseReport(line)
		if err != nil {
			return
		}
		b := newBook([]string{"u"})
		all, _ := b.enter(heard{"u", true, r})
		if len(all) != len(r.Machines) {
			t.Fatalf("%d machines of %d", len(all), len(r.Machines))
		}
		for _, m := range all {
			if (m.Boot == 0) != (m.State == hypervisor.MachineOff) {
				t.Fatalf("%+v", m)
			}
		}
	})
}
