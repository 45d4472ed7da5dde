package worker

import (
	"testing"
	"time"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// employWithBell starts a worker for a process of a virtual machine, which has a bell.
func employWithBell(t *testing.T) *employed {
	return employ(t, func(j *Job, _ *Files) { j.Features = callbuf.FeatureApart | callbuf.FeatureBell }).serve()
}

// Every message over its socket wakes an idle worker, and the worker still notices its guest's hang-up.
func TestBell(t *testing.T) {
	e := employWithBell(t)
	rings := 0
	e.g.RingBy(func() {
		rings++
		e.guest.Write([]byte{0})
	})
	for range 10 {
		time.Sleep(150 * time.Millisecond) // so that it sleeps
		e.want(cuda.Success, cuda.OpNop, 0, nil)
	}
	if rings < 5 {
		t.Errorf("it was rung %d times in 10", rings)
	}
	e.guest.Close()
	if err := e.end(); err != nil {
		t.Error(err)
	}
}

// A lost ring costs one slice of delay, and no more.
func TestBellLost(t *testing.T) {
	e := employWithBell(t)
	e.g.RingBy(func() {})
	for range 3 {
		time.Sleep(50 * time.Millisecond)
		e.want(cuda.Success, cuda.OpNop, 0, nil)
	}
}

// A guest that rings continuously is served at intervals: it cannot keep a processor busy.
func TestRungWithoutEnd(t *testing.T) {
	e := employWithBell(t)
	taken := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); taken++ {
		e.guest.SetWriteDeadline(end)
		if _, err := e.guest.Write([]byte{0}); err != nil {
			break
		}
	}
	const queued = 2000 // as many as a socket's queue holds, and more
	if most := int(time.Second/callbuf.RingPause) + queued; taken > most {
		t.Errorf("it took %d rings in a second, more than %d", taken, most)
	}
	e.want(cuda.Success, cuda.OpNop, 0, nil)
	e.guest.Close()
	if err := e.end(); err != nil {
		t.Error(err)
	}
}
