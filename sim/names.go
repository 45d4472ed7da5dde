package sim

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"unicode"

	"pegasus/internal/nearest"
)

// Names of the metrics returned by measure: of a plan, of a domain, and of a domain or group with an entitled
// share.
var (
	planMetrics = []string{"work", "run", "run_mean", "run_p99", "iqr", "runs", "rate", "rate_min", "latency", "latency_p50", "latency_p85", "latency_p99",
		"wait", "wait_p50", "wait_p99", "wait_max", "share", "compute", "copy", "error", "error_max", "off", "off_max", "runs_min", "calls_min", "done", "failed",
		"bound_excess", "busy", "changing", "changes", "moved", "end", "decisions"}
	domainMetrics = []string{"runs", "rate", "rate_sd", "rate_min", "compute", "compute_max", "h2d", "h2d_max", "d2h", "d2h_max", "copy", "share", "work", "iqr",
		"run", "run_p99", "run_max", "run_mean", "latency", "latency_p50", "latency_p85", "latency_p99", "latency_max",
		"wait", "wait_p50", "wait_p85", "wait_p99", "wait_max", "cpu", "done"}
	unitMetrics = []string{"share", "part", "error", "error_max", "off", "off_max"}
)

// windowed are the metrics that require a completed window.
var windowed = []string{"rate", "rate_sd", "rate_min", "compute", "compute_max", "h2d", "h2d_max", "d2h", "d2h_max", "copy", "share", "part", "error", "error_max", "off", "off_max", "bound_excess"}

// vocabulary is the metrics' names of each plan, by domain and group; those of the plan itself are under "".
type vocabulary map[string]map[string][]string

// vocabulary returns the names that rows and charts may use. All plans have been tried.
func (sc *Scenario) vocabulary() (vocabulary, error) {
	out := vocabulary{}
	for i := range sc.Plans {
		p := &sc.Plans[i]
		of := map[string][]string{"": planMetrics}
		out[p.Name] = of
		if p.Study != "" {
			m, err := p.study(1)
			if err != nil {
				return nil, err
			}
			of[""] = slices.Sorted(maps.Keys(m[""]))
			continue
		}
		domains, err := sc.TakingPart(p)
		if err != nil {
			return nil, err
		}
		for _, d := range domains {
			of[d.Name] = domainMetrics
		}
		for _, d := range domains {
			unit := d.Group
			if unit == "" {
				unit = d.Name
			}
			if owed := of[unit]; !slices.Contains(owed, "part") {
				of[unit] = slices.Concat(owed, unitMetrics)
			}
		}
	}
	return out, nil
}

// metric returns an error unless the metric exists.
func (v vocabulary) metric(plan, domain, metric string) error {
	of, ok := v[plan]
	if !ok {
		return fmt.Errorf("there is no plan %q%s", plan, closest(plan, slices.Sorted(maps.Keys(v))))
	}
	all, ok := of[domain]
	if !ok {
		return fmt.Errorf("plan %s has no domain or group %q%s", plan, domain, closest(domain, slices.Sorted(maps.Keys(of))))
	}
	switch {
	case slices.Contains(all, metric):
		return nil
	case domain != "":
		return fmt.Errorf("plan %s has no metric %q of %s%s", plan, metric, domain, closest(metric, all))
	case of[metric] != nil:
		return fmt.Errorf("plan %s has no metric %q: it is a domain or group; write %s.%s.METRIC", plan, metric, plan, metric)
	default:
		return fmt.Errorf("plan %s has no metric %q%s", plan, metric, closest(metric, all))
	}
}

// identifier returns a name as expressions have it: with _ for each character that a name in one can't have, and before
// a keyword of their syntax, as in _default.
func identifier(name string) string {
	id := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '_'
	}, name)
	if id == "" || unicode.IsDigit([]rune(id)[0]) || token.IsKeyword(id) {
		id = "_" + id
	}
	return id
}

// named returns the name among several that an expression has; id itself if there is none, or no single one.
func named[T any](id string, all map[string]T) string {
	if _, ok := all[id]; ok {
		return id
	}
	found := id
	for name := range all {
		if name != "" && identifier(name) == id {
			if found != id {
				return id
			}
			found = name
		}
	}
	return found
}

