package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"pegasus/sim"
	"pegasus/tools/compare/internal/live"
)

// Comparison is a scenario's predictions and measurements.
type Comparison struct {
	Scenario  string                `json:"scenario"`
	Title     string                `json:"title"`
	Workloads map[string]live.Alone `json:"workloads"`
	Plans     []Plan                `json:"plans"`
	Rows      []Row                 `json:"rows"`
	Orders    []Order               `json:"orders"`

	scenario *sim.Scenario
}

// Plan is the prediction and the measurement of a plan, by domain; "" is the plan itself.
type Plan struct {
	Name      string      `json:"name"`
	Policy    string      `json:"policy"`
	Predicted sim.Metrics `json:"predicted"`
	Measured  sim.Metrics `json:"measured"`
}

// Row is an expected result.
type Row struct {
	Predicted sim.Verdict `json:"predicted"`
	Measured  sim.Verdict `json:"measured"`
}

// Order is the comparison of the plans by one metric: of all pairs of plans that were predicted to differ,
// the number that differs in that direction.
type Order struct {
	Metric string `json:"metric"`
	Domain string `json:"domain,omitempty"`
	Pairs  int    `json:"pairs"`
	Same   int    `json:"same"`
}

// fill takes in the prediction and the measurements of several runs.
func (c *Comparison) fill(foretold *sim.Result, runs []map[string]sim.Metrics) {
	for i := range c.scenario.Plans {
		p := &c.scenario.Plans[i]
		c.Plans = append(c.Plans, Plan{p.Name, p.Policy, foretold.Metrics[p.Name], mean(runs, p.Name)})
	}
	measured := c.scenario.Verdicts(runs)
	for i := range measured {
		c.Rows = append(c.Rows, Row{foretold.Rows[i], measured[i]})
	}
	c.Orders = append(c.Orders, c.order("off", ""))
	for i := range c.scenario.Domains {
		if d := &c.scenario.Domains[i]; !d.Background && d.Count <= 1 {
			c.Orders = append(c.Orders, c.order("rate", d.Name))
		}
	}
	c.Orders = slices.DeleteFunc(c.Orders, func(o Order) bool { return o.Pairs == 0 })
}

// mean of a plan's metrics over several runs.
func mean(runs []map[string]sim.Metrics, plan string) sim.Metrics {
	out := sim.Metrics{}
	for _, r := range runs {
		for domain, m := range r[plan] {
			if out[domain] == nil {
				out[domain] = map[string]float64{}
			}
			for name, v := range m {
				out[domain][name] += v / float64(len(runs))
			}
		}
	}
	return out
}

// differ reports whether a value is larger (1) or smaller (-1) than another, or about the same (0): within a
// twentieth of the larger, and half a unit for points.
func differ(metric string, a, b float64) int {
	least := 0.05 * max(math.Abs(a), math.Abs(b))
	if metric == "off" {
		least = max(least, 0.5)
	}
	switch {
	case a-b > least:
		return 1
	case b-a > least:
		return -1
	}
	return 0
}

func (c *Comparison) order(metric, domain string) Order {
	o := Order{Metric: metric, Domain: domain}
	for i, a := range c.Plans {
		for _, b := range c.Plans[:i] {
			x, there := a.Predicted[domain][metric]
			y, too := b.Predicted[domain][metric]
			want := differ(metric, x, y)
			if !there || !too || want == 0 {
				continue
			}
			o.Pairs++
			if differ(metric, a.Measured[domain][metric], b.Measured[domain][metric]) == want {
				o.Same++
			}
		}
	}
	return o
}

func (c *Comparison) failed() (n int) {
	for _, r := range c.Rows {
		if r.Measured.Verdict != sim.Holds {
			n++
		}
	}
	return n
}

// columns of the table, each predicted and measured.
var columns = []struct{ head, predicted, measured string }{
	{"share %", "part", "part"},
	{"off mean", "off", "off"},
	{"off max", "off_max", "off_max"},
	{"runs/s", "rate", "rate"},
	{"wait p99 ms", "wait_p99", "wait_p99"},
	{"call p50 ms", "latency_p50", "latency_p50"},
	{"p85", "latency_p85", "latency_p85"},
	{"p99", "latency_p99", "latency_p99"},
}

func (c *Comparison) print(w io.Writer) error {
	fmt.Fprintf(w, "%s  %s\n\n", c.Scenario, c.Title)
	for _, name := range slices.Sorted(maps.Keys(c.Workloads)) {
		a := c.Workloads[name]
		fmt.Fprintf(w, "  %s is %s: %v of the accelerator per run, %v of copies, and %v besides\n", name, strings.Join(a.Program, " "),
			a.Kernel.Round(10*time.Microsecond), a.Copy.Round(10*time.Microsecond), max(a.Period-a.Kernel-a.Copy, 0).Round(10*time.Microsecond))
	}
	fmt.Fprint(w, "\npredicted | measured\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "plan\tdomain\t")
	for _, col := range columns {
		fmt.Fprintf(t, "%s\t\t", col.head)
	}
	fmt.Fprintln(t)
	for _, p := range c.Plans {
		for _, domain := range slices.Sorted(maps.Keys(p.Measured)) {
			if domain == "" {
				continue
			}
			fmt.Fprintf(t, "%s\t%s\t", p.Name, domain)
			for _, col := range columns {
				fmt.Fprintf(t, "%s\t%s\t", number(p.Predicted[domain], col.predicted), number(p.Measured[domain], col.measured))
			}
			fmt.Fprintln(t)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "row\tbound\tpredicted\tmeasured\t")
	for _, r := range c.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", r.Measured.Text, bounds(r.Measured), verdict(r.Predicted), verdict(r.Measured))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, o := range c.Orders {
		fmt.Fprintf(w, "order of plans by %s: %d of %d pairs that were foretold to differ do\n", strings.TrimPrefix(o.Domain+"."+o.Metric, "."), o.Same, o.Pairs)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func number(m map[string]float64, name string) string {
	v, ok := m[name]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.3g", v)
}

func bounds(v sim.Verdict) string {
	var all []string
	if v.Min != nil {
		all = append(all, fmt.Sprintf("≥ %g", *v.Min))
	}
	if v.Max != nil {
		all = append(all, fmt.Sprintf("≤ %g", *v.Max))
	}
	return strings.Join(all, ", ")
}

func verdict(v sim.Verdict) string {
	word := "holds"
	switch {
	case v.Why != "":
		return v.Why
	case v.Verdict != sim.Holds:
		word = "FAILS"
	}
	return fmt.Sprintf("%.3g %s", v.Mean, word)
}
