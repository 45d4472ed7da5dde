package sched

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A loop that computes without end loses its priority within half a window, and gets it back after the penalty.
func TestUrgencyIsLimited(t *testing.T) {
	var set []bool
	u := &urgency{log: slog.New(slog.DiscardHandler), set: func(urgent bool) error { set = append(set, urgent); return nil }}
	u.change(true)
	now, used, step := int64(0), int64(0), int64(time.Millisecond)
	for u.urgent {
		now, used = now+step, used+step
		if u.ran(now, used); now > int64(urgencyWindow) {
			t.Fatal("the loop keeps its priority although it never pauses")
		}
	}
	lost := now
	for !u.urgent {
		now, used = now+step, used+step/10
		u.ran(now, used)
		if now > lost+2*int64(urgencyPenalty) {
			t.Fatal("the loop did not get its priority back")
		}
	}
	if now < lost+int64(urgencyPenalty)-step {
		t.Errorf("the penalty lasted %v, want %v", time.Duration(now-lost), urgencyPenalty)
	}
	for range 1000 { // two fifths of the time
		now, used = now+5*step, used+2*step
		u.ran(now, used)
	}
	if want := []bool{true, false, true}; len(set) != len(want) || !u.urgent {
		t.Errorf("changes %v, want %v", set, want)
	}
}

// A thread that may not have real-time priority stays as it is.
func TestUrgencyIsRefused(t *testing.T) {
	calls := 0
	u := &urgency{log: slog.New(slog.DiscardHandler), set: func(bool) error { calls++; return unix.EPERM }}
	for i := range int64(10) {
		u.change(true)
		u.ran(i*int64(time.Second), i)
	}
	if calls != 1 || u.urgent {
		t.Errorf("%d attempts, urgent %v; want one, false", calls, u.urgent)
	}
}

// The class belongs to the loop's thread: processes that it starts have the normal one.
func TestUrgentThread(t *testing.T) {
	done := make(chan error)
	go func() {
		u := newUrgency(slog.New(slog.DiscardHandler)) // the thread ends with the goroutine
		if u.refused {
			done <- nil
			return
		}
		a, err := unix.SchedGetAttr(0, 0)
		if err == nil && (a.Policy != unix.SCHED_RR || a.Flags&unix.SCHED_FLAG_RESET_ON_FORK == 0) {
			err = errors.New("the thread has another class, or its children inherit it")
		}
		if u.change(false); u.urgent {
			err = errors.New("the thread keeps the class")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
