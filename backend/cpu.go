package backend

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processTime returns the time that a process had on the host's CPUs, in nanoseconds. The process may have ended but
// must not have been waited for.
func processTime(pid int) (int64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: of the clocks of a process, the time for which it was scheduled
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return ts.Nano(), nil
}

// cpuTime returns a worker's time on the host's CPUs in nanoseconds, as last readable. d.mu is held.
func (g *guest) cpuTime() int64 {
	if g.worker == nil || g.ended {
		return g.cpu
	}
	ns, err := processTime(g.workerPID)
	if err == nil && (g.cmd != nil || !hasExited(g.worker)) { // a child keeps its pid until it is waited for
		g.cpu = max(g.cpu, ns)
	}
	return g.cpu
}

// lastTime reads the CPU time of an ended worker, which is final.
func (d *Daemon) lastTime(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.cpuTime()
	g.ended = true
}

// sacrifice is how much higher a worker's oom_score_adj is than its daemon's, of 1000.
const sacrifice = 500

// offerFirst makes the kernel end a worker before the daemon when the host runs out of memory.
func offerFirst(pid int) error {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(min(n+sacrifice, 1000))), 0)
}
