//go:build cgo

package nvidia

import "pegasus/accel/nvidia/driver"

// Seats bound the threads of the host that may spin at a time.
type Seats interface {
	// TrySpin reports whether the caller got a seat; if so, it must call EndSpin.
	TrySpin() bool
	EndSpin()
}

// lookFor spins for the end of an operation, before its thread sleeps: a GPU wakes the thread by an interrupt, which
// takes longer than many a kernel. It doesn't spin for an operation that is predicted to take longer than SpinTime.
func (p *inflightOp) lookFor() {
	d := p.ctx.dev
	seats, most := d.config.Seats, d.config.SpinTime
	if seats == nil || most <= 0 || p.key != 0 && d.history.Find(p.key) > most || !seats.TrySpin() {
		return
	}
	defer seats.EndSpin()
	driver.Poll(p.ctx.ctx, p.end, most)
}

// linger polls whether a stream without work gets more, before its thread sleeps: waking the thread takes longer than
// many a kernel.
func (s *Stream) linger() {
	d := s.ctx.dev
	seats, most := d.config.Seats, d.config.SpinTime
	if seats == nil || most <= 0 || !seats.TrySpin() {
		return
	}
	defer seats.EndSpin()
	for end := d.clock() + most; s.pending.Load() == 0 && d.clock() < end; {
	}
}
