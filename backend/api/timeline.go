package api

import (
	"context"
	"time"

	"pegasus/accel"
	"pegasus/backend/control"
	"pegasus/backend/gate"
	"pegasus/backend/guests"
	"pegasus/backend/sched"
	"pegasus/hypervisor"
)

const (
	// gatherEvery is the period at which a timeline samples workers' trace records and the CPUs: long enough to cost
	// little, short enough to lose no records.
	gatherEvery = 2 * time.Millisecond
	// windowsEvery is the period at which windows that are still open are reported.
	windowsEvery = 50 * time.Millisecond
	// watcherGone bounds the time in which the daemon notices that a timeline's client has hung up.
	watcherGone = 2 * time.Second
	// spanBacklog bounds the spans that wait for their reader.
	spanBacklog = 1 << 16
)

// timeline collects spans for one client. One goroutine uses it, except for put, which the scheduler loops call.
type timeline struct {
	guests  guests.Requests
	spans   chan control.Span
	readers map[*gate.Page]*gate.Reader
	runs    hypervisor.Runs
}

// timeline sends the spans in which domains held engines, gates were open, and vCPUs ran. The first span is empty and
// marks the start of the collection.
func (s *Server) timeline(ctx context.Context, out *stream) error {
	if !s.watch(ctx) {
		return control.Errorf(control.CodeConflict, "timeline: another client reads it already")
	}
	defer s.unwatch()
	accelerators := s.guests.Loops()
	t := &timeline{guests: s.guests, spans: make(chan control.Span, spanBacklog), readers: make(map[*gate.Page]*gate.Reader)}
	if s.opt.Runs != nil {
		t.runs = s.opt.Runs()
	}
	for _, a := range accelerators {
		a.Watch(t.put)
	}
	defer t.end(accelerators)
	if err := out.send(control.Span{}); err != nil {
		return err
	}
	if err := out.flush(); err != nil {
		return err
	}
	gather, windows := time.NewTicker(gatherEvery), time.NewTicker(windowsEvery)
	defer gather.Stop()
	defer windows.Stop()
	for {
		select {
		case <-gather.C:
			t.gather()
		case <-windows.C:
			for _, a := range accelerators {
				a.ReportWindows()
			}
		case <-ctx.Done():
			return nil
		}
		if len(t.spans) == cap(t.spans) {
			return control.Errorf(control.CodeConflict, "timeline: the client reads too slowly")
		}
		if len(t.spans) == 0 {
			continue
		}
		for range len(t.spans) {
			if err := out.send(<-t.spans); err != nil {
				return err
			}
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
}

// watch makes the caller the timeline's client and reports whether it did: it fails if another client is connected. It
// waits up to watcherGone for a client that has hung up.
func (s *Server) watch(ctx context.Context) bool {
	for end := time.Now().Add(watcherGone); ; sleepContext(ctx, gatherEvery) {
		s.mu.Lock()
		free := !s.watched
		s.watched = true
		s.mu.Unlock()
		if free || ctx.Err() != nil || time.Now().After(end) {
			return free
		}
	}
}

// unwatch lets another client read the timeline.
func (s *Server) unwatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = false
}

// sleepContext blocks for d, or until ctx is done.
func sleepContext(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// end stops the collection.
func (t *timeline) end(accelerators []*sched.Accelerator) {
	for _, a := range accelerators {
		a.Watch(nil)
	}
	if t.runs != nil {
		t.runs.Close()
	}
	t.guests.EachPage(func(_, _ string, page *gate.Page) { page.Note(false) })
}

// put queues a span for the client; a full queue ends the timeline.
func (t *timeline) put(s control.Span) {
	select {
	case t.spans <- s:
	default:
	}
}

// gather collects the records since the last call.
func (t *timeline) gather() {
	readers := t.readers
	t.readers = make(map[*gate.Page]*gate.Reader, len(readers)) // the pages of detached domains are gone
	t.guests.EachPage(func(accelerator, domain string, page *gate.Page) {
		t.read(accelerator, domain, page, readers[page])
	})
	if t.runs == nil {
		return
	}
	t.runs.Look(t.guests.Drawn(), func(r hypervisor.Run) {
		t.put(control.Span{Line: control.LineCPU, Domain: r.Domain, CPU: r.CPU, VCPU: r.VCPU, From: r.From, To: r.To})
	})
}

// read collects a domain's trace records.
func (t *timeline) read(accelerator, domain string, page *gate.Page, r *gate.Reader) {
	if r == nil {
		page.Note(true)
		r = gate.NewReader(page)
	}
	t.readers[page] = r
	lost := r.Read(func(n gate.Noted) {
		t.put(control.Span{
			Line: control.LineEngine, Accelerator: accelerator, Domain: domain, Class: engineNames[n.Class], Process: n.PID,
			Name: n.Name, From: n.Start, To: n.End,
		})
	})
	if lost > 0 {
		now := gate.Now()
		t.put(control.Span{Line: control.LineEngine, Accelerator: accelerator, Domain: domain, From: now, To: now, Lost: lost})
	}
}

// engineNames are the display names of the engine classes.
var engineNames = [accel.NumClasses]string{accel.Compute: "compute", accel.CopyIn: "copy in", accel.CopyOut: "copy out", accel.CopyDevice: "copy within"}
