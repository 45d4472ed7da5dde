package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

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
	r := New(source{}, events)
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

// Every metric is a row of the documentation.
func TestTable(t *testing.T) {
	rows := Table()
	for name := range descs {
		if !strings.Contains(rows, "`"+name+"`") {
			t.Errorf("%s is missing", name)
		}
	}
}
