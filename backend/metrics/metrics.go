// Package metrics offers the daemon's state to Prometheus: domains, accelerators and the daemon itself.
//
// Callers: backend/api serves the metrics.
//
// Each metric is a row of one of the tables in table.go, from which docs/zz_metrics.md is generated. The number of time
// series is bounded by the numbers of domains and accelerators.
package metrics

//go:generate go run ./document

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"pegasus/backend/control"
)

// Source has the state that the metrics describe. Each method returns one consistent state.
type Source interface {
	Status() control.Status
	Domains(control.DomainParams) ([]control.Domain, error)
	Accelerators() []control.Accelerator
}

// Counts returns how many events of each kind the daemon has noted.
type Counts func() map[string]uint64

// collector implements prometheus.Collector: it reads the source at each scrape.
type collector struct {
	source Source
	events Counts
}

// New returns a registry with the metrics of the daemon, of the Go runtime and of the process.
func New(source Source, events Counts) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(&collector{source, events}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	status := c.source.Status()
	emit(to, daemonMetrics, &status)
	for kind, n := range c.events() {
		to <- prometheus.MustNewConstMetric(descs[eventsMetric], prometheus.CounterValue, float64(n), kind)
	}
	domains, err := c.source.Domains(control.DomainParams{})
	if err != nil {
		to <- prometheus.NewInvalidMetric(descs[domainMetrics[0].name], err)
	}
	for i := range domains {
		d := &domains[i]
		emit(to, domainMetrics, d, d.Name, d.Accelerator)
	}
	for _, a := range c.source.Accelerators() {
		emit(to, acceleratorMetrics, &a, a.Name)
	}
}

// emit sends one object's values.
func emit[T any](to chan<- prometheus.Metric, table []metric[T], of *T, labels ...string) {
	for _, m := range table {
		for _, v := range m.values(of) {
			to <- prometheus.MustNewConstMetric(descs[m.name], m.kind, v.value, append(labels[:len(labels):len(labels)], v.labels...)...)
		}
	}
}
