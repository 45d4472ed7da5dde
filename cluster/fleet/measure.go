package fleet

import (
	"io"
	"slices"
	"strings"

	prometheus "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Measured has the metrics of a node's daemon.
type Measured struct {
	Accelerators []MeasuredAccelerator
	Domains      []MeasuredDomain
	Refused      bool // the last reload of the configuration was refused
}

// MeasuredAccelerator has the metrics of an accelerator.
type MeasuredAccelerator struct {
	Name                    string
	Policy, Mode            string
	Busy                    float64 // part of the recent time, 0 to 1
	Memory, Used, Allocated float64 // bytes
	Uncharged               float64 // seconds
}

// MeasuredDomain has the metrics of a domain.
type MeasuredDomain struct {
	Name        string // of the domain
	Accelerator string // empty: it is on none
	Credits     float64
	Entitled    float64 // part of its accelerator, 0 to 1; 0: the policy owes nothing
	Share       float64 // part of its accelerator's used time, 0 to 1
	Memory      float64 // bytes
	// Spent has the parts of the recent time, which add up to 1. Without Timed there is no such time yet.
	Timed    bool
	Spent    Spent
	Engine   float64  // seconds for which it has held engines
	Calls    float64  // that passed the gate
	Violated []string // objectives
}

// Spent has the parts of a domain's time, from 0 to 1.
type Spent struct {
	Accelerator, Turn, VCPU, Idle float64
}

// Read reads the metrics of a node's driver, in Prometheus' text format.
func Read(from io.Reader) (*Measured, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(from)
	if err != nil {
		return nil, err
	}
	m := &Measured{}
	accelerators, domains := map[string]*MeasuredAccelerator{}, map[string]*MeasuredDomain{}
	for name, family := range families {
		for _, one := range family.Metric {
			v, labels := number(one), texts(one)
			if part, ok := strings.CutPrefix(name, "pegasus_accelerator_"); ok {
				a := of(accelerators, labels["accelerator"])
				a.Name = labels["accelerator"]
				a.set(part, v, labels)
			}
			if part, ok := strings.CutPrefix(name, "pegasus_domain_"); ok {
				d := of(domains, labels["domain"])
				d.Name, d.Accelerator = labels["domain"], labels["accelerator"]
				d.set(part, v, labels)
			}
			if name == "pegasus_config_last_reload_successful" {
				m.Refused = v == 0
			}
		}
	}
	for _, name := range sorted(accelerators) {
		m.Accelerators = append(m.Accelerators, *accelerators[name])
	}
	for _, name := range sorted(domains) {
		slices.Sort(domains[name].Violated)
		m.Domains = append(m.Domains, *domains[name])
	}
	return m, nil
}

func (a *MeasuredAccelerator) set(metric string, v float64, labels map[string]string) {
	switch metric {
	case "info":
		a.Policy, a.Mode = labels["policy"], labels["mode"]
	case "busy_ratio":
		a.Busy = v
	case "memory_bytes":
		a.Memory = v
	case "memory_used_bytes":
		a.Used = v
	case "memory_allocated_bytes":
		a.Allocated = v
	case "uncharged_seconds":
		a.Uncharged = v
	}
}

func (d *MeasuredDomain) set(metric string, v float64, labels map[string]string) {
	switch metric {
	case "credits":
		d.Credits = v
	case "entitled_ratio":
		d.Entitled = v
	case "share_ratio":
		d.Share = v
	case "memory_bytes":
		d.Memory = v
	case "engine_seconds_total": // one of each class
		d.Engine += v
	case "calls_total":
		d.Calls = v
	case "objective_violated":
		if v != 0 {
			d.Violated = append(d.Violated, labels["objective"])
		}
	case "time_ratio":
		d.Timed = true
		switch labels["in"] {
		case "accelerator":
			d.Spent.Accelerator = v
		case "turn":
			d.Spent.Turn = v
		case "vcpu":
			d.Spent.VCPU = v
		case "idle":
			d.Spent.Idle = v
		}
	}
}

// domain returns the metrics of a domain, or nil.
func (m *Measured) domain(name string) *MeasuredDomain {
	if m == nil {
		return nil
	}
	if i := slices.IndexFunc(m.Domains, func(d MeasuredDomain) bool { return d.Name == name }); i >= 0 {
		return &m.Domains[i]
	}
	return nil
}

// accelerator returns the metrics of an accelerator, or nil.
func (m *Measured) accelerator(name string) *MeasuredAccelerator {
	if m == nil {
		return nil
	}
	if i := slices.IndexFunc(m.Accelerators, func(a MeasuredAccelerator) bool { return a.Name == name }); i >= 0 {
		return &m.Accelerators[i]
	}
	return nil
}

func number(m *prometheus.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.Untyped.GetValue()
}

func texts(m *prometheus.Metric) map[string]string {
	all := map[string]string{}
	for _, l := range m.Label {
		all[l.GetName()] = l.GetValue()
	}
	return all
}

// of returns the entry of a name, which it makes if there is none.
func of[T any](all map[string]*T, name string) *T {
	if all[name] == nil {
		all[name] = new(T)
	}
	return all[name]
}
