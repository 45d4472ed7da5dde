package sched

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// Standing returns the state of a domain, and its entitled part of the accelerator among the attached domains, by the
// credits that its policy uses.
func (a *Accelerator) Standing(m *Attachment) (state string, entitled float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state(m), m.entitled(Choice(a.settings), a.members.sum(Choice(a.settings)))
}

// States returns the state of each attached domain.
func (a *Accelerator) States() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string]string, len(a.members))
	for _, m := range a.members {
		all[m.Domain] = a.state(m)
	}
	return all
}

// state returns a domain's state. a.mu is held.
func (a *Accelerator) state(m *Attachment) string {
	if m.paused {
		return "paused"
	}
	st, ok := a.sched.Stat(m.ID)
	switch {
	case !ok, st.State == vcpu.Closing && !m.busy:
		return "idle"
	case st.State == vcpu.Open && m.busy:
		return "running"
	}
	return st.State.String()
}

// Entitlements returns the entitled part of each attached domain that has one, as Standing does.
func (a *Accelerator) Entitlements() map[string]float64 {
	chosen, present := a.present()
	var sum int64
	for i := range present {
		present[i].credits = int64(chosen.Share(present[i].shares))
		sum += present[i].credits
	}
	all := make(map[string]float64, len(present))
	for i := range present {
		if sum > 0 && chosen.Owes() {
			all[present[i].name] = float64(present[i].credits) / float64(sum)
		}
	}
	return all
}

// claim is a domain's claim to a part of the accelerator.
type claim struct {
	name    string
	shares  vcpu.Domain
	credits int64
}

// present returns the policy and the domains that are not paused: a copy, so that the loop does not wait for the
// computation of their parts.
func (a *Accelerator) present() (policies.Choice, []claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]claim, 0, len(a.members))
	for _, m := range a.members {
		if !m.paused {
			all = append(all, claim{name: m.Domain, shares: m.shares})
		}
	}
	return Choice(a.settings), all
}

// sum returns the credits of the domains that are not paused.
func (l members) sum(chosen policies.Choice) (sum int64) {
	for _, m := range l {
		if !m.paused {
			sum += int64(chosen.Share(m.shares))
		}
	}
	return sum
}

// entitled returns the domain's part of the credits; 0 if it is paused or its policy owes nothing.
func (m *Attachment) entitled(chosen policies.Choice, sum int64) float64 {
	if m.paused || sum == 0 || !chosen.Owes() {
		return 0
	}
	return float64(chosen.Share(m.shares)) / float64(sum)
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
		lines = append(lines, fmt.Sprintf("its gate was opened %s; work that found it closed waited %v on average",
			control.Count(int(st.Leases), "time"), time.Duration(st.WaitMean).Round(time.Microsecond)))
	}
	if text := a.explanation(); text != "" {
		if !strings.HasPrefix(text, a.settings.Policy) { // most policies' texts begin with the name
			text = a.settings.Policy + ": " + text
		}
		lines = append(lines, "policy "+text)
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
