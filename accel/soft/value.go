package soft

import (
	"encoding/binary"
	"runtime/debug"
	"sync"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// writeValue copies a word, on the engine for copies in: a kernel may be waiting for it. A copy of 4 or 8 aligned bytes
// is one store.
func (c *Context) writeValue(s *Stream, w *accel.WriteValue, done accel.Done) cuda.Result {
	if !wordAt(w.Address, w.Bytes) {
		return cuda.ErrorInvalidValue
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], w.Value)
	return c.copy(s, &accel.Copy{
		Dst: accel.End{Address: w.Address}, Src: accel.End{Host: word[:w.Bytes]}, Width: uint64(w.Bytes), Height: 1, Depth: 1,
	}, done)
}

func wordAt(addr uint64, n uint32) bool { return (n == 4 || n == 8) && addr%uint64(n) == 0 }

// waitValue holds the stream as a host function would, until the poll has seen the value.
func (c *Context) waitValue(s *Stream, w *accel.WaitValue, done accel.Done) cuda.Result {
	if !wordAt(w.Address, w.Bytes) || w.Condition > accel.NorBit || c.dev.space.Slice(w.Address, uint64(w.Bytes)) == nil {
		return cuda.ErrorInvalidValue
	}
	wait := valueWait{c: c, w: *w}
	return c.hostFunc(s, &accel.HostFunc{Due: func(r cuda.Result, finished func()) {
		if wait.finished = finished; r != cuda.Success || wait.over() {
			finished()
			return
		}
		c.dev.values.add(wait)
	}}, done)
}

// valueWait is a stream that waits for a value.
type valueWait struct {
	c        *Context
	w        accel.WaitValue
	finished func()
}

// values are the pending waits for values. Kernels and the guest's processors, among others, may write the words, so
// they are polled: by a goroutine that runs while there are any, at intervals that grow while nothing happens. The
// polling of a domain takes a bounded part of a processor, whatever the number of its waits and processes: many short
// sleeps keep other processes from the processors, also where their weights are equal.
type values struct {
	mu  sync.Mutex
	all []valueWait
}

const (
	valueLookLeast = 20 * time.Microsecond
	valueLookMost  = 10 * time.Millisecond
	// valueLookPart is the part of the time without a met condition after which the words are polled again.
	valueLookPart = 32
	// valueLookCost is about ten times as long as one word takes.
	valueLookCost = 2 * time.Microsecond
	// valueWakeCost is about ten times as long as a thread takes to wake and sleep again.
	valueWakeCost = 100 * time.Microsecond
)

// pollPause returns the pause before the next poll. idle is the time without a met condition, words and workers are
// those that the domain polls.
func pollPause(idle time.Duration, words, workers int) time.Duration {
	pause := min(max(idle/valueLookPart, valueLookLeast), valueLookMost)
	return max(pause, time.Duration(words)*valueLookCost+time.Duration(workers-1)*valueWakeCost)
}

func (v *values) add(w valueWait) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all = append(v.all, w); len(v.all) == 1 {
		w.c.dev.running.Go(func() { v.poll(w.c.dev) })
	}
}

// poll polls until no wait is pending.
func (v *values) poll(d *Device) {
	debug.SetPanicOnFault(true)
	last := d.clock()
	for {
		met, left := v.release()
		words, workers := d.worker.Polls(left)
		if left == 0 {
			return
		}
		now := d.clock()
		if met {
			last = now
		}
		time.Sleep(pollPause(time.Duration(now-last), words, workers))
	}
}

// release checks each pending wait once, and releases the streams for which the conditions are met. It reports whether
// there were any, and returns the number of waits that are left.
func (v *values) release() (met bool, left int) {
	v.mu.Lock()
	all := v.all
	v.mu.Unlock()
	var over []func()
	var rest []valueWait
	for i := range all {
		if all[i].over() {
			over = append(over, all[i].finished)
		} else {
			rest = append(rest, all[i])
		}
	}
	v.mu.Lock()
	v.all = append(rest, v.all[len(all):]...)
	left = len(v.all)
	v.mu.Unlock()
	for _, finished := range over {
		finished()
	}
	return len(over) > 0, left
}

// over reports whether a stream's wait is over: its condition is met, or its context has failed, as it does when
// its memory is gone.
func (v *valueWait) over() (over bool) {
	d := v.c.dev
	if v.c.Err() != cuda.Success {
		return true
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the memory was unmapped during the read
			v.c.Fail(cuda.ErrorIllegalAddress)
			over = true
		}
	}()
	if r := d.residence; r != nil {
		if !r.TryBegin(false) {
			return false
		}
		defer r.End(false)
	}
	mem := d.space.Slice(v.w.Address, uint64(v.w.Bytes))
	if mem == nil {
		v.c.Fail(cuda.ErrorIllegalAddress)
		return true
	}
	return v.w.Condition.Holds(loadWord(d.home(mem)), v.w.Value, int(v.w.Bytes)*8)
}
