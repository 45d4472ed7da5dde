// Package metrics offers the daemon's state to Prometheus: domains, accelerators and the daemon itself.
//
// Callers: backend/api serves the metrics.
//
// Trust boundary: none.
//
// Each metric is a row of one of the tables in table.go, from which docs/zz_metrics.md is generated. The number of time
// series is bounded by the numbers of domains and accelerators.
package metrics

//go:generate go run ./document

import (
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

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

// maxScrapes bounds the scrapes that are answered at a time, and with them the memory for their answers.
const maxScrapes = 4

// New returns a handler of scrapes, with the metrics of the daemon, of the Go runtime and of the process.
func New(source Source, events Counts) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(&gatherer{r, source, events}, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// gatherer implements prometheus.Gatherer. It makes the daemon's metrics from the tables: a registry and
// prometheus.Gatherers would check each of the 5000 values of 200 domains, which costs half a scrape more.
type gatherer struct {
	runtime prometheus.Gatherer // of the Go runtime and of the process
	source  Source
	events  Counts
}

// Gather implements prometheus.Gatherer.
func (g *gatherer) Gather() ([]*dto.MetricFamily, error) {
	domains, err := g.source.Domains(control.DomainParams{})
	if err != nil {
		return nil, err
	}
	runtime, err := g.runtime.Gather()
	if err != nil {
		return nil, err
	}
	all := slices.Concat(
		runtime,
		families(eventMetrics, []Counts{g.events}, nil),
		families(daemonMetrics, []control.Status{g.source.Status()}, nil),
		families(acceleratorMetrics, g.source.Accelerators(), func(a *control.Accelerator) []*dto.LabelPair {
			return pairs(nil, acceleratorLabels, a.Name)
		}),
		families(domainMetrics, domains, func(d *control.Domain) []*dto.LabelPair {
			return pairs(nil, domainLabels, d.Name, d.Accelerator)
		}),
	)
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, nil
}

// families returns the metrics of a table that any object has. labels returns an object's own labels; nil: it has none.
func families[T any](table []metric[T], all []T, labels func(*T) []*dto.LabelPair) []*dto.MetricFamily {
	own := make([][]*dto.LabelPair, len(all))
	for i := range all {
		if labels != nil {
			own[i] = labels(&all[i])
		}
	}
	var out []*dto.MetricFamily
	for i := range table {
		m := &table[i]
		to := samples{family: &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &m.kind}, labels: m.labels}
		for k := range all {
			to.own = own[k]
			m.values(&all[k], &to)
		}
		if len(to.family.Metric) > 0 { // the formats have no empty families
			out = append(out, to.family)
		}
	}
	return out
}

// samples is a metric, to which the samples of one object are added.
type samples struct {
	family *dto.MetricFamily
	labels []string         // beside those of the object
	own    []*dto.LabelPair // labels of the object, which its samples share
}

// add adds a sample, with the values of the metric's own labels.
func (s *samples) add(value float64, labels ...string) {
	m := &dto.Metric{Label: pairs(s.own, s.labels, labels...)}
	if s.family.GetType() == counter {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	s.family.Metric = append(s.family.Metric, m)
}

// pairs returns labels beside those of before, sorted by name.
func pairs(before []*dto.LabelPair, names []string, values ...string) []*dto.LabelPair {
	if len(names) == 0 {
		return before
	}
	all := slices.Clone(before)
	for i := range names {
		all = append(all, &dto.LabelPair{Name: &names[i], Value: &values[i]})
	}
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}
