package policies

import (
	"fmt"
	"strings"

	"pegasus/vcpu"
)

// CPUSide is what a policy follows of the CPU side of domains.
type CPUSide uint8

const (
	Neither   CPUSide = iota
	Weights           // CPU credits (Domain.CPU)
	Schedules         // these and the hypervisor's schedule (Observer)
)

// table has every policy by the name that configuration uses.
var table = []struct {
	name string
	make func(Options) Policy
	cpus CPUSide // what it follows
}{
	{"none", newNone, Neither},
	{"rr", newRR, Neither},
	{"accc", newAccC, Neither},
	{"xc", newXC, Weights},
	{"slaf", newSLAF, Weights},
	{"augc", newAugC, Schedules},
	{"cosched", newCoSched, Schedules},
	{"fifo", newFIFO, Neither},
	{"credit", newCredit, Neither},
	{"band", newBand, Neither},
	{"drr", newDRR, Neither},
	{"prt", newPRT, Neither},
	{"ht", newHT, Neither},
	{"lag", newLAG, Neither},
}

// NewAccounts returns what NewScheduler needs: the policy of that name, or two of
// them where the options want one account for the compute engine and another for
// the copy engines (Gdev's MRQ).
func NewAccounts(name string, o Options) ([]Policy, error) {
	first, err := New(name, o)
	if err != nil || o.Accounts != MRQ {
		return []Policy{first}, err
	}
	second, err := New(name, o)
	return []Policy{first, second}, err
}

// New returns the policy of that name, in whatever case it is written.
func New(name string, o Options) (Policy, error) {
	if err := o.RequestOptions.check(); err != nil {
		return nil, err
	}
	for _, t := range table {
		if strings.EqualFold(t.name, name) {
			return t.make(o.filled()), nil
		}
	}
	return nil, fmt.Errorf("unknown policy %q; there are %s", name, strings.Join(Names(), ", "))
}

// Follows says what the policy that was chosen follows of the CPU side.
func (c Choice) Follows() CPUSide {
	for _, t := range table {
		if strings.EqualFold(t.name, c.Policy) {
			return t.cpus
		}
	}
	return Neither
}

// Share is what a domain's part of the accelerator is in proportion to under the
// policy that was chosen, as far as that goes by credits.
func (c Choice) Share(d Domain) Credits {
	switch name := strings.ToLower(c.Policy); {
	case name == "rr":
		return vcpu.DefaultCredits
	case name == "xc":
		return d.CPU.OrDefault()
	case c.Follows() != Neither:
		return c.Options.credits(d)
	}
	return d.Credits.OrDefault()
}

// Owes reports whether the policy that was chosen gives domains parts of the accelerator at all.
func (c Choice) Owes() bool {
	switch strings.ToLower(c.Policy) {
	case "none", "fifo", "prt", "ht":
		return false
	}
	return true
}

// Names lists the policies, the simplest first.
func Names() []string {
	var names []string
	for _, t := range table {
		names = append(names, t.name)
	}
	return names
}
