package backend

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

// tunes reports whether any settings, and whether all, belong to the hypervisor.
func tunes(settings map[string]string) (any, all bool) {
	all = true
	for k := range settings {
		mine := k == keyWeight || k == keyCap || k == keySlice
		any, all = any || mine, all && mine
	}
	return any, all
}

// tune changes a machine's share of the CPUs in the hypervisor. d.mu is held.
func (d *Daemon) tune(by control.Peer, name string, settings map[string]string) error {
	m, ok := d.machines[name]
	switch {
	case !ok:
		return control.Errorf(control.CodeInvalid, "domain %q is no machine of Xen's, which alone have weight, cap and slice: the CPUs' part of processes is that of their cgroup (cpu.weight, cpu.max)", name)
	case d.opt.Tuner == nil:
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
	if err := d.opt.Tuner.Tune(name, t); err != nil {
		return control.Errorf(control.CodeInvalid, "domain %q: %v", name, err)
	}
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		d.noteBy(&by, "set", name, "%s = %s", k, settings[k])
	}
	d.weighSoon()
	return nil
}

// showTuned fills in a machine's CPU weight and cap from the hypervisor. d.mu is held.
func (d *Daemon) showTuned(out *control.Domain) {
	if d.opt.Tuner == nil || d.machines[out.Name].Xen == 0 {
		return
	}
	if w, err := d.opt.Tuner.Tuned(out.Name); err == nil { // else the machine has just ended
		out.CPUWeight, out.CPUCap = int(w.Credits), w.Cap
	}
}
