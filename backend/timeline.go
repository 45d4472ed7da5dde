package backend

import (
	"context"
	"time"

	"pegasus/accel"
	"pegasus/backend/control"
	"pegasus/backend/gate"
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
	d       *Daemon
	spans   chan control.Span
	readers map[*gate.Page]*gate.Reader
	runs    hypervisor.Runs
}

// timeline emits the spans in which domains held engines, gates were open, and vCPUs ran. The first span is empty and
// marks the start of the collection.
func (d *Daemon) timeline(ctx context.Context, emit func(v any) error) error {
	if !d.watch(ctx) {
		return control.Errorf(control.CodeConflict, "somebody watches the timeline already")
	}
	d.mu.Lock()
	accelerators := d.accelerators
	d.mu.Unlock()
	t := &timeline{d: d, spans: make(chan control.Span, spanBacklog), readers: make(map[*gate.Page]*gate.Reader)}
	if d.opt.Runs != nil {
		t.runs = d.opt.Runs()
	}
	for _, a := range accelerators {
		a.Watch(t.put)
	}
	defer t.end(accelerators)
	if err := emit(control.Span{}); err != nil {
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
			return control.Errorf(control.CodeConflict, "the timeline is read too slowly")
		}
		for range len(t.spans) {
			if err := emit(<-t.spans); err != nil {
				return err
			}
		}
	}
}

// watch makes the caller the timeline's client and reports whether it did: it fails if another client is connected. It
// waits up to watcherGone for a client that has hung up.
func (d *Daemon) watch(ctx context.Context) bool {
	for end := time.Now().Add(watcherGone); ; pause(ctx, gatherEvery) {
		d.mu.Lock()
		free := !d.watched
		d.watched = true
		d.mu.Unlock()
		if free || ctx.Err() != nil || time.Now().After(end) {
			return free
		}
	}
}

func (t *timeline) end(accelerators []*accelerator) {
	for _, a := range accelerators {
		a.Watch(nil)
	}
	if t.runs != nil {
		t.runs.Close()
	}
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	t.d.watched = false
	for _, dom := range t.d.domains {
		if dom.on != nil {
			dom.attachment.Page.Note(false)
		}
	}
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
	t.d.mu.Lock()
	readers := t.readers
	t.readers = make(map[*gate.Page]*gate.Reader, len(readers)) // the pages of detached domains are gone
	for _, dom := range t.d.domains {
		if dom.on != nil {
			t.read(dom, readers[dom.attachment.Page])
		}
	}
	t.d.mu.Unlock()
	if t.runs == nil {
		return
	}
	t.runs.Look(cpuDomains{t.d}.drawn(), func(r hypervisor.Run) {
		t.put(control.Span{Line: control.LineCPU, Domain: r.Domain, CPU: r.CPU, VCPU: r.VCPU, From: r.From, To: r.To})
	})
}

// read collects a domain's trace records. The daemon's mu is held: the page stays mapped.
func (t *timeline) read(dom *domain, r *gate.Reader) {
	page := dom.attachment.Page
	if r == nil {
		page.Note(true)
		r = gate.NewReader(page)
	}
	t.readers[page] = r
	lost := r.Read(func(n gate.Noted) {
		t.put(control.Span{
			Line: control.LineEngine, Accelerator: dom.on.Name, Domain: dom.name, Class: engineNames[n.Class], Process: n.PID,
			Name: n.Name, From: n.Start, To: n.End,
		})
	})
	if lost > 0 {
		now := gate.Now()
		t.put(control.Span{Line: control.LineEngine, Accelerator: dom.on.Name, Domain: dom.name, From: now, To: now, Lost: lost})
	}
}

// engineNames are the display names of the engine classes.
var engineNames = [accel.NumClasses]string{accel.Compute: "compute", accel.CopyIn: "copy in", accel.CopyOut: "copy out", accel.CopyDevice: "copy within"}
