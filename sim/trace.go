package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"pegasus/policies"
)

// Trace is what happened when, for people to look at: which domain's request each
// engine ran, whose gate was open, which domain each CPU ran.
type Trace struct {
	slices []slice
	names  map[track]string
	open   map[track]slice
}

// track is a line of the picture.
type track struct{ group, line int }

// The groups of lines.
const (
	engineLines = iota + 1
	gateLines
	cpuLines
)

var groups = map[int]string{engineLines: "accelerators", gateLines: "gates", cpuLines: "CPUs"}

type slice struct {
	track    track
	name     string
	from, to Time
	switched float64 // ms of it that changing contexts took
}

// Trace makes the run keep a trace.
func (s *Sim) Trace() *Trace {
	s.trace = &Trace{names: map[track]string{}, open: map[track]slice{}}
	return s.trace
}

func (s *Sim) traceRequest(e *engine, r *request) {
	if s.trace == nil {
		return
	}
	t := track{engineLines, int(e.index)}
	s.trace.names[t] = e.gpu.name
	if len(e.gpu.engines) > 1 {
		s.trace.names[t] += " " + engineNames[e.class]
	}
	s.trace.slices = append(s.trace.slices, slice{t, r.thread.domain.name, e.began, s.now, ms(r.changes)})
}

func (s *Sim) traceGate(d *domain, c policies.Class, open bool) {
	if s.trace == nil {
		return
	}
	t := track{gateLines, int(d.index)*3 + int(c)}
	s.trace.names[t] = d.name + [3]string{"", " compute", " copy"}[c]
	s.trace.turn(t, "open", open, s.now)
}

func (s *Sim) traceCPU(p *pcpu, t *thread) {
	if s.trace == nil {
		return
	}
	line := track{cpuLines, p.id}
	s.trace.names[line] = fmt.Sprintf("CPU %d", p.id)
	s.trace.turn(line, "", false, s.now)
	if t != nil {
		s.trace.turn(line, t.domain.name, true, s.now)
	}
}

// turn ends what goes on in a line, or begins something there unless it goes on.
func (t *Trace) turn(line track, name string, on bool, now Time) {
	sl, going := t.open[line]
	switch {
	case on && !going:
		t.open[line] = slice{track: line, name: name, from: now}
	case !on && going:
		sl.to = now
		t.slices = append(t.slices, sl)
		delete(t.open, line)
	}
}

// Write writes the trace in Chrome's trace event format, which Perfetto shows too.
func (t *Trace) Write(w io.Writer) error {
	type args map[string]any
	type event struct {
		Name  string  `json:"name"`
		Phase string  `json:"ph"`
		At    float64 `json:"ts"`
		For   float64 `json:"dur,omitempty"`
		Group int     `json:"pid"`
		Line  int     `json:"tid"`
		Args  args    `json:"args,omitempty"`
	}
	out := bufio.NewWriter(w)
	first := true
	put := func(e event) error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if first {
			out.WriteString("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")
		} else {
			out.WriteString(",\n")
		}
		first = false
		_, err = out.Write(text)
		return err
	}
	for g := engineLines; g <= cpuLines; g++ {
		if err := put(event{Name: "process_name", Phase: "M", Group: g, Args: args{"name": groups[g]}}); err != nil {
			return err
		}
	}
	named := map[track]bool{}
	for _, s := range t.slices {
		if !named[s.track] {
			named[s.track] = true
			if err := put(event{Name: "thread_name", Phase: "M", Group: s.track.group, Line: s.track.line, Args: args{"name": t.names[s.track]}}); err != nil {
				return err
			}
		}
		e := event{Name: s.name, Phase: "X", At: float64(s.from) / 1e3, For: float64(s.to-s.from) / 1e3, Group: s.track.group, Line: s.track.line}
		if s.switched > 0 {
			e.Args = args{"switch_ms": s.switched}
		}
		if err := put(e); err != nil {
			return err
		}
	}
	out.WriteString("\n]}\n")
	return out.Flush()
}
