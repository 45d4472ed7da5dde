package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Record is one line of a trace: an input of a Scheduler, or a call of Ready and its result. A trace begins
// with a Choice; then the same policies with the same inputs give the same results.
type Record struct {
	At      Time     `json:"at"`
	Name    string   `json:"name,omitempty"` // of the domain of an Attach, if it has one
	Choice  *Choice  `json:"choice,omitempty"`
	Event   *Event   `json:"event,omitempty"`
	Ready   bool     `json:"ready,omitempty"`
	Actions []Action `json:"actions,omitempty"` // the result of Ready
}

// Choice is the policy put in force, with its options.
type Choice struct {
	Policy  string  `json:"policy"`
	Options Options `json:"options"`
}

var kindNames = []string{"attach", "detach", "wake", "charge", "head", "observe"}

func (k EventKind) MarshalText() ([]byte, error) {
	if int(k) >= len(kindNames) {
		return nil, fmt.Errorf("there is no kind %d of events", k)
	}
	return []byte(kindNames[k]), nil
}

func (k *EventKind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames, string(text))
	if i < 0 {
		return fmt.Errorf("%q is no kind of event; there are %s", text, strings.Join(kindNames, ", "))
	}
	*k = EventKind(i)
	return nil
}

// New returns new instances of the chosen policies, for NewScheduler or Use.
func (c Choice) New() ([]Policy, error) { return NewAccounts(c.Policy, c.Options) }

// Record passes every input and output of the Scheduler to recorder from now on, until Record is called with nil.
// The trace begins with new instances of the policies of c and with the state of the domains, so that
// it can be replayed from an empty Scheduler. recorder owns the records that it receives; it must not block.
func (s *Scheduler) Record(now Time, c Choice, recorder func(Record)) error {
	if s.recorder = nil; recorder == nil {
		return nil
	}
	p, err := c.New()
	if err != nil {
		return err
	}
	now = s.clock(now)
	recorder(Record{At: now, Choice: &c})
	for _, m := range s.order {
		for _, e := range m.history(s.balances(m).carried(len(s.accounts), len(p))) {
			recorder(Record{At: now, Event: &e})
		}
	}
	if s.sample != nil {
		recorder(Record{At: now, Event: &Event{Kind: Observe, Sample: s.sample}})
	}
	s.Use(now, p...)
	s.unrecorded = len(s.actions) // gates about to close were opened before the trace began
	s.recorder = recorder
	return nil
}

// history returns the events that give a new Scheduler the state of an existing domain.
func (m *member) history(b Balances) []Event {
	id := Domain{ID: m.stat.Domain.ID}
	all := []Event{{Kind: Attach, Domain: m.stat.Domain, Balances: b}}
	if m.absent {
		return append(all, Event{Kind: Detach, Domain: id})
	}
	if m.context {
		all = append(all, Event{Kind: Wake, Domain: id, Signal: ContextOpened})
	}
	for c, work := range m.work {
		if work {
			all = append(all, Event{Kind: Wake, Domain: id, Signal: Arrived, Class: Class(c)})
		}
	}
	for c, r := range m.heads {
		if r != (Request{}) {
			all = append(all, Event{Kind: Head, Domain: id, Class: Class(c), Request: r})
		}
	}
	return all
}

// recordEvent records an event.
func (s *Scheduler) recordEvent(now Time, e Event) { s.recorder(Record{At: now, Event: &e}) }

// recordActions records the result of Ready.
func (s *Scheduler) recordActions(now Time, all []Action) {
	s.recorder(Record{At: now, Ready: true, Actions: slices.Clone(all[s.unrecorded:])})
	s.unrecorded = 0
}

// Replay is the result of replaying a trace.
type Replay struct {
	Events    int       `json:"events"`
	Decisions int       `json:"decisions"`
	Differs   *Mismatch `json:"differs,omitempty"` // the first result that differs
}

// Mismatch is a result that differs from the recorded one.
type Mismatch struct {
	Line int      `json:"line"` // of the trace, from 1
	At   Time     `json:"at"`
	Was  []Action `json:"was"`
	Is   []Action `json:"is"`
}

// PlayAgain reads a trace, JSON records one after another, and compares each result with the recorded one. It
// stops at the first difference.
func PlayAgain(trace io.Reader) (r Replay, err error) {
	var s *Scheduler
	in := json.NewDecoder(trace)
	for line := 1; ; line++ {
		var rec Record
		switch err := in.Decode(&rec); {
		case errors.Is(err, io.EOF) && s != nil:
			return r, nil
		case errors.Is(err, io.EOF):
			return r, errors.New("trace is empty")
		case err != nil:
			return r, fmt.Errorf("line %d: %w", line, err)
		}
		switch {
		case rec.Choice != nil:
			p, err := rec.Choice.New()
			if err != nil {
				return r, fmt.Errorf("line %d: %w", line, err)
			}
			if s == nil {
				s = NewScheduler(p...)
			} else {
				s.Use(rec.At, p...)
			}
		case s == nil:
			return r, fmt.Errorf("line %d: a trace begins with the choice of a policy", line)
		case rec.Event != nil:
			r.Events++
			s.Step(rec.At, rec.Event)
		case rec.Ready:
			is := s.Ready(rec.At)
			r.Decisions += len(is)
			if !slices.EqualFunc(is, rec.Actions, Action.Same) {
				r.Differs = &Mismatch{line, rec.At, rec.Actions, slices.Clone(is)}
				return r, nil
			}
		}
	}
}

// Same compares decisions, ignoring generations: these count from a domain's attachment, which may precede a
// trace.
func (a Action) Same(b Action) bool {
	a.Generation, b.Generation = 0, 0
	return a == b
}
