package metrics

import (
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"pegasus/backend/control"
)

// metric is one metric of objects of type T.
type metric[T any] struct {
	name   string
	kind   dto.MetricType // gauge or counter
	help   string
	labels []string // beside those of the object
	values func(*T, *samples)
}

const (
	gauge   = dto.MetricType_GAUGE
	counter = dto.MetricType_COUNTER
)

// one returns a metric without labels of its own.
func one[T any](name string, kind dto.MetricType, help string, of func(*T) float64) metric[T] {
	return metric[T]{name: name, kind: kind, help: help, values: func(v *T, to *samples) { to.add(of(v)) }}
}

// seconds converts nanoseconds.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Labels of domains' and accelerators' metrics.
var (
	domainLabels      = []string{"domain", "accelerator"}
	acceleratorLabels = []string{"accelerator"}
)

var daemonMetrics = []metric[control.Status]{
	{name: "pegasus_build_info", kind: gauge, help: "1, with the release of the daemon", labels: []string{"version"},
		values: func(s *control.Status, to *samples) { to.add(1, s.Version) }},
	one("pegasus_start_time_seconds", gauge, "Time at which the daemon started, since 1970", func(s *control.Status) float64 {
		return float64(s.Started.UnixNano()) / 1e9
	}),
	one("pegasus_guest_processes", gauge, "Guest processes", func(s *control.Status) float64 { return float64(s.Guests) }),
	one("pegasus_ready_workers", gauge, "Workers that wait for a guest process", func(s *control.Status) float64 { return float64(s.ReadyPool) }),
	one("pegasus_config_last_reload_successful", gauge, "0 if the last reload of the configuration was refused, else 1", func(s *control.Status) float64 {
		return truth(s.ConfigError == "")
	}),
}

var domainMetrics = []metric[control.Domain]{
	one("pegasus_domain_credits", gauge, "Credits of the domain", func(d *control.Domain) float64 { return float64(d.Credits) }),
	one("pegasus_domain_entitled_ratio", gauge, "Part of the accelerator to which the domain is entitled, 0 to 1; 0: the policy owes nothing", func(d *control.Domain) float64 { return d.Entitled }),
	one("pegasus_domain_share_ratio", gauge, "Part of the recently used accelerator time that the domain used, 0 to 1", func(d *control.Domain) float64 { return d.Share }),
	{name: "pegasus_domain_engine_seconds_total", kind: counter, help: "Time for which the domain held engines, as charged", labels: []string{"class"},
		values: func(d *control.Domain, to *samples) {
			to.add(seconds(d.Compute), "compute")
			to.add(seconds(d.Copy), "copy")
		}},
	{name: "pegasus_domain_time_ratio", kind: gauge, help: "Part of the recent time that the domain spent on the accelerator, waiting for its turn, waiting for a CPU with its vCPUs, and idle, 0 to 1", labels: []string{"in"},
		values: func(d *control.Domain, to *samples) {
			if d.Spent.Window != 0 {
				to.add(d.Spent.Accelerator, "accelerator")
				to.add(d.Spent.Turn, "turn")
				to.add(d.Spent.VCPU, "vcpu")
				to.add(d.Spent.Idle, "idle")
			}
		}},
	one("pegasus_domain_calls_total", counter, "Calls that passed the gate", func(d *control.Domain) float64 { return float64(d.Calls) }),
	one("pegasus_domain_gate_wait_p50_seconds", gauge, "Median of the time for which calls waited at the gate", func(d *control.Domain) float64 { return seconds(d.WaitP50) }),
	one("pegasus_domain_gate_wait_p99_seconds", gauge, "99th percentile of the time for which calls waited at the gate", func(d *control.Domain) float64 { return seconds(d.WaitP99) }),
	one("pegasus_domain_memory_bytes", gauge, "Device memory of the domain", func(d *control.Domain) float64 { return float64(d.Memory) }),
	one("pegasus_domain_memory_quota_bytes", gauge, "Quota of device memory; 0: the accelerator's memory", func(d *control.Domain) float64 { return float64(d.MemoryQuota) }),
	one("pegasus_domain_memory_guarantee_bytes", gauge, "Device memory that is never evicted", func(d *control.Domain) float64 { return float64(d.MemoryGuarantee) }),
	one("pegasus_domain_host_memory_bytes", gauge, "Host memory of the domain", func(d *control.Domain) float64 { return float64(d.HostMemory) }),
	one("pegasus_domain_host_memory_quota_bytes", gauge, "Quota of host memory", func(d *control.Domain) float64 { return float64(d.HostQuota) }),
	one("pegasus_domain_swapped_bytes", gauge, "Device memory that is evicted now", func(d *control.Domain) float64 { return float64(d.Swapped) }),
	one("pegasus_domain_swap_out_bytes_total", counter, "Device memory that was evicted for other domains", func(d *control.Domain) float64 { return float64(d.SwapOut) }),
	one("pegasus_domain_swap_in_bytes_total", counter, "Device memory that was restored", func(d *control.Domain) float64 { return float64(d.SwapIn) }),
	one("pegasus_domain_processes", gauge, "Guest processes in the domain", func(d *control.Domain) float64 { return float64(d.Processes) }),
	one("pegasus_domain_worker_cpu_seconds_total", counter, "CPU time of the domain's workers, on engines and otherwise", func(d *control.Domain) float64 { return seconds(d.WorkerCPU) }),
	{name: "pegasus_domain_objective_violated", kind: gauge, help: "1 while the objective (share, wait_p99, rate) is violated, else 0", labels: []string{"objective"},
		values: objectives(func(o *control.ObjectiveState) float64 { return truth(o.State == control.ObjectiveViolated) })},
	{name: "pegasus_domain_objective_kept_ratio", kind: gauge, help: "Part of the judged time of the last hour in which the objective was kept, 0 to 1", labels: []string{"objective"},
		values: objectives(func(o *control.ObjectiveState) float64 { return o.Kept })},
	{name: "pegasus_domain_vcpus", kind: gauge, help: "vCPUs of the domain's virtual machine", values: vcpus(func(d *control.Domain) float64 { return float64(d.VCPUs) })},
	{name: "pegasus_domain_vcpu_run_seconds_total", kind: counter, help: "Run time of the virtual machine's vCPUs", values: vcpus(func(d *control.Domain) float64 { return seconds(d.VCPURan) })},
	{name: "pegasus_domain_vcpu_wait_seconds_total", kind: counter, help: "Time for which the virtual machine's vCPUs waited for a CPU of the host", values: vcpus(func(d *control.Domain) float64 { return seconds(d.VCPUWaited) })},
}

