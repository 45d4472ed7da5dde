//go:build soak

package test

import (
	"testing"
	"time"
)

// The attacks by one process, and by as many as a domain may have.
var (
	single = theft{attack: "runs long what is predicted short, alone", args: []string{"pile", "3000000", "3"}, processes: 1}
	many   = theft{attack: "runs long what is predicted short, in 64 processes", args: []string{"pile", "3000000", "3"}, processes: 64}
)

// Every attack under every policy that divides time, for a minute each, with one account or one for each class of engines.
func TestSoakTheft(t *testing.T) {
	for _, policy := range []string{"accc", "rr", "lag", "drr", "xc", "slaf", "credit", "band"} {
		for _, accounts := range []string{"", "mrq"} {
			for _, a := range []theft{ghost, outrun, quit, single, pile, many, fill, copied, text, bytes8, quit.restarted(), pile.restarted()} {
				a := a.under(policy, accounts)
				t.Run(a.String(), func(t *testing.T) {
					if gap := a.try(t, min(time.Minute, soakTime(t))); gap > rotation+longest && !a.restart {
						t.Errorf("the victim computed nothing for %v, want less than %v", gap, rotation+longest)
					}
				})
			}
		}
		t.Run("short jobs/"+policy, func(t *testing.T) { shortJobs(t, policy, min(time.Minute, soakTime(t)), 3) })
	}
}
