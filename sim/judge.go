package sim

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Result is the result of a scenario over several seeds.
type Result struct {
	Scenario string             `json:"scenario"`
	Title    string             `json:"title"`
	Seed     uint64             `json:"seed"` // the first
	Seeds    int                `json:"seeds"`
	Metrics  map[string]Metrics `json:"metrics"` // by plan; means over the seeds
	Rows     []Verdict          `json:"rows"`
	Verdict  string             `json:"verdict"` // Holds or Fails
	Events   uint64             `json:"events"`
	Hashes   map[string]string  `json:"hashes"` // of each plan's run with the first seed
	Series   map[string]Series  `json:"-"`      // of each plan's run with the first seed
	Bars     map[string][]Range `json:"-"`      // by chart's title, the values of its bars
}

// Range is a value over the seeds.
type Range struct{ Mean, Least, Most float64 }

// Series is the data of a run for figures, by domain: the work per second of each of its runs, and its
// percentage of the time in each window.
type Series map[string]struct{ Work, Share []float64 }

func (s *Sim) series() Series {
	out := Series{}
	for _, d := range s.domains {
		one := out[d.name]
		for _, r := range d.runs {
			one.Work = append(one.Work, d.work(r.ended.Sub(r.began)))
		}
		for i := range int(time.Duration(s.now) / max(d.window, 1)) {
			var used time.Duration
			for c := range numEngines {
				used += d.in(i, c)
			}
			one.Share = append(one.Share, 100*float64(used)/float64(d.window))
		}
		out[d.name] = one
	}
	return out
}

// Verdict is the result of a row. The row holds if the mean over the seeds is within the bounds and at least
// 95 % of the seeds are.
type Verdict struct {
	Text    string    `json:"text"`
	Value   string    `json:"value"`
	Min     *float64  `json:"min,omitempty"`
	Max     *float64  `json:"max,omitempty"`
	Mean    float64   `json:"mean"`
	Least   float64   `json:"least"` // over the seeds
	Most    float64   `json:"most"`
	Part    float64   `json:"part"` // part of the seeds for which it holds
	Verdict string    `json:"verdict"`
	Why     string    `json:"why,omitempty"`
	Seeds   []float64 `json:"values"`
}

// The possible values of a verdict.
const (
	Holds = "holds"
	Fails = "fails"
)

// enough is the part of the seeds for which a row must hold.
const enough = 0.95

// Judge runs every plan with seeds from seed on, several at a time, and evaluates the rows. Progress, if not
// nil, is called with the number of finished runs.
func Judge(sc *Scenario, seed uint64, seeds int, progress func(done, of int)) (*Result, error) {
	out := &Result{Scenario: sc.ID, Title: sc.Title, Seed: seed, Seeds: seeds, Metrics: map[string]Metrics{}, Hashes: map[string]string{}, Series: map[string]Series{}, Bars: map[string][]Range{}, Verdict: Holds}
	if sc.Bench != "" {
		return nil, fmt.Errorf("%s needs a real clock and isn't simulated: %s", sc.ID, sc.Bench)
	}
	bySeed, err := out.simulate(sc, progress)
	if err != nil {
		return nil, err
	}
	out.Rows = sc.Verdicts(bySeed)
	if slices.ContainsFunc(out.Rows, func(v Verdict) bool { return v.Verdict == Fails }) {
		out.Verdict = Fails
	}
	for _, c := range sc.Charts {
		for i := range c.Bars {
			v := (&Row{Value: c.Bars[i].Value, tree: c.Bars[i].tree}).judge(sc, bySeed)
			if v.Why != "" {
				return nil, fmt.Errorf("chart %q: bar %q: %s", c.Title, c.Bars[i].Name, v.Why)
			}
			out.Bars[c.Title] = append(out.Bars[c.Title], Range{v.Mean, v.Least, v.Most})
		}
	}
	return out, nil
}

// Verdicts evaluates the rows for measurements by plan, one or several sets.
func (sc *Scenario) Verdicts(times []map[string]Metrics) []Verdict {
	all := []Verdict{}
	for i := range sc.Rows {
		all = append(all, sc.Rows[i].judge(sc, times))
	}
	return all
}

