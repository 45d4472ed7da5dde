//go:build soak

package test

import (
	"slices"
	"testing"
	"time"
)

// The attacks by one process, and by as many as a domain may have.
var (
	single = theft{attack: "runs long what is predicted short, alone", args: []string{"pile", "3000000", "3"}, processes: 1}
	texts  = theft{attack: "launches large kernels for the first time, in 16 processes", args: []string{"text", "4", "60000"}, processes: 16}
	many   = theft{attack: "runs long what is predicted short, in 64 processes", args: []string{"pile", "3000000", "3"}, processes: 64}
)

// The attacks by calls that take no engine. The victim keeps its part beside them; its gaps depend on how the host's
// kernel divides CPUs among many threads that wake often (docs/results/theft-2026-11-29.md).
var (
	makes       = theft{attack: "makes streams in many processes", args: []string{"streams", "60000", "60"}, processes: 64}
	graphs      = theft{attack: "makes graphs in many processes", args: []string{"graphs", "20000", "60"}, processes: 64}
	makesApart  = makes.inGroups("makes streams in many processes of a cgroup")
	graphsApart = graphs.inGroups("makes graphs in many processes of a cgroup")
)

func (a theft) inGroups(attack string) theft {
	a.attack, a.grouped = attack, true
	return a
}

// Every attack under every policy that divides time, for a minute each, with one account or one for each class of engines.
func TestSoakTheft(t *testing.T) {
	for _, policy := range []string{"accc", "rr", "lag", "drr", "xc", "slaf", "credit", "band"} {
		for _, accounts := range []string{"", "mrq"} {
			for _, a := range []theft{ghost, outrun, quit, single, pile, many, fill, copied, text, texts, bytes8, clocks, polls, makes, graphs, makesApart, graphsApart, quit.restarted(), pile.restarted()} {
				a := a.under(policy, accounts)
				t.Run(a.String(), func(t *testing.T) {
					gap, part := a.try(t, min(time.Minute, soakTime(t)))
					crowd := slices.Contains([]string{makes.attack, graphs.attack, makesApart.attack, graphsApart.attack}, a.attack)
					if gap > rotation+longest && !a.restart && !crowd {
						t.Errorf("the victim computed nothing for %v, want less than %v", gap, rotation+longest)
					}
					if part < 0.475 && !a.restart { // of the elapsed time, also where the thief takes processors and no engine
						t.Errorf("the victim computed for %.1f %% of the time, want 47.5 %%", 100*part)
					}
				})
			}
		}
		for _, a := range []theft{quit, pile, fill} {
			a := a.under(policy, "")
			t.Run("several/"+a.String(), func(t *testing.T) { a.onSeveral(t, min(time.Minute, soakTime(t))) })
		}
		t.Run("short jobs/"+policy, func(t *testing.T) { shortJobs(t, policy, min(time.Minute, soakTime(t)), 3) })
	}
}
