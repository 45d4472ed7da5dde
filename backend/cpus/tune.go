package cpus

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"pegasus/backend/control"
	"pegasus/hypervisor"
)

// Settings of a machine that belong to the hypervisor's scheduler, beside the settings of domains.
const (
	keyWeight = "weight"
	keyCap    = "cap"
	keySlice  = "slice"
)

// Tunes reports whether any settings, and whether all, belong to the hypervisor.
func Tunes(settings map[string]string) (any, all bool) {
	all = true
	for k := range settings {
		own := k == keyWeight || k == keyCap || k == keySlice
		any, all = any || own, all && own
	}
	return any, all
}

// Tune changes a machine's share of the CPUs in the hypervisor. tuner is nil where the hypervisor does not allow it,
// and m is nil for a domain without a machine.
func Tune(tuner hypervisor.Tuner, name string, m *hypervisor.Machine, settings map[string]string) error {
	switch {
	case m == nil:
		return control.Errorf(control.CodeInvalid, "domain %q is no machine of Xen's, which alone have weight, cap and slice: the CPUs' part of processes is that of their cgroup (cpu.weight, cpu.max)", name)
	case tuner == nil:
		return control.Errorf(control.CodeInvalid, "domain %q: weight, cap and slice are for domUs of Xen; with libvirt's QEMU it is virsh schedinfo %s --set cpu_shares=2048, and vcpu_quota for what it may have at most", name, name)
	case m.Xen == 0:
		return control.Errorf(control.CodeConflict, "domU %q is off: start it first. What is to hold from its start on belongs into its configuration: cpu_weight=512, cap=50", name)
	}
	var t hypervisor.Tuning
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		text := settings[k]
		if k == keySlice {
			slice, err := time.ParseDuration(text)
			if err != nil {
				return control.Errorf(control.CodeInvalid, "domain %q: %s = %q: must be a time, such as 5ms", name, k, text)
			}
			t.Slice = &slice
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return control.Errorf(control.CodeInvalid, "domain %q: %s = %q: must be a whole number", name, k, text)
		}
		if k == keyCap {
			t.Cap = &n
		} else {
			t.Weight = &n
		}
	}
	if err := tuner.Tune(name, t); err != nil {
		return control.Errorf(control.CodeInvalid, "domain %q: %v", name, err)
	}
	return nil
}
