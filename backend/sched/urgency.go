package sched

import (
	"log/slog"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/internal/timerslack"
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
	before  int64 // processor time of the thread then, ns
	until   int64 // of the penalty, ns
}

const (
	urgencyWindow  = 100 * time.Millisecond
	urgencyPenalty = time.Second
)

// newUrgency returns the urgency of the calling goroutine, which is locked to its thread.
func newUrgency(log *slog.Logger) *urgency {
	runtime.LockOSThread()
	normal := unix.SchedAttr{Policy: unix.SCHED_NORMAL}
	if a, err := unix.SchedGetAttr(0, 0); err == nil {
		normal.Nice = a.Nice
	}
	timerslack.Restore() // for the time without the class
	u := &urgency{log: log, set: func(urgent bool) error { return setUrgent(urgent, normal) }}
	u.change(true)
	return u
}

// setUrgent sets the class of the calling thread. Threads and processes that it creates have the normal class; that flag
// stays, since only a privileged thread may clear it.
func setUrgent(urgent bool, normal unix.SchedAttr) error {
	a := normal
	if urgent {
		a = unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}
	}
	a.Size, a.Flags = unix.SizeofSchedAttr, unix.SCHED_FLAG_RESET_ON_FORK
	return unix.SchedSetAttr(0, &a, 0)
}

func (u *urgency) change(urgent bool) {
	if u.refused || u.urgent == urgent {
		return
	}
	if err := u.set(urgent); err != nil {
		u.refused = true
		u.log.Info("the scheduler loop keeps its priority: without real-time priority, decisions are late while the host's processors are busy; grant CAP_SYS_NICE to avoid that",
			"real_time", u.urgent, "err", err)
		return
	}
	u.urgent = urgent
}

// threadTime returns the processor time that the calling thread has used, in ns.
func threadTime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return t.Nano()
}

// ran records how much processor time the thread has used up to now, both in ns. Waits for locks do not count.
func (u *urgency) ran(now, used int64) {
	if now-u.began >= int64(urgencyWindow) {
		u.began, u.before = now, used
	}
	switch {
	case used-u.before > int64(urgencyWindow)/2 && u.urgent:
		u.until = now + int64(urgencyPenalty)
		if u.change(false); !u.urgent {
			u.log.Warn("the scheduler loop computes for more than half of the time: it has normal priority for a while", "time", urgencyPenalty)
		}
	case now >= u.until:
		u.change(true)
	}
}
