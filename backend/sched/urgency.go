package sched

import (
	"log/slog"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// urgency is the scheduling class of a scheduler loop's thread: real time at the lowest priority, so that a decision is
// not late because the host's processors are busy. At normal priority, beside 64 processes on two processors, the loop
// was late by up to 100 ms several times a second, and a nice value of -15 changed nothing. A loop that computes for
// more than half of urgencyWindow, as hostile workers that ring the doorbell without end can make it, loses the class
// for urgencyPenalty. The loop's goroutine owns the value.
type urgency struct {
	set     func(urgent bool) error // of the calling thread
	log     *slog.Logger
	urgent  bool
	refused bool
	began   int64 // of the current window, ns
	busy    int64 // time within it in which the loop computed, ns
	until   int64 // of the penalty, ns
}

const (
	urgencyWindow  = 100 * time.Millisecond
	urgencyPenalty = time.Second
)

// newUrgency returns the urgency of the calling goroutine, which is locked to its thread.
func newUrgency(log *slog.Logger) *urgency {
	runtime.LockOSThread()
	u := &urgency{set: setUrgent, log: log}
	u.change(true)
	return u
}

// setUrgent sets the class of the calling thread. Threads and processes that it creates have the normal class.
func setUrgent(urgent bool) error {
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if urgent {
		a.Policy, a.Priority, a.Flags = unix.SCHED_RR, 1, unix.SCHED_FLAG_RESET_ON_FORK
	}
	return unix.SchedSetAttr(0, &a, 0)
}

func (u *urgency) change(urgent bool) {
	if u.refused || u.urgent == urgent {
		return
	}
	if err := u.set(urgent); err != nil {
		u.refused = true
		u.log.Info("the scheduler loop has normal priority: decisions are late while the host's processors are busy; grant CAP_SYS_NICE to avoid that", "error", err)
		return
	}
	u.urgent = urgent
}

// ran records that the loop computed from start to end, in ns.
func (u *urgency) ran(start, end int64) {
	if start-u.began >= int64(urgencyWindow) {
		u.began, u.busy = start, 0
	}
	u.busy += end - start
	switch {
	case u.busy > int64(urgencyWindow)/2 && u.urgent:
		u.until = end + int64(urgencyPenalty)
		u.change(false)
		u.log.Warn("the scheduler loop computes for more than half of the time: it has normal priority for a while", "time", urgencyPenalty)
	case end >= u.until:
		u.change(true)
	}
}
