package backend

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
)

// owners are what keeps a domain that the configuration doesn't declare. It goes with the last of
// them. The daemon's mu guards it.
type owners struct {
	asked    asked            // settings that it was created with; nil: it wasn't created over the control socket
	leases   map[string]lease // by holder
	programs []program        // in the order in which they came
	// awaited is until when the machine may be heard of that the daemon before knew under this
	// name; zero: there was none.
	awaited time.Time
}

// asked are settings in plain text.
type asked map[string]string

// over lays the settings over others. Those that the host or the configuration has outgrown are left out.
func (a asked) over(s configs.Domain) configs.Domain {
	for k, v := range a {
		s.Give(k, v)
	}
	return s
}

func (o *owners) created() bool { return o.asked != nil }

// machineTime is for how long after its start a daemon keeps domains of machines that it hasn't heard of.
const machineTime = time.Minute

// owner says why a domain exists; "": nothing keeps it. d.mu is held.
func (d *Daemon) owner(dom *domain) string {
	switch {
	case dom.declared:
		return control.OwnerDeclared
	case d.isMachine(dom) && d.admits(dom):
		return control.OwnerMachine
	case len(dom.leases) > 0:
		return control.OwnerHeld
	case len(dom.programs) > 0 || len(dom.guests) > 0 || dom.settling > 0:
		return control.OwnerGuest
	case d.opt.Private && d.admits(dom) && !dom.created(): // it ends soon itself, and is asked about programs that have ended
		return control.OwnerGuest
	default:
		return ""
	}
}

// isMachine reports whether a domain is a machine's, or may be. d.mu is held.
func (d *Daemon) isMachine(dom *domain) bool {
	_, known := d.machines[dom.name]
	return known || !dom.awaited.IsZero()
}

// inUse says in words what is in a domain, or keeps it, but for the lease of one holder. d.mu is held.
func (dom *domain) inUse(but string) (uses []string) {
	if n := len(dom.guests) + dom.settling; n > 0 {
		uses = append(uses, fmt.Sprintf("%d guest processes are in it", n))
	}
	if n := len(dom.programs); n > 0 {
		uses = append(uses, fmt.Sprintf("%d programs (pegasus run) hold it", n))
	}
	if holders := slices.DeleteFunc(dom.holders(), func(h string) bool { return h == but }); len(holders) > 0 {
		uses = append(uses, "it is leased by "+orNone(holders))
	}
	return uses
}

func (o *owners) holders() []string { return slices.Sorted(maps.Keys(o.leases)) }
