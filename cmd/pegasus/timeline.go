package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"pegasus/backend/control"
	"pegasus/sim/perfetto"
)

// maxSpans bounds a picture: Perfetto gets slow with more.
const maxSpans = 2_000_000

var errFull = errors.New("the picture is full")

// timeline is `pegasus trace --perfetto`: it records a picture of the activity, for so many seconds or, with
// 0, until interrupted.
func timeline(c *call, path string, seconds float64) error {
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	ended, begin, stop := until(seconds)
	defer stop()
	if seconds == 0 {
		fmt.Fprintln(c.err, "recording; Ctrl-C ends it")
	} else if seconds > 2 {
		fmt.Fprintf(c.err, "recording for %v\n", time.Duration(seconds*float64(time.Second)))
	}
	p := newPicture()
	err = daemon.Timeline(ended, func(s control.Span) error {
		begin()
		if p.add(s); len(p.trace.Slices()) > maxSpans {
			return errFull
		}
		return nil
	})
	full := errors.Is(err, errFull)
	if ended.Err() != nil || full {
		err = nil
	}
	if err := errors.Join(err, p.trace.Write(file, p.zero), file.Close()); err != nil { // the daemon may have ended meanwhile
		return err
	}
	if len(p.trace.Slices()) == 0 {
		fmt.Fprintln(c.err, "warning: nothing was recorded: no domain used an accelerator, and no vCPU or thread of one ran")
	}
	if full {
		fmt.Fprintf(c.err, "ended early: a picture of more than %d slices can hardly be looked at\n", maxSpans)
	}
	if p.lost > 0 {
		fmt.Fprintf(c.err, "missing: %s; workers executed more than the daemon could note down\n", control.Count(int(p.lost), "execution"))
	}
	fmt.Fprintf(c.err, "%s in %s; open it at https://ui.perfetto.dev or in chrome://tracing\n", control.Count(len(p.trace.Slices()), "slice"), path)
	return nil
}

// picture draws spans on lines.
type picture struct {
	trace *perfetto.Trace
	zero  int64 // its beginning
	lost  uint64
}

// The groups of its lines.
const (
	engineGroup = iota
	gateGroup
	cpuGroup
)

func newPicture() *picture {
	return &picture{trace: perfetto.New("accelerators: who has the engines", "gates: whose window it is", "CPUs: which vCPUs run")}
}

func (p *picture) add(s control.Span) {
	if p.lost += s.Lost; s.Lost > 0 || s.To <= s.From {
		return
	}
	if p.zero == 0 || s.From < p.zero {
		p.zero = s.From
	}
	slice := perfetto.Slice{From: s.From, To: s.To, Name: s.Domain}
	switch s.Line {
	case control.LineEngine:
		slice.Line = s.Accelerator + " " + s.Class
		slice.Args = map[string]any{"worker": s.Process, "domain": s.Domain}
		if s.Name != "" {
			slice.Name += ": " + s.Name
			slice.Args["kernel"] = s.Name
		}
		p.trace.Add(slice)
	case control.LineGate:
		slice.Group, slice.Line = gateGroup, s.Accelerator+" "+s.Domain
		if s.Class != "all" {
			slice.Line += " " + s.Class
		}
		p.trace.Continue(slice)
	case control.LineCPU:
		slice.Group, slice.Line = cpuGroup, "CPU "+strconv.Itoa(s.CPU)
		slice.Name = fmt.Sprintf("%s vCPU %d", s.Domain, s.VCPU)
		if s.CPU < 0 {
			slice.Line = "some CPU"
		}
		p.trace.Continue(slice)
	}
}
