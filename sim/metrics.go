package sim

import (
	"math"
	"slices"
	"time"
)

// Metrics are a run's measurements: per plan, of the plan itself under "" and of each domain under its name.
// A plan's throughputs, latencies and waits are the means over its domains, without those in the background.
type Metrics map[string]map[string]float64

// Measurements of a domain. Times are in milliseconds, parts in percent.
//
//	work       done per second, the median of its runs
//	run        median length of a run; run_p99, run_max
//	iqr        of the throughput of its runs, as a part of the median
//	runs       finished in the measured time
//	rate       runs per second; rate_min of its windows, rate_sd of them (parts of runs counted)
//	latency    of calls: mean; latency_p50, latency_p85, latency_p99
//	wait       from ring to engine: mean; wait_p50, wait_p99, wait_max
//	share      of the time in windows, over all engines; compute, copy: of one class
//	error      mean of |share − the entitled share|, error_max: the largest
//	part       of the engines' busy time, and off, off_max against the entitled share
//	cpu        of a CPU
//
// Additional measurements of a plan: done (all runs), failed (domains with a failed memory allocation), moved
// (MB swapped out and in), runs_min and calls_min, of any domain; bound_excess (see below); busy, changes (of
// context per second), changing (time for them).
func (s *Sim) measure(sc *Scenario) Metrics {
	out := Metrics{"": {}}
	first, last := s.windows(sc)
	units := s.units()
	for _, u := range units {
		u.shares(first, last)
	}
	for _, d := range s.domains {
		m := d.metrics(sc.Window, first, last)
		m["cpu"] = 100 * float64(d.cpu.used) / float64(max(s.now, 1))
		out[d.name] = m
	}
	for _, u := range units {
		m := out[u.name]
		if m == nil {
			m = map[string]float64{}
			out[u.name] = m
		}
		u.metrics(m)
	}
	for _, name := range []string{"work", "run", "run_mean", "run_p99", "iqr", "runs", "rate", "rate_min", "latency", "latency_p50", "latency_p85", "latency_p99",
		"wait", "wait_p50", "wait_p99", "wait_max", "share", "compute", "copy"} {
		var all []float64
		for _, d := range s.domains {
			if v, ok := out[d.name][name]; ok && !d.spec.Background && !math.IsNaN(v) {
				all = append(all, v)
			}
		}
		out[""][name] = mean(all)
	}
	all := out[""]
	for _, name := range []string{"error", "error_max", "off", "off_max"} {
		var sum, most float64
		n := 0
		for _, u := range units {
			if v, ok := out[u.name][name]; ok && u.owed > 0 {
				sum, most, n = sum+v, max(most, v), n+1
			}
		}
		all[name] = sum / float64(n)
		if n > 0 && len(name) > 4 && name[len(name)-4:] == "_max" {
			all[name] = most
		}
	}
	all["runs_min"], all["calls_min"] = math.Inf(1), math.Inf(1)
	for _, d := range s.domains {
		all["runs_min"] = min(all["runs_min"], out[d.name]["runs"])
		all["calls_min"] = min(all["calls_min"], float64(d.calls.n))
	}
	all["done"], all["failed"] = 0, 0
	for _, d := range s.domains {
		out[d.name]["done"] = float64(len(d.runs))
		all["done"] += float64(len(d.runs))
		if d.presence.failed {
			all["failed"]++
		}
	}
	all["bound_excess"] = s.boundExcess(units)
	var busy, changed time.Duration
	changes := 0
	for _, e := range s.devices.engines {
		busy, changed, changes = busy+e.busy, changed+e.changed, changes+e.changes
	}
	length := float64(max(s.now, 1)) * float64(max(len(s.devices.all), 1))
	all["busy"] = 100 * float64(busy) / length
	all["changing"] = 100 * float64(changed) / length
	all["changes"] = 1e9 * float64(changes) / length
	var moved Bytes
	for _, g := range s.devices.all {
		moved += g.memory.moved
	}
	all["moved"] = float64(moved) / 1e6
	all["end"] = s.now.Sub(0).Seconds()
	decisions := 0
	for _, h := range s.loops.hosts {
		decisions += h.decisions
	}
	all["decisions"] = float64(decisions)
	for _, m := range out {
		for k, v := range m {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				delete(m, k)
			}
		}
	}
	return out
}

// windows returns the first measured window and the one after the last.
func (s *Sim) windows(sc *Scenario) (first, last int) {
	if sc.Window <= 0 {
		return 0, 0
	}
	from, to := sc.From, time.Duration(s.now)
	if sc.To > 0 {
		to = min(to, sc.To)
	}
	return int((from + sc.Window - 1) / sc.Window), int(to / sc.Window)
}

func (d *domain) metrics(window time.Duration, first, last int) map[string]float64 {
	m := map[string]float64{}
	took := make([]time.Duration, 0, len(d.runs))
	begin, end := Time(first)*Time(window), Time(last)*Time(window)
	for _, r := range d.runs {
		if last > first && (r.ended < begin || r.ended >= end) { // if there is a whole window
			continue
		}
		took = append(took, r.ended.Sub(r.began))
	}
	m["runs"] = float64(len(took))
	if window > 0 && last > first {
		d.perWindow(m, window, first, last)
	}
	slices.Sort(took)
	lengths, rates := make([]float64, len(took)), make([]float64, len(took))
	for i, t := range took { // the longest run has the least work per second
		lengths[i] = t.Seconds() * 1e3
		rates[len(took)-1-i] = d.work(t)
	}
	m["work"] = quantile(rates, .5)
	m["iqr"] = (quantile(rates, .75) - quantile(rates, .25)) / m["work"]
	m["run"], m["run_p99"], m["run_max"] = quantile(lengths, .5), quantile(lengths, .99), quantile(lengths, 1)
	m["run_mean"] = mean(lengths)
	times := func(name string, h *histogram) {
		m[name] = ms(h.mean())
		m[name+"_p50"], m[name+"_p85"], m[name+"_p99"] = ms(h.quantile(.5)), ms(h.quantile(.85)), ms(h.quantile(.99))
		m[name+"_max"] = ms(h.most)
	}
	times("latency", &d.calls)
	times("wait", &d.waits)
	return m
}

