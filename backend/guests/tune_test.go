package guests

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/hypervisor"
	"pegasus/vcpu"
)

// A tuner is a hypervisor with one machine's weight and cap.
type tuner struct {
	w     hypervisor.Weight
	slice time.Duration
}

func (t *tuner) Tuned(string) (hypervisor.Weight, error) { return t.w, nil }

func (t *tuner) Tune(_ string, set hypervisor.Tuning) error {
	weight, cap := set.Weight, set.Cap
	if set.Slice != nil {
		t.slice = *set.Slice
	}
	if weight != nil && *weight > 65535 {
		return errors.New("weight 65536: want 1 to 65535")
	}
	if weight != nil {
		t.w.Credits = vcpu.Credits(*weight)
	}
	if cap != nil {
		t.w.Cap = *cap
	}
	return nil
}

// Settings of the hypervisor are passed to it, and to nothing else; for a domain without them the error names the
// alternative.
func TestTune(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	if _, err := d.domain("plain"); err != nil {
		t.Fatal(err)
	}
	all := []hypervisor.Machine{machine("kvm", hypervisor.MachineRunning, 1, 0), machine("off", hypervisor.MachineOff, 0, 0), machine("xen", hypervisor.MachineRunning, 1, 0)}
	all[2].Xen, all[2].Host = 3, hypervisor.XenHost
	d.updateMachines(all)
	set := func(name string, pairs ...string) (control.Domain, error) {
		settings := map[string]string{}
		for _, p := range pairs {
			k, v, _ := strings.Cut(p, "=")
			settings[k] = v
		}
		return d.Requests().Set(control.Peer{}, control.SetParams{Domain: name, Settings: settings})
	}
	if _, err := set("kvm", "weight=512"); err == nil || !strings.Contains(err.Error(), "virsh schedinfo kvm --set cpu_shares") {
		t.Error(err)
	}
	h := &tuner{w: hypervisor.Weight{Credits: 256}}
	d.opt.Tuner = h
	if _, err := set("other", "weight=512"); err == nil || strings.Contains(err.Error(), "attach") {
		t.Error(err)
	}
	d.opt.DomUs = true
	for name, teaches := range map[string]bool{"xen": true, "kvm": false} {
		if _, err := set(name, "wieght=512"); err == nil || strings.HasSuffix(err.Error(), "; and of a domU weight, cap and slice") != teaches {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := set("other", "weight=512"); err == nil || !strings.Contains(err.Error(), "a domU is one once its name is attached (pegasus attach)") {
		t.Error(err)
	}
	for _, c := range []struct{ name, pairs, want string }{
		{"plain", "weight=512", "cgroup (cpu.weight"},
		{"off", "cap=50", `domU "off" is off`},
		{"xen", "weight=much", `weight = "much": must be a whole number`},
		{"xen", "weight=65536", "want 1 to 65535"},
		{"xen", "slice=5", `slice = "5": must be a time, such as 5ms`},
		{"xen", "weight=512 credits=3", "set by themselves"},
	} {
		if _, err := set(c.name, strings.Fields(c.pairs)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.name, c.pairs, err, c.want)
		}
	}
	if h.w != (hypervisor.Weight{Credits: 256}) {
		t.Errorf("what was refused has changed %+v", h.w)
	}
	dom, err := set("xen", "weight=512", "cap=50")
	if err != nil || dom.CPUWeight != 512 || dom.CPUCap != 50 {
		t.Errorf("%+v, %v", dom, err)
	}
	if _, err = set("xen", "slice=5ms"); err != nil || h.slice != 5*time.Millisecond {
		t.Errorf("%v: %v", h.slice, err)
	}
	if dom, err = set("xen", "cap=0"); err != nil || dom.CPUWeight != 512 || dom.CPUCap != 0 {
		t.Errorf("%+v, %v", dom, err)
	}
}
