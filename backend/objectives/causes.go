package objectives

import (
	"fmt"
	"time"

	"pegasus/backend/control"
)

// Surroundings is the part of the causes of a violation that lies outside the domain.
type Surroundings struct {
	Policy   string
	Promised float64 // sum of the share objectives on the accelerator
	Raises   bool    // the policy gives more time to a domain that missed its share objective
}

// Parts of the recent time from which a cause is reported.
const (
	stealWorth = 0.05
	idleWorth  = 0.25
	// allShare is the part of the used time from which a domain had all of it.
	allShare = 0.98
)

// Causes returns the causes of a violated objective that the domain's description shows, and what the scheduler does
// about it.
func Causes(o control.ObjectiveState, d *control.Domain, s Surroundings) (lines []string) {
	if o.Name == names[share] {
		lines = shareCauses(o, d, s)
	}
	if t := d.Spent; t.Window > 0 && t.Turn > idleWorth && o.Name != names[share] {
		if d.Share >= allShare {
			lines = append(lines, fmt.Sprintf("it had all used time of %s and waits for %.0f %% of the time: its requests wait for its own earlier ones; fewer at once, or a larger `in_flight` of the accelerator, help",
				d.Accelerator, 100*t.Turn))
		} else {
			lines = append(lines, fmt.Sprintf("it waits for its turn for %.0f %% of the time: more credits, or fewer domains on %s, help", 100*t.Turn, d.Accelerator))
		}
	}
	if d.Steal >= stealWorth {
		lines = append(lines, fmt.Sprintf("its vCPUs waited for the host's CPUs for %.0f %% of the time: it submits work late", 100*d.Steal))
	}
	if d.Swapped > 0 {
		lines = append(lines, fmt.Sprintf("%d bytes of its device memory are evicted, and are restored before its work runs: `memory_guarantee` keeps them there", d.Swapped))
	}
	if d.WorkerCPULimit > 0 && d.WorkerCPULately >= 0.9*float64(d.WorkerCPULimit)/100 {
		lines = append(lines, fmt.Sprintf("its workers use the %d %% of a CPU that `cpu` allows", d.WorkerCPULimit))
	}
	if t := d.Spent; t.Window > 0 && t.Idle > idleWorth {
		lines = append(lines, fmt.Sprintf("it requested nothing for %.0f %% of the time: a time in which it has no claim", 100*t.Idle))
	}
	if len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("no cause outside the domain in the last %v; waits and gaps in its own work may add up", time.Duration(d.Spent.Window).Round(100*time.Millisecond)))
	}
	if s.Raises && o.Name == names[share] {
		return append(lines, fmt.Sprintf("policy %s gives it extra ticks until the missing time is made up for", s.Policy))
	}
	return append(lines, fmt.Sprintf("policy %s keeps to the credits: the scheduler takes no time from other domains for an objective", s.Policy))
}

func shareCauses(o control.ObjectiveState, d *control.Domain, s Surroundings) (lines []string) {
	switch {
	case s.Promised > 1:
		lines = append(lines, fmt.Sprintf("the share objectives on %s add up to %.0f %%: not all of them can be kept", d.Accelerator, 100*s.Promised))
	case d.Entitled == 0:
		lines = append(lines, fmt.Sprintf("policy %s owes no domain a share", s.Policy))
	case d.Entitled < o.Target && !s.Raises:
		lines = append(lines, fmt.Sprintf("its credits come to %.1f %% beside the domains that are on %s now, less than the objective of %.1f %%: `pegasus set %s credits=…`",
			100*d.Entitled, d.Accelerator, 100*o.Target, d.Name))
	}
	return lines
}

// Text describes the state of an objective, for people.
func Text(o *control.ObjectiveState) string {
	text := fmt.Sprintf("objective %s %s: %s", o.Name, value(o.Name, o.Target), o.State)
	if o.State == control.ObjectiveIdle {
		return text + fmt.Sprintf(", too little work in %v to judge", time.Duration(o.Window))
	}
	return text + fmt.Sprintf(", %s over %v; kept for %.1f %% of the %v judged in the last hour", value(o.Name, o.Measured), time.Duration(o.Window),
		100*o.Kept, time.Duration(o.Judged).Round(time.Second))
}

func value(name string, v float64) string {
	switch name {
	case names[share]:
		return fmt.Sprintf("%.1f %%", 100*v)
	case names[waitP99]:
		return time.Duration(v).Round(time.Microsecond).String()
	default:
		return fmt.Sprintf("%.1f/s", v)
	}
}