// perWindow measures the ended runs and the engine use of each window.
func (d *domain) perWindow(m map[string]float64, window time.Duration, first, last int) {
	counts := make([]float64, max(last-first, 0))
	parts := make([]float64, len(counts))
	for _, r := range d.runs {
		if i := int(r.ended/Time(window)) - first; i >= 0 && i < len(counts) {
			counts[i] += 1 / window.Seconds()
		}
		r.spread(parts, window, first)
	}
	m["rate"], m["rate_sd"] = mean(counts), deviation(parts)
	m["rate_min"] = quantile(sorted(counts), 0)
	for c := range numEngines {
		var used, most time.Duration
		for i := first; i < last; i++ {
			used, most = used+d.in(i, c), max(most, d.in(i, c))
		}
		m[engineNames[c]] = 100 * float64(used) / float64(window*time.Duration(max(last-first, 1)))
		m[engineNames[c]+"_max"] = 100 * float64(most) / float64(window)
	}
	m["copy"] = m["h2d"] + m["d2h"]
	m["share"] = m["compute"] + m["copy"]
}

// spread distributes a run over the rates of the windows that it overlaps, in proportion: counting whole runs
// would depend on the windows' boundaries.
func (r *run) spread(rates []float64, window time.Duration, first int) {
	for i := int(r.began/Time(window)) - first; i < len(rates); i++ {
		from, to := Time(i+first)*Time(window), Time(i+first+1)*Time(window)
		in := min(r.ended, to).Sub(max(r.began, from))
		if i >= 0 {
			rates[i] += float64(in) / float64(max(r.ended.Sub(r.began), 1)) / window.Seconds()
		}
		if r.ended <= to {
			return
		}
	}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// unit is an entity with an entitled share: a domain, or a group of domains.
type unit struct {
	name    string
	domains []*domain
	peers   []*unit // on the same accelerator
	owed    float64 // percent
	total   []float64
	part    []float64
	busy    []time.Duration // of the engines, for any unit
}

// units returns the units of all accelerators.
func (s *Sim) units() []*unit {
	var all []*unit
	for _, h := range s.loops.hosts {
		var here []*unit
		byGroup := map[string]*unit{}
		for _, d := range h.all {
			g := d.spec.Group
			u := byGroup[g]
			if u == nil || g == "" {
				u = &unit{name: g}
				if g == "" {
					u.name = d.name
				}
				byGroup[g] = u
				here = append(here, u)
			}
			u.domains = append(u.domains, d)
		}
		var sum float64
		for _, u := range here {
			u.peers = here
			sum += u.weight()
		}
		for _, u := range here {
			u.owed = 100 * u.weight() / sum
		}
		all = append(all, here...)
	}
	return all
}

// boundExcess returns the greatest excess, in points of the busy time of a window and over all domains, of
// the distance from the entitled share beyond LAG's guarantee: the greatest lead plus the longest request.
func (s *Sim) boundExcess(units []*unit) float64 {
	worst := math.Inf(-1)
	for _, u := range units {
		var longest time.Duration
		for _, o := range u.peers {
			for _, d := range o.domains {
				longest = max(longest, d.longest)
			}
		}
		for i, part := range u.part {
			bound := 100 * float64(s.ahead+longest) / float64(max(u.busy[i], 1))
			worst = max(worst, math.Abs(part-u.owed)-bound)
		}
	}
	return worst
}

// weight returns the sum that the unit's share is in proportion to.
func (u *unit) weight() (sum float64) {
	for _, d := range u.domains {
		switch {
		case d.spec.Background:
		case d.spec.Bandwidth > 0:
			sum += float64(d.spec.Bandwidth)
		case d.spec.Credits > 0:
			sum += float64(d.spec.Credits)
		default:
			sum += 256
		}
	}
	return sum
}

func (u *unit) in(i int) (sum time.Duration) {
	for _, d := range u.domains {
		for c := range numEngines {
			sum += d.in(i, c)
		}
	}
	return sum
}

// shares computes its part of the time, and of the busy time, window by window.
func (u *unit) shares(first, last int) {
	for i := first; i < last; i++ {
		var all time.Duration
		for _, o := range u.peers {
			all += o.in(i)
		}
		mine := u.in(i)
		u.busy = append(u.busy, all)
		u.total = append(u.total, 100*float64(mine)/float64(u.domains[0].window))
		u.part = append(u.part, 100*float64(mine)/float64(max(all, 1)))
	}
}

func (u *unit) metrics(m map[string]float64) {
	if len(u.total) == 0 {
		return
	}
	m["share"], m["part"] = mean(u.total), mean(u.part)
	m["error"], m["error_max"] = away(u.total, u.owed)
	m["off"], m["off_max"] = away(u.part, u.owed)
}

// away returns the mean and the largest distance of the values v from `want`.
func away(v []float64, want float64) (mean, most float64) {
	for _, x := range v {
		d := math.Abs(x - want)
		mean, most = mean+d, max(most, d)
	}
	return mean / float64(len(v)), most
}