// objectives returns a value for each objective of a domain, of which there are at most three.
func objectives(of func(*control.ObjectiveState) float64) func(*control.Domain, *samples) {
	return func(d *control.Domain, to *samples) {
		for i := range d.Objective.Objectives {
			o := &d.Objective.Objectives[i]
			to.add(of(o), o.Name)
		}
	}
}

// vcpus returns the values of a metric that only domains with vCPUs have.
func vcpus(of func(*control.Domain) float64) func(*control.Domain, *samples) {
	return func(d *control.Domain, to *samples) {
		if d.VCPUs != 0 {
			to.add(of(d))
		}
	}
}

var acceleratorMetrics = []metric[control.Accelerator]{
	{name: "pegasus_accelerator_info", kind: gauge, help: "1, with the accelerator's type, device, policy and mode", labels: []string{"type", "device", "policy", "mode"},
		values: func(a *control.Accelerator, to *samples) { to.add(1, a.Type, a.Device, a.Policy, a.Mode) }},
	one("pegasus_accelerator_busy_ratio", gauge, "Part of the recent time in which the accelerator's engines were held, 0 to 1", func(a *control.Accelerator) float64 { return a.Busy }),
	one("pegasus_accelerator_engine_seconds_total", counter, "Time for which the accelerator's engines were held", func(a *control.Accelerator) float64 { return seconds(a.GPU) }),
	one("pegasus_accelerator_charged_seconds_total", counter, "Time that was charged to domains", func(a *control.Accelerator) float64 { return seconds(a.Charged) }),
	one("pegasus_accelerator_uncharged_seconds", gauge, "Difference of the two times before, which is always 0", func(a *control.Accelerator) float64 { return seconds(a.Uncharged) }),
	one("pegasus_accelerator_memory_bytes", gauge, "Device memory", func(a *control.Accelerator) float64 { return float64(a.Memory) }),
	one("pegasus_accelerator_memory_used_bytes", gauge, "Device memory in use", func(a *control.Accelerator) float64 { return float64(a.MemoryUsed) }),
	one("pegasus_accelerator_memory_allocated_bytes", gauge, "Device memory of all domains, part of it evicted if there is swap", func(a *control.Accelerator) float64 { return float64(a.MemoryAllocated) }),
	one("pegasus_accelerator_domains", gauge, "Domains on the accelerator", func(a *control.Accelerator) float64 { return float64(len(a.Domains)) }),
	one("pegasus_accelerator_max_domains", gauge, "Domains that the accelerator admits", func(a *control.Accelerator) float64 { return float64(a.MaxDomains) }),
	one("pegasus_accelerator_decisions_total", counter, "Decisions of the policy", func(a *control.Accelerator) float64 { return float64(a.Decisions) }),
	one("pegasus_accelerator_decision_p50_seconds", gauge, "Median of the time that a decision of the policy took", func(a *control.Accelerator) float64 { return seconds(a.DecisionCost.P50) }),
	one("pegasus_accelerator_decision_p99_seconds", gauge, "99th percentile of the time that a decision of the policy took", func(a *control.Accelerator) float64 { return seconds(a.DecisionCost.P99) }),
}

var eventMetrics = []metric[Counts]{
	{name: "pegasus_events_total", kind: counter, help: "Events that the daemon has noted, by kind", labels: []string{"kind"},
		values: func(events *Counts, to *samples) {
			for kind, n := range (*events)() {
				to.add(float64(n), kind)
			}
		}},
}

// Table returns the metrics as rows of a table in Markdown.
func Table() string {
	var out strings.Builder
	addRows(&out, eventMetrics, nil)
	addRows(&out, daemonMetrics, nil)
	addRows(&out, acceleratorMetrics, acceleratorLabels)
	addRows(&out, domainMetrics, domainLabels)
	return out.String()
}

func addRows[T any](out *strings.Builder, table []metric[T], labels []string) {
	for _, m := range table {
		text := ""
		for _, l := range append(labels[:len(labels):len(labels)], m.labels...) {
			text += "`" + l + "` "
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", m.name, strings.ToLower(m.kind.String()), strings.TrimSpace(text), m.help)
	}
}
