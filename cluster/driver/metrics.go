package driver

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"

	prometheus "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"

	"pegasus/backend/control"
	"pegasus/cluster/claims"
)

// maxMetrics bounds the daemon's text: a domain has some 10 KiB of it.
const maxMetrics = 64 << 20

// Metrics serves the daemon's metrics. Those of a claim's domain also have the labels namespace, claim and pod; pod is
// empty if several pods share the claim.
func (d *Driver) Metrics(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "metrics are read with GET", http.StatusMethodNotAllowed)
		return
	}
	text, err := d.daemon.metrics(r.Context())
	if err != nil {
		d.log.Warn("read the daemon's metrics", "err", err)
		http.Error(w, oneLine(err), http.StatusBadGateway)
		return
	}
	defer text.Close()
	all, err := d.records.All()
	if err != nil {
		d.log.Warn("metrics of some claims lack their labels", "err", err)
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	if err := label(io.LimitReader(text, maxMetrics), w, all); err != nil {
		d.log.Warn("label the daemon's metrics", "err", err)
	}
}

// label copies metrics in Prometheus' text format and adds the labels of claims to those of their domains.
func label(from io.Reader, to io.Writer, all []*claims.Domain) error {
	byDomain := map[string]*claims.Domain{}
	for _, of := range all {
		byDomain[of.Name()] = of
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(from)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		for _, m := range families[name].Metric {
			for _, l := range m.Label {
				if of := byDomain[l.GetValue()]; of != nil && l.GetName() == "domain" {
					m.Label = append(m.Label, pair("namespace", of.Namespace), pair("claim", of.Claim), pair("pod", of.Pod()))
					break
				}
			}
		}
		if _, err := expfmt.MetricFamilyToText(to, families[name]); err != nil {
			return err
		}
	}
	return nil
}

func pair(name, value string) *prometheus.LabelPair {
	return &prometheus.LabelPair{Name: proto.String(name), Value: proto.String(value)}
}

// metrics returns the daemon's metrics as text.
func (d daemon) metrics(ctx context.Context) (io.ReadCloser, error) {
	socket := filepath.Join(d.runtimeDir, control.SocketName)
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://pegasus/metrics", nil)
	if err != nil {
		return nil, err
	}
	a, err := transport.RoundTrip(q)
	if err != nil {
		return nil, fmt.Errorf("daemon of %s: %w", d.runtimeDir, err)
	}
	if a.StatusCode != http.StatusOK {
		a.Body.Close()
		return nil, fmt.Errorf("daemon of %s: metrics: %s", d.runtimeDir, a.Status)
	}
	return a.Body, nil
}