// rename replaces the names of plans, domains and the scenario's numbers in an expression by the names in the file.
func (v vocabulary) rename(e ast.Expr, let map[string]float64) {
	ast.Inspect(e, func(n ast.Node) bool {
		if number, ok := n.(*ast.Ident); ok {
			number.Name = named(number.Name, let)
		}
		metric, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch x := metric.X.(type) {
		case *ast.Ident:
			x.Name = named(x.Name, v)
		case *ast.SelectorExpr:
			if plan, ok := x.X.(*ast.Ident); ok {
				plan.Name = named(plan.Name, v)
				x.Sel.Name = named(x.Sel.Name, v[plan.Name])
			}
		}
		return false
	})
}

// spelling returns a remark about the names that expressions spell differently; "" if there is none.
func (sc *Scenario) spelling() string {
	var all []string
	note := func(name string) {
		if id := identifier(name); name != "" && id != name {
			all = append(all, fmt.Sprintf("%s as %s", name, id))
		}
	}
	for i := range sc.Plans {
		note(cmp.Or(sc.Plans[i].Name, sc.Plans[i].Policy))
	}
	for _, d := range sc.Domains {
		note(d.numbered(0))
		note(d.Group)
	}
	for name := range sc.Let {
		note(name)
	}
	if all == nil {
		return ""
	}
	slices.Sort(all)
	return "; write " + strings.Join(slices.Compact(all), ", ")
}

// references checks all names in rows and charts, and everything else on which evaluating them could fail.
func (sc *Scenario) references() error {
	if sc.Bench != "" {
		return nil
	}
	v, err := sc.vocabulary()
	if err != nil {
		return err
	}
	try := &scope{let: sc.Let, metricOf: func(plan, domain, metric string) (float64, error) { return 1, v.metric(plan, domain, metric) }}
	for i := range sc.Rows {
		r := &sc.Rows[i]
		v.rename(r.tree, sc.Let)
		if _, err := try.value(r.tree); err != nil {
			return fmt.Errorf("row %s: %w%s", r.Text, err, sc.spelling())
		}
	}
	for i := range sc.Charts {
		c := &sc.Charts[i]
		for _, bar := range c.Bars {
			v.rename(bar.tree, sc.Let)
			if _, err := try.value(bar.tree); err != nil {
				return fmt.Errorf("chart %s: bar %s: %w%s", c.Title, bar.Name, err, sc.spelling())
			}
		}
		if err := v.chart(c); err != nil {
			return fmt.Errorf("chart %s: %w", c.Title, err)
		}
	}
	return nil
}

// chart returns an error if a chart names an unknown plan, a domain that is in none of its plans, or a metric
// of none.
func (v vocabulary) chart(c *Chart) error {
	plans := c.Plans
	if len(plans) == 0 {
		plans = slices.Sorted(maps.Keys(v))
	}
	metrics, domains := map[string]bool{}, map[string]bool{}
	for _, p := range plans {
		if v[p] == nil {
			return fmt.Errorf("there is no plan %q%s", p, closest(p, slices.Sorted(maps.Keys(v))))
		}
		for d, names := range v[p] {
			domains[d] = true
			for _, name := range names {
				metrics[name] = true
			}
		}
	}
	for _, d := range c.Domains {
		if !domains[d] {
			return fmt.Errorf("there is no domain or group %q%s", d, closest(d, slices.Sorted(maps.Keys(domains))))
		}
	}
	if c.Kind == "bar" && !metrics[c.Metric] {
		return fmt.Errorf("there is no metric %q%s", c.Metric, closest(c.Metric, slices.Sorted(maps.Keys(metrics))))
	}
	return nil
}

// closest suggests the name most similar to the word, or lists the names if there are few and none is
// similar.
func closest(word string, names []string) string {
	best, least := "", max(len(word)/2, 1)+1
	var there []string
	for _, name := range names {
		if name == "" {
			continue
		}
		there = append(there, name)
		if d := nearest.Distance(strings.ToLower(word), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	const few = 40
	switch {
	case best != "":
		return fmt.Sprintf("; did you mean %s?", best)
	case len(there) == 0 || len(there) > few:
		return ""
	default:
		return "; there are " + strings.Join(there, ", ")
	}
}
