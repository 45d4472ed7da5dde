package live

import (
	"math"
	"time"

	"pegasus/backend/control"
	"pegasus/sim"
)

// party is an entity with an entitled share: a domain, or a group of domains.
type party struct {
	name    string
	domains []string
	weight  float64
}

func parties(domains []sim.Domain) (all []*party, sum float64) {
	groups := map[string]*party{}
	for i := range domains {
		d := &domains[i]
		p := groups[d.Group]
		if p == nil || d.Group == "" {
			p = &party{name: d.Group}
			if d.Group == "" {
				p.name = d.Name
			}
			groups[d.Group] = p
			all = append(all, p)
		}
		w := weight(d)
		p.domains = append(p.domains, d.Name)
		p.weight += w
		sum += w
	}
	return all, sum
}

// weight returns the weight of a domain's share.
func weight(d *sim.Domain) float64 {
	switch {
	case d.Background:
		return 0
	case d.Bandwidth > 0:
		return float64(d.Bandwidth)
	case d.Credits > 0:
		return float64(d.Credits)
	}
	return 256
}

// measure computes the metrics from the measurements.
func measure(domains []sim.Domain, u *used, domainStates map[string]control.Domain, reports map[string][]Report) sim.Metrics {
	out := sim.Metrics{"": {}}
	windows := float64(max(len(u.compute), 1))
	for i := range domains {
		name := domains[i].Name
		m := map[string]float64{
			"compute": 100 * float64(total(u.compute, name)) / float64(u.window) / windows,
			"copy":    100 * float64(total(u.copy, name)) / float64(u.window) / windows,
		}
		m["share"] = m["compute"] + m["copy"]
		m["wait_p50"], m["wait_p99"] = float64(domainStates[name].WaitP50)/1e6, float64(domainStates[name].WaitP99)/1e6
		for _, r := range reports[name] {
			m["rate"] += r.Launches / r.Seconds
			for _, q := range []struct {
				name string
				ns   float64
			}{{"_p50", r.RoundP50}, {"_p85", r.RoundP85}, {"_p99", r.RoundP99}} {
				worst := max(m["run"+q.name], q.ns/1e6)
				m["run"+q.name], m["latency"+q.name] = worst, worst
			}
		}
		out[name] = m
	}
	all, sum := parties(domains)
	for _, p := range all {
		m := out[p.name]
		if m == nil {
			m = map[string]float64{}
			out[p.name] = m
		}
		p.shares(m, u, 100*p.weight/sum)
	}
	summarise(out, domains, all)
	return out
}

func total(in []map[string]time.Duration, name string) (sum time.Duration) {
	for _, w := range in {
		sum += w[name]
	}
	return sum
}

// shares computes how far a party's parts were from the entitled share, window by window.
func (p *party) shares(m map[string]float64, u *used, owed float64) {
	m["share"], m["part"], m["error"], m["off"] = 0, 0, 0, 0
	n := float64(len(u.compute))
	for i := range u.compute {
		var mine, all time.Duration
		for _, in := range []map[string]time.Duration{u.compute[i], u.copy[i]} {
			for _, d := range in {
				all += d
			}
			for _, name := range p.domains {
				mine += in[name]
			}
		}
		share, part := 100*float64(mine)/float64(u.window), 100*float64(mine)/float64(max(all, 1))
		m["share"] += share / n
		m["part"] += part / n
		m["error"] += math.Abs(share-owed) / n
		m["off"] += math.Abs(part-owed) / n
		m["error_max"] = max(m["error_max"], math.Abs(share-owed))
		m["off_max"] = max(m["off_max"], math.Abs(part-owed))
	}
}

// summarise adds the metrics of the plan itself.
func summarise(out sim.Metrics, domains []sim.Domain, all []*party) {
	plan := out[""]
	owed := 0.0
	for _, p := range all {
		if p.weight > 0 {
			owed++
			for _, name := range []string{"error", "off"} {
				plan[name] += out[p.name][name]
				plan[name+"_max"] = max(plan[name+"_max"], out[p.name][name+"_max"])
			}
		}
	}
	plan["error"] /= max(owed, 1)
	plan["off"] /= max(owed, 1)
	means := []string{"rate", "wait_p50", "wait_p99", "run_p50", "run_p85", "run_p99", "latency_p50", "latency_p85", "latency_p99"}
	foreground := 0.0
	for i := range domains {
		m := out[domains[i].Name]
		plan["busy"] += m["compute"] + m["copy"]
		if !domains[i].Background {
			foreground++
			for _, name := range means {
				plan[name] += m[name]
			}
		}
	}
	for _, name := range means {
		plan[name] /= max(foreground, 1)
	}
}
