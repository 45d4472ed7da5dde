package backend

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processTime returns for how many nanoseconds a process, which may have ended but
// must not have been waited for, has had CPUs of the host.
func processTime(pid int) (int64, error) {
	const scheduled = 2 // of the clocks of a process, the one that counts what it was scheduled for
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return ts.Nano(), nil
}

// cpuTime returns what a worker has had of the host's CPUs, as far as that can still be
// read. d.mu is held.
func (g *guest) cpuTime() int64 {
	if g.worker == nil || g.ended {
		return g.cpu
	}
	ns, err := processTime(g.workerPID)
	if err == nil && (g.cmd != nil || !hasExited(g.worker)) { // a child keeps its number until it is waited for
		g.cpu = max(g.cpu, ns)
	}
	return g.cpu
}

// lastTime reads the CPU time of a worker that has ended.
func (d *Daemon) lastTime(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.cpuTime()
	g.ended = true
}

// sacrifice is by how much more readily the kernel ends a worker than its daemon when
// the host has no memory left, of 1000.
const sacrifice = 500

// offerFirst makes a worker go before the daemon when the host has no memory left.
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
