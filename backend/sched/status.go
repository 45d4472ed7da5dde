package sched

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/vcpu"
)

// Standing returns the state of a domain, and its entitled part of the accelerator among the attached domains, by the
// credits that its policy uses.
func (a *Accelerator) Standing(m *Attachment) (state string, entitled float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	chosen := Choice(a.settings)
	var sum int64
	for _, o := range a.members {
		if !o.paused {
			sum += int64(chosen.Share(o.shares))
		}
	}
	if m.paused {
		return "paused", 0
	}
	st, ok := a.sched.Stat(m.ID)
	if !ok || sum == 0 {
		return "idle", 0
	}
	state = st.State.String()
	switch {
	case st.State == vcpu.Open && m.busy:
		state = "running"
	case st.State == vcpu.Closing && !m.busy:
		state = "idle"
	}
	if !chosen.Owes() {
		return state, 0
	}
	return state, float64(chosen.Share(m.shares)) / float64(sum)
}

// byNumber matches a domain in a policy's text.
var byNumber = regexp.MustCompile(`\bdomain ([0-9]+)`)

// explanation returns the policy's reason for its last decision, with domains by name. a.mu is held.
func (a *Accelerator) explanation() string {
	return byNumber.ReplaceAllStringFunc(a.sched.Explain(), func(text string) string {
		id, err := strconv.ParseUint(text[len("domain "):], 10, 32)
		if i, ok := a.members.find(vcpu.ID(id)); err == nil && ok {
			return "domain " + a.members[i].Domain
		}
		return text
	})
}

// Explain returns the policy's explanation for a domain.
func (a *Accelerator) Explain(m *Attachment) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var lines []string
	if st, ok := a.sched.Stat(m.ID); ok {
		lines = append(lines, fmt.Sprintf("its gate was opened %d times; work that found it closed waited %v on average",
			st.Leases, time.Duration(st.WaitMean).Round(time.Microsecond)))
	}
	if text := a.explanation(); text != "" {
		lines = append(lines, fmt.Sprintf("policy %s: %s", a.settings.Policy, text))
	}
	return lines
}

// Overloaded reports that the policy cannot keep its guarantees.
func (a *Accelerator) Overloaded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sched.Overloaded()
}

// State describes an accelerator's settings, domains and decisions.
type State struct {
	Settings     configs.Accelerator
	Domains      []string // attached, by ID
	Decisions    uint64
	Explanation  string // the policy's reason for its last decision
	DecisionCost control.DecisionCost
}

// State returns the current state.
func (a *Accelerator) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := State{Settings: a.settings, Domains: []string{}, Decisions: a.decisions, Explanation: a.explanation(),
		DecisionCost: control.DecisionCost{Count: a.costs.n, P50: a.costs.quantile(0.5), P99: a.costs.quantile(0.99)}}
	for _, m := range a.members {
		s.Domains = append(s.Domains, m.Domain)
	}
	return s
}
