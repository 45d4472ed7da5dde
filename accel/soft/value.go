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
// they are polled: by a goroutine that runs while there are any, at intervals that grow while nothing happens.
type values struct {
	mu  sync.Mutex
	all []valueWait
}

const (
	valueLookLeast = 20 * time.Microsecond
	valueLookMost  = time.Millisecond
)

func (v *values) add(w valueWait) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all = append(v.all, w); len(v.all) == 1 {
		w.c.dev.running.Go(v.poll)
	}
}

// poll polls until no wait is pending.
func (v *values) poll() {
	debug.SetPanicOnFault(true)
	pause := valueLookLeast
	for {
		met, left := v.release()
		if left == 0 {
			return
		}
		pause = min(pause*5/4, valueLookMost)
		if met {
			pause = valueLookLeast
		}
		time.Sleep(pause)
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
