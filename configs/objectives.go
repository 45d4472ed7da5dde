package configs

import (
	"fmt"

	"pegasus/policies"
)

// objectives warns about share objectives (slo) of declared domains that cannot all be kept on the accelerator that they
// are bound to, or that exceed a domain's part by credits. Objectives beyond the credits are not refused: the domains
// may not be there at the same time.
func (p *parser) objectives(c *Config, tables []table) {
	for i := range c.Accelerators {
		a := &c.Accelerators[i]
		choice := policies.Choice{Policy: a.Policy, Options: policies.Options{Values: a.Params}}
		var promised int
		var credits int64
		on := func(d *Domain) bool {
			return d.Accelerator == a.Name || d.Accelerator == "" && len(c.Accelerators) == 1
		}
		share := func(d *Domain) int64 {
			return int64(choice.Share(policies.Domain{Credits: policies.Credits(d.Credits)}))
		}
		for k := range c.Domains {
			if d := &c.Domains[k]; on(d) {
				promised += d.SLO
				credits += share(d)
			}
		}
		warnings := 0
		for k := range c.Domains {
			d := &c.Domains[k]
			if !on(d) || d.SLO == 0 {
				continue
			}
			if warnings++; warnings > mostWarnings {
				break
			}
			t := tables[k]
			at := t.src.at(t.path, "slo")
			if s := t.source("slo"); s != nil {
				at = s.at(t.path, "slo")
			}
			switch {
			case promised > 1000:
				c.Warnings = append(c.Warnings, fmt.Sprintf("%s: domain %q: slo = %d: the objectives of the domains on accelerator %q add up to %d, more than 1000: not all of them can be kept",
					at, d.Name, d.SLO, a.Name, promised))
			case !choice.Owes():
				c.Warnings = append(c.Warnings, fmt.Sprintf("%s: domain %q: slo = %d: policy %q of accelerator %q owes no domain a share", at, d.Name, d.SLO, a.Policy, a.Name))
			case !choice.Raises() && int64(d.SLO)*credits > 1000*share(d):
				c.Warnings = append(c.Warnings, fmt.Sprintf("%s: domain %q: slo = %d: its credits come to %d beside the other declared domains of accelerator %q: more credits, or policy slaf, are needed",
					at, d.Name, d.SLO, 1000*share(d)/credits, a.Name))
			}
		}
	}
}
