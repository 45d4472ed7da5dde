package sim

import (
	"fmt"
	"io"

	"pegasus/policies"
	"pegasus/sim/perfetto"
)

// Trace is a run's timeline, for people: the domain of the request that each engine ran, the domain with the
// open gate, the domain that each CPU ran.
type Trace struct {
	picture *perfetto.Trace
	open    map[track]begun
}

// track is a line of the picture.
type track struct {
	group int
	name  string
}

// begun is the open slice of a line, and its beginning.
type begun struct {
	name string
	from Time
}

// The groups of lines.
const (
	engineLines = iota
	gateLines
	cpuLines
)

// Trace makes the run record a trace.
func (s *Sim) Trace() *Trace {
	t := &Trace{picture: perfetto.New("accelerators", "gates", "CPUs"), open: map[track]begun{}}
	s.devices.trace, s.loops.trace, s.cpus.trace = t, t, t
	return t
}

// request records that an engine has finished a request.
func (t *Trace) request(now Time, e *engine, r *request) {
	if t == nil {
		return
	}
	name := e.gpu.name
	if len(e.gpu.engines) > 1 {
		name += " " + engineNames[e.class]
	}
	var args map[string]any
	if r.changes > 0 {
		args = map[string]any{"switch_ms": ms(r.changes)}
	}
	t.picture.Add(perfetto.Slice{Group: engineLines, Line: name, Name: r.thread.domain.name, From: int64(e.began), To: int64(now), Args: args})
}

// gate records that a gate opens or closes.
func (t *Trace) gate(now Time, d *domain, c policies.Class, open bool) {
	if t == nil {
		return
	}
	t.turn(track{gateLines, d.name + [3]string{"", " compute", " copy"}[c]}, "open", open, now)
}

// cpu records that a CPU runs another thread, or none.
func (t *Trace) cpu(now Time, p *pcpu, runs *thread) {
	if t == nil {
		return
	}
	line := track{cpuLines, fmt.Sprintf("CPU %d", p.id)}
	t.turn(line, "", false, now)
	if runs != nil {
		t.turn(line, runs.domain.name, true, now)
	}
}

// turn ends the open slice of a line, or begins one unless it continues.
func (t *Trace) turn(line track, name string, on bool, now Time) {
	was, going := t.open[line]
	switch {
	case on && !going:
		t.open[line] = begun{name, now}
	case !on && going:
		t.picture.Add(perfetto.Slice{Group: line.group, Line: line.name, Name: was.name, From: int64(was.from), To: int64(now)})
		delete(t.open, line)
	}
}

// Engines returns the times for which an engine had a request; the slice has the name of the request's
// domain.
func (t *Trace) Engines() []perfetto.Slice { return t.of(engineLines) }

// Gates returns the times for which a gate was open; the line has the name of its domain, and of a class
// where classes have gates of their own.
func (t *Trace) Gates() []perfetto.Slice { return t.of(gateLines) }

func (t *Trace) of(group int) (all []perfetto.Slice) {
	for _, s := range t.picture.Slices() {
		if s.Group == group {
			all = append(all, s)
		}
	}
	return all
}

// Write writes the trace for Perfetto.
func (t *Trace) Write(w io.Writer) error { return t.picture.Write(w, 0) }
