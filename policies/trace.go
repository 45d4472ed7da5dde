package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Record is one line of a trace: what a Scheduler was told, or asked and
// answered. A trace begins with a Choice; then the same policies, told the same,
// answer the same.
type Record struct {
	At      Time     `json:"at"`
	Name    string   `json:"name,omitempty"` // of the domain that an Attach is about, where somebody knows it
	Choice  *Choice  `json:"choice,omitempty"`
	Event   *Event   `json:"event,omitempty"`
	Ready   bool     `json:"ready,omitempty"`
	Actions []Action `json:"actions,omitempty"` // what Ready returned
}

// Choice is which policy was put in force.
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

// New makes the policies that were chosen, for NewScheduler or Use.
func (c Choice) New() ([]Policy, error) { return NewAccounts(c.Policy, c.Options) }

// Record has tape called with everything that the Scheduler is told and answers
// from now on, until it is called with nil. So that a trace can be played again
// from nothing it begins with the policies of c, made anew, and with what is known
// of the domains. tape gets records of its own to keep; it must not block.
func (s *Scheduler) Record(now Time, c Choice, tape func(Record)) error {
	if s.tape = nil; tape == nil {
		return nil
	}
	p, err := c.New()
	if err != nil {
		return err
	}
	now = s.clock(now)
	tape(Record{At: now, Choice: &c})
	for _, m := range s.order {
		for _, e := range m.history(s.balances(m).carried(len(s.accounts), len(p))) {
			tape(Record{At: now, Event: &e})
		}
	}
	if s.sample != nil {
		tape(Record{At: now, Event: &Event{Kind: Observe, Sample: s.sample}})
	}
	s.Use(now, p...)
	s.untold = len(s.actions) // gates that close had been opened before the trace began
	s.tape = tape
	return nil
}

// history is what a new Scheduler has to be told of a domain that is there.
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

// told records an event.
func (s *Scheduler) told(now Time, e Event) { s.tape(Record{At: now, Event: &e}) }

// answered records what Ready returns.
func (s *Scheduler) answered(now Time, all []Action) {
	s.tape(Record{At: now, Ready: true, Actions: slices.Clone(all[s.untold:])})
	s.untold = 0
}

// Replay is what came of playing a trace again.
type Replay struct {
	Events    int       `json:"events"`
	Decisions int       `json:"decisions"`
	Differs   *Mismatch `json:"differs,omitempty"` // the first answer that was another
}

// Mismatch is an answer that was not the recorded one.
type Mismatch struct {
	Line int      `json:"line"` // of the trace, from 1
	At   Time     `json:"at"`
	Was  []Action `json:"was"`
	Is   []Action `json:"is"`
}

// PlayAgain reads a trace, JSON records one after another, and compares each
// answer with the recorded one. It ends at the first difference.
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

// Same compares what is decided. Generations count from when a domain was attached,
// which may have been before a trace began.
func (a Action) Same(b Action) bool {
	a.Generation, b.Generation = 0, 0
	return a == b
}
