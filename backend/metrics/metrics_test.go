package metrics

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"pegasus/backend/control"
)

// source is a daemon with two domains on one accelerator, and a virtual machine.
type source struct{}

func (source) Status() control.Status { return control.Status{Version: "v1", Guests: 3, ReadyPool: 2} }

func (source) Domains(control.DomainParams) ([]control.Domain, error) {
	web := control.Domain{Name: "web", Accelerator: "soft0", Processes: 2}
	web.Credits, web.Entitled, web.Share = 512, 0.5, 0.48
	web.Compute, web.Copy, web.Calls, web.WaitP99 = 1_500_000_000, 250_000_000, 7, 2_000_000
	web.Spent = control.Spent{Window: 1, Accelerator: 0.4, Turn: 0.3, Idle: 0.3}
	machine := control.Domain{Name: `odd "name"`}
	machine.VCPUs, machine.VCPURan = 2, 3_000_000_000
	return []control.Domain{web, machine}, nil
}

func (source) Accelerators() []control.Accelerator {
	return []control.Accelerator{{Name: "soft0", Type: "soft", Policy: "accc", Mode: "production", GPU: 2_000_000_000, Charged: 2_000_000_000, Decisions: 9, Domains: []string{"web"}}}
}

func events() map[string]uint64 { return map[string]uint64{"guest": 4, "refused": 1} }

// The metrics have the daemon's values, in Prometheus' units and under names by its conventions.
func TestMetrics(t *testing.T) {
	r := prometheus.Gatherers{prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return scrape(t, source{}), nil })} // sorts
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	want := `
# HELP pegasus_accelerator_engine_seconds_total Time for which the accelerator's engines were held
# TYPE pegasus_accelerator_engine_seconds_total counter
pegasus_accelerator_engine_seconds_total{accelerator="soft0"} 2
# HELP pegasus_accelerator_uncharged_seconds Difference of the two times before, which is always 0
# TYPE pegasus_accelerator_uncharged_seconds gauge
pegasus_accelerator_uncharged_seconds{accelerator="soft0"} 0
# HELP pegasus_build_info 1, with the release of the daemon
# TYPE pegasus_build_info gauge
pegasus_build_info{version="v1"} 1
# HELP pegasus_domain_engine_seconds_total Time for which the domain held engines, as charged
# TYPE pegasus_domain_engine_seconds_total counter
pegasus_domain_engine_seconds_total{accelerator="",class="compute",domain="odd \"name\""} 0
pegasus_domain_engine_seconds_total{accelerator="",class="copy",domain="odd \"name\""} 0
pegasus_domain_engine_seconds_total{accelerator="soft0",class="compute",domain="web"} 1.5
pegasus_domain_engine_seconds_total{accelerator="soft0",class="copy",domain="web"} 0.25
# HELP pegasus_domain_time_ratio Part of the recent time that the domain spent on the accelerator, waiting for its turn, waiting for a CPU with its vCPUs, and idle, 0 to 1
# TYPE pegasus_domain_time_ratio gauge
pegasus_domain_time_ratio{accelerator="soft0",domain="web",in="accelerator"} 0.4
pegasus_domain_time_ratio{accelerator="soft0",domain="web",in="idle"} 0.3
pegasus_domain_time_ratio{accelerator="soft0",domain="web",in="turn"} 0.3
pegasus_domain_time_ratio{accelerator="soft0",domain="web",in="vcpu"} 0
# HELP pegasus_domain_vcpu_run_seconds_total Run time of the virtual machine's vCPUs
# TYPE pegasus_domain_vcpu_run_seconds_total counter
pegasus_domain_vcpu_run_seconds_total{accelerator="",domain="odd \"name\""} 3
# HELP pegasus_events_total Events that the daemon has noted, by kind
# TYPE pegasus_events_total counter
pegasus_events_total{kind="guest"} 4
pegasus_events_total{kind="refused"} 1
`
	names := []string{"pegasus_accelerator_engine_seconds_total", "pegasus_accelerator_uncharged_seconds", "pegasus_build_info",
		"pegasus_domain_engine_seconds_total", "pegasus_domain_time_ratio", "pegasus_domain_vcpu_run_seconds_total", "pegasus_events_total"}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// names returns the names of all metrics of the documentation.
func names() (all []string) {
	for row := range strings.Lines(Table()) {
		all = append(all, strings.Split(row, "`")[1])
	}
	return all
}

