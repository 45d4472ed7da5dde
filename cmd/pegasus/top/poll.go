package top

import (
	"slices"
	"strings"
	"time"

	"pegasus/backend/control"
)

// Poll has the answers of the daemon at one time.
type Poll struct {
	At           time.Time
	Accelerators []control.Accelerator
	Domains      []control.Domain
}

// Row is one domain at a poll, with the figures that are not in the daemon's answer. A figure is nil if it is unknown.
type Row struct {
	control.Domain
	Error *float64 `json:"error"`            // share minus entitled part, -1 to 1; nil: the policy owes nothing
	Rate  *float64 `json:"calls_per_second"` // since the poll before
	Run   *float64 `json:"vcpu_run"`         // CPUs of the host that its vCPUs used since the poll before
}

// Report is the answer of `pegasus top --json`.
type Report struct {
	At           time.Time             `json:"at"`
	Interval     int64                 `json:"interval_ns"` // between the two polls of which rates are the difference
	Accelerators []control.Accelerator `json:"accelerators"`
	Domains      []Row                 `json:"domains"`
}

// Rows returns the domains of a poll with their rates since the poll before, which may be nil. A counter that shrank
// belongs to another daemon or another domain of that name: it gives no rate.
func (p *Poll) Rows(before *Poll) []Row {
	old := map[string]control.Domain{}
	var elapsed float64 // s
	if before != nil {
		elapsed = p.At.Sub(before.At).Seconds()
		for _, d := range before.Domains {
			old[d.Name] = d
		}
	}
	rows := make([]Row, 0, len(p.Domains))
	for _, d := range p.Domains {
		r := Row{Domain: d}
		if d.Entitled > 0 {
			e := d.Share - d.Entitled
			r.Error = &e
		}
		if o, ok := old[d.Name]; ok && elapsed > 0 && d.Calls >= o.Calls {
			rate := float64(d.Calls-o.Calls) / elapsed
			r.Rate = &rate
			if d.VCPUs > 0 && d.VCPURan >= o.VCPURan {
				run := float64(d.VCPURan-o.VCPURan) / 1e9 / elapsed
				r.Run = &run
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// turn returns the domains that may submit work to an accelerator: those whose gate is open, or whose work is still on
// the accelerator.
func (p *Poll) turn(accelerator string) string {
	var names []string
	for _, d := range p.Domains {
		if d.Accelerator == accelerator && (d.State == "running" || d.State == "open" || d.State == "closing") {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// domain returns a domain by name.
func (p *Poll) domain(name string) (control.Domain, bool) {
	if p != nil {
		for _, d := range p.Domains {
			if d.Name == name {
				return d, true
			}
		}
	}
	return control.Domain{}, false
}
