package policies

import (
	"fmt"
	"strings"

	"pegasus/vcpu"
)

// CPUSide is the part of the domains' CPU state that a policy uses.
type CPUSide uint8

const (
	Neither   CPUSide = iota
	Weights           // CPU credits (Domain.CPU)
	Schedules         // CPU credits and the hypervisor's schedule (Observer)
)

// table lists every policy by its configuration name.
var table = []struct {
	name string
	make func(Options) Policy
	cpus CPUSide // the CPU state that it uses
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

// NewAccounts returns the argument of NewScheduler: the policy of that name, or two of them if the options
// select separate accounts for the compute engine and the copy engines (Gdev's MRQ).
func NewAccounts(name string, o Options) ([]Policy, error) {
	first, err := New(name, o)
	if err != nil || o.Accounts != MRQ {
		return []Policy{first}, err
	}
	second, err := New(name, o)
	return []Policy{first, second}, err
}

// New returns the policy of that name; case is ignored.
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

// Follows returns the part of the CPU state that the chosen policy uses.
func (c Choice) Follows() CPUSide {
	for _, t := range table {
		if strings.EqualFold(t.name, c.Policy) {
			return t.cpus
		}
	}
	return Neither
}

// Share returns the credits to which a domain's part of the accelerator is in proportion under the chosen
// policy, as far as it goes by credits.
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

// Owes reports whether the chosen policy gives domains parts of the accelerator at all.
func (c Choice) Owes() bool {
	switch strings.ToLower(c.Policy) {
	case "none", "fifo", "prt", "ht":
		return false
	}
	return true
}

// Names returns the names of the policies, the simplest first.
func Names() []string {
	var names []string
	for _, t := range table {
		names = append(names, t.name)
	}
	return names
}