// scrape returns the metrics that Prometheus reads from the answer of a scrape.
func scrape(t *testing.T, from Source) (all []*dto.MetricFamily) {
	t.Helper()
	w := httptest.NewRecorder()
	New(from, events).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4; charset=utf-8") {
		t.Fatalf("%d, %v\n%s", w.Code, w.Header(), w.Body)
	}
	for name := range strings.Lines(w.Body.String()) {
		if strings.Contains(name, "{}") || strings.Contains(name, ",}") {
			t.Errorf("%q: want neither empty labels nor a comma behind the last one", name)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		all = append(all, families[name])
	}
	return all
}

// The answer has every metric of the documentation that these domains have, and no other; and those of the Go runtime
// and of the process.
func TestTable(t *testing.T) {
	found := map[string]bool{}
	for _, f := range scrape(t, source{}) {
		found[f.GetName()] = true
	}
	for _, name := range append(names(), "go_goroutines", "process_cpu_seconds_total") {
		if !found[name] && !strings.HasPrefix(name, "pegasus_domain_objective") {
			t.Errorf("%s is missing", name)
		}
	}
	for name := range found {
		if strings.HasPrefix(name, "pegasus_") && !slices.Contains(names(), name) {
			t.Errorf("%s is not in the documentation", name)
		}
	}
}

// No more than maxScrapes scrapes are answered at a time, and each ends.
func TestManyScrapes(t *testing.T) {
	h := New(source{}, events)
	stuck := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), goOn: make(chan struct{})}
	var tasks sync.WaitGroup
	for range maxScrapes {
		tasks.Go(func() { h.ServeHTTP(stuck, httptest.NewRequest(http.MethodGet, "/metrics", nil)) })
		<-stuck.begun
	}
	code := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	if got := code(); got != http.StatusServiceUnavailable {
		t.Errorf("one more: got %d, want %d", got, http.StatusServiceUnavailable)
	}
	close(stuck.goOn)
	tasks.Wait()
	if got := code(); got != http.StatusOK {
		t.Errorf("after them: got %d, want %d", got, http.StatusOK)
	}
}

// stuckWriter is a client that does not read yet.
type stuckWriter struct {
	*httptest.ResponseRecorder
	begun, goOn chan struct{}
}

func (w *stuckWriter) Header() http.Header { return http.Header{} }

func (w *stuckWriter) Write(text []byte) (int, error) {
	select {
	case w.begun <- struct{}{}:
		<-w.goOn
	case <-w.goOn:
	}
	return len(text), nil
}

// The answer is compressed for clients that accept it.
func TestCompressedScrape(t *testing.T) {
	h := New(source{}, events)
	for _, accept := range []string{"gzip", "", "deflate, gzip", "br"} {
		for range maxScrapes + 1 {
			w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
			q.Header.Set("Accept-Encoding", accept)
			h.ServeHTTP(w, q)
			text := io.Reader(w.Body)
			if coding := w.Header().Get("Content-Encoding"); coding == "gzip" != strings.Contains(accept, "gzip") {
				t.Errorf("%q: coding %q", accept, coding)
			} else if coding != "" {
				var err error
				if text, err = gzip.NewReader(w.Body); err != nil {
					t.Fatal(err)
				}
			}
			if all, err := io.ReadAll(text); err != nil || !strings.HasSuffix(string(all), "\n") || !strings.Contains(string(all), "\npegasus_build_info{version=\"v1\"} 1\n") {
				t.Errorf("%q: %v\n%s", accept, err, all)
			}
		}
	}
}

// A client that prefers protocol buffers gets the same metrics, with families and labels sorted by name.
func TestProtobuf(t *testing.T) {
	w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	q.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,text/plain;q=0.3")
	New(source{}, events).ServeHTTP(w, q)
	format := expfmt.ResponseFormat(w.Header())
	if format.FormatType() != expfmt.TypeProtoDelim {
		t.Fatalf("got %s, want protocol buffers", format)
	}
	var got, want []string
	for from := expfmt.NewDecoder(w.Body, format); ; {
		f := &dto.MetricFamily{}
		if err := from.Decode(f); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, f.GetName())
		for _, m := range f.Metric {
			if !slices.IsSortedFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) }) {
				t.Errorf("%s: labels are not sorted: %v", f.GetName(), m)
			}
		}
	}
	for _, f := range scrape(t, source{}) {
		want = append(want, f.GetName())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// BenchmarkScrape is the time of a scrape with 200 domains, as Prometheus makes it.
func BenchmarkScrape(b *testing.B) {
	h := New(many{}, events)
	q := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	q.Header.Set("Accept-Encoding", "gzip")
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), q)
	}
}

// many is a daemon with 200 domains.
type many struct{ source }

func (many) Domains(control.DomainParams) (all []control.Domain, _ error) {
	for i := range 200 {
		all = append(all, control.Domain{Name: fmt.Sprint("d", i), Accelerator: "soft0", Spent: control.Spent{Window: 1, Idle: 1}})
	}
	return all, nil
}
