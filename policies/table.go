package policies

import (
	"fmt"
	"strings"
)

// table has every policy by the name that configuration uses.
var table = []struct {
	name string
	make func(Options) Policy
}{
	{"none", newNone},
	{"rr", newRR},
	{"accc", newAccC},
	{"xc", newXC},
	{"slaf", newSLAF},
	{"augc", newAugC},
	{"cosched", newCoSched},
	{"fifo", newFIFO},
	{"credit", newCredit},
	{"band", newBand},
	{"drr", newDRR},
	{"prt", newPRT},
	{"ht", newHT},
	{"lag", newLAG},
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

// Names lists the policies, the simplest first.
func Names() []string {
	var names []string
	for _, t := range table {
		names = append(names, t.name)
	}
	return names
}
