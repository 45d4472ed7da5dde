package policies

import (
	"fmt"
	"time"
)

// Job is a periodic task's job: its accelerator time, the time of its longest request, and its deadline
// relative to the release.
type Job struct {
	Cost, Longest, Deadline time.Duration
}

// Feasible returns nil if all these jobs meet their deadlines under EDF, and otherwise an error that names
// the first, by deadline, for which that is not certain. Requests are not preempted, so each job may have to
// wait for the longest request of one that is due later. The test is sufficient, not necessary.
func Feasible(jobs []Job) error {
	for i, j := range jobs {
		if j.Cost < 0 || j.Longest < 0 || j.Deadline <= 0 {
			return fmt.Errorf("job %d has a cost of %v, a longest request of %v and a deadline of %v; the deadline must be positive, the others not negative", i, j.Cost, j.Longest, j.Deadline)
		}
	}
	worst := -1
	var need uint64
	for i, j := range jobs {
		if n := load(jobs, j.Deadline); n > million && (worst < 0 || j.Deadline < jobs[worst].Deadline) {
			worst, need = i, n
		}
	}
	if worst < 0 {
		return nil
	}
	return fmt.Errorf("job %d may miss its deadline of %v: those due by then and the longest request of the others need %d.%d %% of the accelerator; make jobs cheaper, rarer or later",
		worst, jobs[worst].Deadline, need/10_000, need/1000%10)
}

// load returns the part of the accelerator, in ppm, that the jobs due within a time may need, including their
// blocking by one later job.
func load(jobs []Job, within time.Duration) uint64 {
	var sum uint64
	var block time.Duration
	for _, j := range jobs {
		if j.Deadline <= within {
			sum += min(muldiv(uint64(j.Cost), million, uint64(j.Deadline), true), 1<<32)
		} else {
			block = max(block, j.Longest)
		}
	}
	return sum + min(muldiv(uint64(block), million, uint64(within), true), 1<<32)
}
