package pidfd

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// CPUTime returns the time that a process had on the host's CPUs, in nanoseconds. The process may have ended but
// must not have been waited for.
func CPUTime(pid int) (int64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: of the clocks of a process, the time for which it was scheduled
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return ts.Nano(), nil
}
