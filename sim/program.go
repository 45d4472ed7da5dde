package sim

import (
	"fmt"
	"slices"
	"time"

	"pegasus/vcpu"
)

// The engines of requests. The simulator has no copies within the device.
const (
	compute    = vcpu.ComputeEngine
	copyIn     = vcpu.CopyInEngine
	copyOut    = vcpu.CopyOutEngine
	numEngines = copyOut + 1
)

var engineNames = [numEngines]string{"compute", "h2d", "d2h"}

// program is the endless loop of a thread: a run is the steps from the first to the last.
type program struct {
	name   string
	steps  []step
	ahead  int           // calls that may be outstanding
	call   time.Duration // the backend's time for a call
	period time.Duration // between the releases of runs; 0: the next follows at once
	work   float64       // done by a run, in any unit
	noise  *spread       // of the duration of requests; nil: the accelerator's
}

// step is a step of a program.
type step struct {
	op    op
	class vcpu.Engine   // submit
	d     time.Duration // its duration
	to    int           // repeat: the first step of the loop
	times int           // repeat: how often it runs
}

type op uint8

const (
	think  op = iota // the CPU for d
	submit           // a request
	settle           // wait until all requests have ended
	repeat
	sleep
	end // of the run
)

// compile turns a workload into a program. The profile determines the duration of copies.
func (w *Workload) compile(name string, p *Profile) (*program, error) {
	out := &program{name: name, ahead: max(w.Ahead, 1), call: w.Call, period: w.Period, work: w.Work}
	if w.Noise != nil {
		out.noise = logNormal(*w.Noise)
		if out.noise == nil {
			out.noise = &exactly
		}
	}
	if out.work == 0 {
		out.work = 1
	}
	add := func(s step) {
		if s.d > 0 {
			out.steps = append(out.steps, s)
		}
	}
	move := func(class vcpu.Engine, b Bytes) {
		for b > 0 {
			piece := b
			if p.Chunk > 0 {
				piece = min(piece, p.Chunk)
			}
			add(step{op: submit, class: class, d: p.copyTime(piece)})
			b -= piece
		}
		add(step{op: settle, d: 1})
	}
	add(step{op: think, d: w.Pre})
	if w.In > 0 {
		move(copyIn, w.In)
	}
	first := len(out.steps)
	add(step{op: think, d: w.CPU})
	if w.CallIn > 0 {
		add(step{op: submit, class: copyIn, d: p.copyTime(w.CallIn)})
	}
	add(step{op: submit, class: compute, d: w.Kernel})
	if w.CallOut > 0 {
		add(step{op: submit, class: copyOut, d: p.copyTime(w.CallOut)})
	}
	if w.Calls > 1 {
		out.steps = append(out.steps, step{op: repeat, to: first, times: w.Calls})
	}
	if overlap := w.Ahead > max(w.Calls, 1) && w.In == 0 && w.Out == 0; !overlap {
		out.steps = append(out.steps, step{op: settle})
	}
	if w.Out > 0 {
		move(copyOut, w.Out)
	}
	add(step{op: think, d: w.Post})
	add(step{op: sleep, d: w.Think})
	out.steps = append(out.steps, step{op: end})
	if w.Period <= 0 && !slices.ContainsFunc(out.steps, func(s step) bool { return s.op == think || s.op == submit || s.op == sleep }) {
		return nil, fmt.Errorf("workload %q takes no time: give it cpu, kernel, think or period", name)
	}
	return out, nil
}

// calls reports whether the program has any work for an accelerator. The daemon never sees one without.
func (p *program) calls() bool {
	return slices.ContainsFunc(p.steps, func(s step) bool { return s.op == submit })
}

// exactly is a distribution without variance.
var exactly = func() (p spread) {
	for i := range p {
		p[i] = 1 << factorBits
	}
	return p
}()
