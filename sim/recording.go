package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"pegasus/policies"
)

// Recording is the inputs and decisions of one accelerator's scheduler. Under the recorded policy a replay
// makes the same decisions; under another it makes that policy's decisions at the same events, which do not
// reflect the effects of different decisions.
type Recording struct {
	Header  Header
	Entries []Entry
}

// Header identifies the scheduler. It is the first line of a file; the output of `pegasus trace` has none,
// and begins with a Choice.
type Header struct {
	Format      int               `json:"format"` // 1
	Accelerator string            `json:"accelerator"`
	Policy      string            `json:"policy"`
	Copy        string            `json:"copy,omitempty"`
	Mode        string            `json:"mode,omitempty"`
	Options     map[string]any    `json:"options,omitempty"`
	Domains     map[string]string `json:"domains,omitempty"` // names by ID
}

// Entry is one event, or one call of Ready with the resulting actions, or another policy that was put in
// force. Each is a line of a file.
type Entry struct {
	At      Time              `json:"at"`
	Name    string            `json:"name,omitempty"` // of the domain of an Attach
	Choice  *policies.Choice  `json:"choice,omitempty"`
	Event   *policies.Event   `json:"event,omitempty"`
	Ready   bool              `json:"ready,omitempty"`
	Actions []policies.Action `json:"actions,omitempty"`
}

func (r *Recording) step(now Time, e policies.Event) {
	r.Entries = append(r.Entries, Entry{At: now, Event: &e})
}

func (r *Recording) ready(now Time, actions []policies.Action) {
	r.Entries = append(r.Entries, Entry{At: now, Ready: true, Actions: slices.Clone(actions)})
}

// Record makes the run record the inputs and decisions of one accelerator's scheduler.
func (s *Sim) Record(accelerator string) (*Recording, error) {
	for _, h := range s.loops.hosts {
		if h.gpu.name != accelerator && accelerator != "" {
			continue
		}
		p := s.plan
		h.history = &Recording{Header: Header{Format: 1, Accelerator: h.gpu.name, Policy: p.Policy, Copy: p.Copy, Mode: p.Mode, Options: p.Options, Domains: map[string]string{}}}
		for _, d := range h.all {
			h.history.Header.Domains[fmt.Sprint(d.id)] = d.name
		}
		return h.history, nil
	}
	return nil, fmt.Errorf("there is no accelerator %q", accelerator)
}

// Write writes a recording, a JSON value per line.
func (r *Recording) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	if err := e.Encode(r.Header); err != nil {
		return err
	}
	for i := range r.Entries {
		if err := e.Encode(&r.Entries[i]); err != nil {
			return err
		}
	}
	return out.Flush()
}

// ReadRecording reads the output of Write or of `pegasus trace`.
func ReadRecording(in io.Reader) (*Recording, error) {
	d := json.NewDecoder(bufio.NewReader(in))
	var first struct {
		Header
		Entry
	}
	if err := d.Decode(&first); err != nil {
		return nil, fmt.Errorf("read a recording: first line: %w", err)
	}
	r := &Recording{Header: first.Header}
	switch {
	case first.Choice != nil:
		r.Header.Policy = first.Choice.Policy
		r.Entries = append(r.Entries, first.Entry)
	case r.Header.Format != 1:
		return nil, fmt.Errorf("read a recording: unknown format %d; there is 1", r.Header.Format)
	}
	for line := 2; ; line++ {
		var e Entry
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return r, nil
		} else if err != nil {
			return nil, fmt.Errorf("read a recording: line %d: %w", line, err)
		}
		if e.Choice == nil && e.Event == nil && !e.Ready { // a vCPU's run, which is no input of a scheduler
			continue
		}
		r.Entries = append(r.Entries, e)
	}
}

// Replayed is the result of a replay.
type Replayed struct {
	Policy    string `json:"policy"`
	Events    int    `json:"events"`
	Turns     int    `json:"turns"`           // calls of Ready
	Decisions int    `json:"decisions"`       // in the recording
	Differ    int    `json:"differ"`          // turns with a different decision
	First     string `json:"first,omitempty"` // of these, in words

	Recorded string    `json:"recorded"` // the policy that the recording begins with
	Was      []Outcome `json:"was"`      // outcome of the recorded decisions
	Is       []Outcome `json:"is"`       // outcome of this replay's decisions, at the same events
}

// Replay replays the events, with the policies of the recording or, if named, another throughout, and
// compares the decisions.
func (r *Recording) Replay(policy string) (*Replayed, error) { return r.play(policy, true) }

// Decide is Replay without the outcomes, for measuring the cost of decisions.
func (r *Recording) Decide(policy string) (*Replayed, error) { return r.play(policy, false) }

func (r *Recording) play(policy string, follow bool) (*Replayed, error) {
	plan := Plan{Policy: r.Header.Policy, Copy: r.Header.Copy, Mode: r.Header.Mode, Options: r.Header.Options}
	if policy != "" {
		plan = Plan{Policy: policy, Mode: r.Header.Mode}
	}
	var sched *policies.Scheduler
	if len(r.Entries) == 0 || r.Entries[0].Choice == nil {
		var err error
		if sched, err = plan.scheduler(); err != nil {
			return nil, err
		}
	}
	out := &Replayed{Policy: plan.Policy, Recorded: r.Header.Policy}
	var was, is *ledger
	if follow {
		was, is = r.recorded(), newLedger()
	}
	other := follow && policy != "" && !strings.EqualFold(policy, r.Header.Policy)
	for i := range r.Entries {
		switch e := &r.Entries[i]; {
		case e.Choice != nil:
			var err error
			if sched, err = choose(sched, e, policy); err != nil {
				return nil, err
			}
		case e.Event != nil:
			out.Events++
			passed := e.Event
			if other {
				passed = is.instead(e.At, passed, was)
			}
			sched.Step(e.At, passed)
			if follow {
				is.event(e.At, passed, e.Name)
			}
		default:
			out.Turns++
			out.Decisions += len(e.Actions)
			got := sched.Ready(e.At)
			if follow {
				is.decided(e.At, got)
			}
			if !slices.EqualFunc(got, e.Actions, policies.Action.Same) {
				if out.Differ++; out.First == "" && follow {
					out.First = fmt.Sprintf("after %v: %s; recorded: %s", e.At.Sub(r.Entries[0].At), is.describe(e.At, got, r.Header.Domains), was.describe(e.At, e.Actions, r.Header.Domains))
				}
			}
		}
	}
	if !follow {
		return out, nil
	}
	out.Was, out.Is = was.outcomes(r.Header.Domains), is.outcomes(r.Header.Domains)
	return out, nil
}

// recorded returns a ledger that follows the recorded decisions.
func (r *Recording) recorded() *ledger {
	l := newLedger()
	for i := range r.Entries {
		switch e := &r.Entries[i]; {
		case e.Event != nil:
			l.event(e.At, e.Event, e.Name)
		case e.Ready:
			l.decided(e.At, e.Actions)
		}
	}
	return l
}

// choose puts the chosen policy in force or, if named, another from the beginning on.
func choose(sched *policies.Scheduler, e *Entry, policy string) (*policies.Scheduler, error) {
	c := *e.Choice
	if policy != "" {
		if c.Policy = policy; sched != nil {
			return sched, nil
		}
	}
	p, err := c.New()
	if err != nil {
		return nil, err
	}
	if sched == nil {
		return policies.NewScheduler(p...), nil
	}
	sched.Use(e.At, p...)
	return sched, nil
}
