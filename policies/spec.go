package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Spec describes a policy. The file of each policy registers one. The names of the policies, the keys of
// [[accelerator]], the options of the simulator's plans and the tables of docs/policies.md follow from the Specs.
type Spec struct {
	Name string
	// Rank orders the policies where they are listed, the simplest first. Policies without a rank follow the others,
	// by name.
	Rank   int
	Serves string // which domain may submit, a phrase
	Part   string // a domain's part of the time, a phrase
	Lends  Kind   // the kind of its leases
	CPUs   CPUSide
	// Share returns the credits to which a domain's part of the accelerator is in proportion, as far as it goes by
	// credits; nil: the policy entitles no domain to any part.
	Share  func(o *Options, d Domain) Credits
	Params []*Param // without those of reserves, which all policies that lend requests have
	New    func(Options) Policy
}

// CPUSide is the part of the domains' CPU state that a policy uses.
type CPUSide uint8

const (
	Neither   CPUSide = iota
	Weights           // CPU credits (Domain.CPU)
	Schedules         // CPU credits and the hypervisor's schedule (Observer)
)

// specs are the registered policies, in order.
var specs []Spec

// register adds a policy. It is called when the package is initialised: var _ = register(Spec{…}).
func register(s Spec) struct{} {
	if lookUp(s.Name) != nil {
		panic("policies: two policies have the name " + s.Name)
	}
	specs = append(specs, s)
	slices.SortFunc(specs, func(a, b Spec) int {
		return cmp.Or(cmp.Compare(uint(a.Rank-1), uint(b.Rank-1)), cmp.Compare(a.Name, b.Name))
	})
	return struct{}{}
}

// lookUp returns the policy of that name, or nil; case is ignored.
func lookUp(name string) *Spec {
	i := slices.IndexFunc(specs, func(s Spec) bool { return strings.EqualFold(s.Name, name) })
	if i < 0 {
		return nil
	}
	return &specs[i]
}

// Specs returns the policies, the simplest first.
func Specs() []Spec { return slices.Clone(specs) }

// Names returns the names of the policies, the simplest first.
func Names() []string {
	var names []string
	for i := range specs {
		names = append(names, specs[i].Name)
	}
	return names
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
	if err := o.check(); err != nil {
		return nil, err
	}
	s := lookUp(name)
	if s == nil {
		return nil, fmt.Errorf("unknown policy %q; there are %s", name, strings.Join(Names(), ", "))
	}
	return s.New(o.filled()), nil
}

// Follows returns the part of the CPU state that the chosen policy uses.
func (c Choice) Follows() CPUSide {
	if s := lookUp(c.Policy); s != nil {
		return s.CPUs
	}
	return Neither
}

// Share returns the credits to which a domain's part of the accelerator is in proportion under the chosen
// policy, as far as it goes by credits.
func (c Choice) Share(d Domain) Credits {
	if s := lookUp(c.Policy); s != nil && s.Share != nil {
		return s.Share(&c.Options, d)
	}
	return d.Credits.OrDefault()
}

// Raises reports whether the chosen policy gives more time to a domain that got less than its objective (Promise.SLO).
func (c Choice) Raises() bool { return lookUp(c.Policy) != nil && c.Policy == "slaf" }

// Owes reports whether the chosen policy gives domains parts of the accelerator at all.
func (c Choice) Owes() bool {
	s := lookUp(c.Policy)
	return s == nil || s.Share != nil
}
