package runs

import "pegasus/hypervisor"

// Both combines the runs of domUs and of Dom0's own process guests.
type Both struct{ DomUs, Dom0 hypervisor.Runs }

// Look implements hypervisor.Runs. Dom0's CPUs are vCPUs themselves. Their physical CPU is unknown.
func (b Both) Look(of []hypervisor.Guests, emit func(hypervisor.Run)) {
	var units, own []hypervisor.Guests
	for _, g := range of {
		if g.Xen != 0 {
			units = append(units, g)
		} else {
			own = append(own, g)
		}
	}
	b.DomUs.Look(units, emit)
	if len(own) == 0 { // else the first look would load BPF programs for no guest, which takes a while
		return
	}
	b.Dom0.Look(own, func(r hypervisor.Run) {
		r.CPU = -1
		emit(r)
	})
}

// Close implements hypervisor.Runs.
func (b Both) Close() {
	b.DomUs.Close()
	b.Dom0.Close()
}