// simulate returns the metrics of each seed, by plan, and adds up their means.
func (r *Result) simulate(sc *Scenario, progress func(done, of int)) ([]map[string]Metrics, error) {
	type job struct{ seed, plan int }
	jobs := make(chan job)
	all := make([][]Metrics, r.Seeds)
	for i := range all {
		all[i] = make([]Metrics, len(sc.Plans))
	}
	var mu sync.Mutex
	var first error
	done := 0
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range jobs {
				m, s, err := sc.once(&sc.Plans[j.plan], r.Seed+uint64(j.seed))
				all[j.seed][j.plan] = m
				mu.Lock()
				if err != nil && first == nil {
					first = err
				}
				if s != nil {
					r.Events += s.events
					if j.seed == 0 {
						r.Hashes[sc.Plans[j.plan].Name] = fmt.Sprintf("%016x", s.hash)
						r.Series[sc.Plans[j.plan].Name] = s.series()
					}
				}
				done++
				if progress != nil {
					progress(done, r.Seeds*len(sc.Plans))
				}
				mu.Unlock()
			}
		})
	}
	for i := range all {
		for p := range sc.Plans {
			jobs <- job{i, p}
		}
	}
	close(jobs)
	workers.Wait()
	if first != nil {
		return nil, first
	}
	bySeed := make([]map[string]Metrics, r.Seeds)
	for i := range all {
		bySeed[i] = map[string]Metrics{}
		for p := range sc.Plans {
			bySeed[i][sc.Plans[p].Name] = all[i][p]
		}
	}
	for p := range sc.Plans {
		r.Metrics[sc.Plans[p].Name] = average(all, p)
	}
	return bySeed, nil
}

// once runs a plan with one seed. A study has no Sim.
func (sc *Scenario) once(p *Plan, seed uint64) (Metrics, *Sim, error) {
	if p.Study != "" {
		m, err := p.study(seed)
		return m, nil, err
	}
	s, err := New(sc, p, seed)
	if err != nil {
		return nil, nil, err
	}
	if err := s.Run(); err != nil {
		return nil, nil, err
	}
	return s.measure(sc), s, nil
}

// average of a plan's metrics over the seeds.
func average(all [][]Metrics, plan int) Metrics {
	out := Metrics{}
	for domain, m := range all[0][plan] {
		out[domain] = map[string]float64{}
		for name := range m {
			var sum float64
			n := 0
			for i := range all {
				if v, ok := all[i][plan][domain][name]; ok {
					sum, n = sum+v, n+1
				}
			}
			out[domain][name] = sum / float64(n)
		}
	}
	return out
}

// judge evaluates a row for every seed.
func (r *Row) judge(sc *Scenario, bySeed []map[string]Metrics) Verdict {
	v := Verdict{Text: r.Text, Value: r.Value, Min: r.Min, Max: r.Max, Verdict: Fails, Least: math.MaxFloat64, Most: -math.MaxFloat64, Seeds: []float64{}}
	held := 0
	for _, plans := range bySeed {
		names := scope{let: sc.Let, metricOf: func(plan, domain, metric string) (float64, error) { return sc.measured(plans, plan, domain, metric) }}
		x, err := names.value(r.tree)
		if err == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
			err = fmt.Errorf("the value is %v", x)
		}
		if err != nil {
			v.Why = err.Error()
			v.Mean, v.Least, v.Most = 0, 0, 0
			return v
		}
		v.Mean += x / float64(len(bySeed))
		v.Least, v.Most = min(v.Least, x), max(v.Most, x)
		v.Seeds = append(v.Seeds, x)
		if r.holds(x) {
			held++
		}
	}
	v.Part = float64(held) / float64(len(bySeed))
	if r.near(v.Mean) && v.Part >= enough {
		v.Verdict = Holds
	}
	return v
}

// measured returns a metric, or an error if it has no value: the name has been checked.
func (sc *Scenario) measured(plans map[string]Metrics, plan, domain, metric string) (float64, error) {
	if v, ok := plans[plan][domain][metric]; ok {
		return v, nil
	}
	of := metric
	if domain != "" {
		of += " of " + domain
	}
	if slices.Contains(windowed, metric) {
		return 0, fmt.Errorf("plan %s: %s wasn't measured: no window of %v ended within the run; give a longer time, more runs, or a shorter window", plan, of, sc.Window)
	}
	return 0, fmt.Errorf("plan %s: %s wasn't measured: no run or call ended in the time that is measured", plan, of)
}

// near reports whether a mean is within the bounds, up to rounding.
func (r *Row) near(v float64) bool {
	const rounding = 1e-9
	return (r.Min == nil || v >= *r.Min-rounding) && (r.Max == nil || v <= *r.Max+rounding)
}

// Plans returns the plans' names, Domains the domains for which a plan has metrics, the plan itself ("")
// first.
func (r *Result) Plans() []string              { return slices.Sorted(maps.Keys(r.Metrics)) }
func (r *Result) Domains(plan string) []string { return slices.Sorted(maps.Keys(r.Metrics[plan])) }
