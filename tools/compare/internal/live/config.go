package live

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pegasus/hypervisor/linux"
	"pegasus/sim"
	"pegasus/vcpu"
)

// configuration returns the daemon's configuration for a plan.
func configuration(sc *sim.Scenario, p *sim.Plan, domains []sim.Domain) (string, error) {
	if len(sc.Accelerators) != 1 || sc.Accelerators[0].Count > 1 {
		return "", fmt.Errorf("%s: only scenarios with one accelerator are run for real", sc.ID)
	}
	var b strings.Builder
	a := &sc.Accelerators[0]
	fmt.Fprintf(&b, "[[accelerator]]\nname = %q\ntype = \"soft\"\ncores = 1\nmemory = \"1GiB\"\npolicy = %q\n", a.Name, p.Policy)
	if p.Mode != "" {
		fmt.Fprintf(&b, "mode = %q\n", p.Mode)
	}
	switch p.Copy {
	case "":
	case p.Policy:
		b.WriteString("accounts = \"mrq\"\n")
	default:
		return "", fmt.Errorf("plan %s: copies have the accelerator's policy, or none of their own", p.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Options)) {
		switch v := p.Options[key].(type) {
		case string:
			fmt.Fprintf(&b, "%s = %q\n", key, v)
		default:
			fmt.Fprintf(&b, "%s = %v\n", key, v)
		}
	}
	for i := range domains {
		describe(&b, &domains[i])
	}
	return b.String(), nil
}

// describe writes a domain's table: the values that differ from the defaults.
func describe(b *strings.Builder, d *sim.Domain) {
	fmt.Fprintf(b, "[[domain]]\nname = %q\n", d.Name)
	for _, k := range []struct {
		name  string
		value int
	}{{"credits", d.Credits}, {"slo", d.SLO}, {"bandwidth", d.Bandwidth}, {"priority", d.Priority}} {
		if k.value != 0 {
			fmt.Fprintf(b, "%s = %d\n", k.name, k.value)
		}
	}
	for _, k := range []struct {
		name  string
		value bool
	}{{"throughput", d.Throughput}, {"interactive", d.Interactive}} {
		if k.value {
			fmt.Fprintf(b, "%s = true\n", k.name)
		}
	}
	if d.Group != "" {
		fmt.Fprintf(b, "group = %q\n", d.Group)
	}
	if r := d.Reserve; r.Kind != "" {
		fmt.Fprintf(b, "reserve = %q\nreserve_cost = %q\nreserve_period = %q\nreserve_name = %q\n", strings.ToLower(r.Kind), r.Cost, r.Period, r.Shared)
	}
}

// niceness returns the nice value that gives a domain's programs their CPU weight in the scenario. Only root
// may use values below 0.
func niceness(d *sim.Domain) (int, error) {
	if d.CPUCredits == 0 {
		return 0, nil
	}
	var weights []string
	for nice := range 20 {
		w := linux.NiceCredits(nice)
		if w == vcpu.Credits(d.CPUCredits) {
			return nice, nil
		}
		weights = append(weights, fmt.Sprint(w))
	}
	return 0, fmt.Errorf("domain %s: cpu_credits %d: processes can have %s, with niceness 0 to 19", d.Name, d.CPUCredits, strings.Join(weights, ", "))
}
