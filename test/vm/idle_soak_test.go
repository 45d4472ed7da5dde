//go:build soak

package vm

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cpuTime returns the CPU time that a process of the host has used so far.
func cpuTime(t tester, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		t.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / ticks)
}

// ticks are the units of /proc's times in a second.
const ticks = 100

// processes returns the host's processes with command lines that contain all parts.
func processes(t tester, parts ...string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
next:
	for _, path := range all {
		line, _ := os.ReadFile(path)
		for _, p := range parts {
			if !bytes.Contains(line, []byte(p)) {
				continue next
			}
		}
		var pid int
		fmt.Sscanf(path, "/proc/%d/", &pid)
		pids = append(pids, pid)
	}
	return pids
}

// idleTime is the time for which an idle machine is watched.
const idleTime = 20 * time.Second

// idleJob measures the agent's CPU time while nothing happens, twice: alone, and beside
// a program that has initialized CUDA and is idle.
const idleJob = `
computed() { cat /proc/$agent/task/*/schedstat | awk '{s += $1} END {printf "%d\n", s/1000}'; }
watch() { sleep 4; was=$(computed); echo "watch $1"; sleep 20; echo "agent $1 used $(($(computed) - was)) us"; }
watch "without a program"
/bench/calls --idle 30 &
watch "beside an idle program"
`

// An idle machine costs its host and itself next to nothing, if it has a port.
func TestSoakIdle(t *testing.T) {
	for _, port := range []bool{true, false} {
		t.Run(map[bool]string{true: "port", false: "no port"}[port], func(t *testing.T) {
			h := startHost(t, twoMachines)
			m := h.bootWith("one", idleJob, port)
			for _, what := range []string{"without a program", "beside an idle program"} {
				if used := h.watchIdle(m, what); port && used > 1 {
					t.Errorf("%s: %.2f %% of a core", what, used)
				}
			}
			m.finish()
		})
	}
}

// watchIdle blocks until the machine's job prints that it watches, and then watches the host for idleTime. It
// returns the CPU time that daemon, hub, worker and agent have used together.
func (h *host) watchIdle(m *machine, what string) (sum float64) {
	t := h.t
	t.Helper()
	eventually(t, bootTime, "the job watches "+what, func() bool { return strings.Contains(m.Output(), "watch "+what) })
	who := map[string]int{"daemon": h.daemon.Process.Pid, "hub": h.hubOf(m)}
	if w := h.workerOf(m.name); w != 0 {
		who["worker"] = w
	}
	used := map[string]time.Duration{}
	for name, pid := range who {
		used[name] = -cpuTime(t, pid)
	}
	qemu := -cpuTime(t, m.PID())
	time.Sleep(idleTime)
	for name, pid := range who {
		used[name] += cpuTime(t, pid)
	}
	qemu += cpuTime(t, m.PID())
	eventually(t, 10*time.Second, "the agent's part", func() bool {
		var micros int64
		_, rest, ok := strings.Cut(m.Output(), "agent "+what+" used ")
		if _, err := fmt.Sscanf(rest, "%d us\n", &micros); !ok || err != nil {
			return false
		}
		used["agent"] = time.Duration(micros) * time.Microsecond
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(used)) {
		t.Logf("%s: %-6s %6.3f %% of a core", what, name, percent(used[name]))
		sum += percent(used[name])
	}
	t.Logf("%s: all    %6.3f %%; QEMU %.3f %%", what, sum, percent(qemu))
	return sum
}

// A machine that rings all the time doesn't keep a processor of its host busy.
func TestSoakRinging(t *testing.T) {
	h := startHost(t, twoMachines)
	m := h.boot("one", `
kill $agent
wait $agent
echo ringing
yes >/dev/$(basename $(dirname $(grep -l org.pegasus.0 /sys/class/virtio-ports/*/name))) &
sleep 3600
`)
	eventually(t, bootTime, "it rings", func() bool { return strings.Contains(m.Output(), "ringing") })
	hub, qemu := -cpuTime(t, h.hubOf(m)), -cpuTime(t, m.PID())
	time.Sleep(idleTime)
	hub += cpuTime(t, h.hubOf(m))
	qemu += cpuTime(t, m.PID())
	t.Logf("the hub used %.2f %% of a core, QEMU %.1f %%", percent(hub), percent(qemu))
	if percent(hub) > 10 {
		t.Error("that is too much")
	}
}

func percent(used time.Duration) float64 { return 100 * used.Seconds() / idleTime.Seconds() }

// hubOf returns the process ID of a machine's hub.
func (h *host) hubOf(m *machine) int {
	h.t.Helper()
	all := processes(h.t, "\x00hub\x00", filepath.Join(h.regions, m.name))
	if len(all) != 1 {
		h.t.Fatalf("%d hubs", len(all))
	}
	return all[0]
}

// workerOf returns the process ID of the worker of a domain's only process, 0 without one.
func (h *host) workerOf(domain string) int {
	h.t.Helper()
	for _, pid := range processes(h.t, "pegasusd worker "+domain) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", h.daemon.Process.Pid)) {
			return pid
		}
	}
	return 0
}
