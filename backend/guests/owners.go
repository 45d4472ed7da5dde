package guests

import (
	"maps"
	"slices"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
)

// owners are the leases, programs and machines that keep an undeclared domain. The domain ends with the last of
// them and the last guest process. Registry.mu guards the fields.
type owners struct {
	requested requested        // the settings of create; nil for a domain that create did not make
	creation  creation         // of a domain that create made
	leases    map[string]lease // by holder
	programs  []program        // in order of arrival
	// awaited is the time until which the domain waits for a report of its machine, which the previous daemon listed;
	// zero: the domain does not wait.
	awaited time.Time
}

// requested holds settings in plain text, as create received them.
type requested map[string]string

// creation is the caller of create, and the time.
type creation struct {
	By *control.Caller `json:"by,omitempty"`
	At time.Time       `json:"at,omitzero"`
}

// over returns s with the settings applied. Settings that the host no longer permits are skipped.
func (a requested) over(s configs.Domain) configs.Domain {
	for k, v := range a {
		s.Give(k, v)
	}
	return s
}

func (o *owners) created() bool { return o.requested != nil }

// machineTime is the time after the daemon's start within which machines of restored domains must be reported.
const machineTime = time.Minute

// owner returns the first owner of a domain, or "" for a domain that must end. Registry.mu is held.
func (dom *domain) owner() string {
	reg := dom.reg
	switch {
	case dom.declared:
		return control.OwnerDeclared
	case dom.isMachine() && dom.admits():
		return control.OwnerMachine
	case len(dom.leases) > 0:
		return control.OwnerHeld
	case len(dom.programs) > 0 || len(dom.guests) > 0 || dom.settling > 0:
		return control.OwnerGuest
	case reg.opt.Private && dom.admits() && !dom.created(): // the daemon itself ends soon, and reports on ended programs until then
		return control.OwnerGuest
	default:
		return ""
	}
}

// passing reports whether a domain lasts only as long as its processes, or has ended. Registry.mu is held.
func (reg *Registry) passing(name string) bool {
	dom := reg.domains[name]
	return !reg.config.Declares(name) && (dom == nil || dom.owner() == control.OwnerGuest)
}

// isMachine reports whether a domain belongs to a machine, or waits for one. Registry.mu is held.
func (dom *domain) isMachine() bool {
	reg := dom.reg
	_, known := reg.machines[dom.name]
	return known || !dom.awaited.IsZero()
}

// inUse describes the processes in a domain and its leases except that of one holder. Registry.mu is held.
func (dom *domain) inUse(but string) (uses []string) {
	if n := len(dom.guests) + dom.settling; n > 0 {
		uses = append(uses, "it has "+control.Count(n, "guest process"))
	}
	if n := len(dom.programs); n > 0 {
		uses = append(uses, "it is held by "+control.Count(n, "program")+" (pegasus run)")
	}
	if holders := slices.DeleteFunc(dom.holders(), func(h string) bool { return h == but }); len(holders) > 0 {
		uses = append(uses, "it is leased by "+orNone(holders))
	}
	return uses
}

func (o *owners) holders() []string { return slices.Sorted(maps.Keys(o.leases)) }
