package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"pegasus/backend/control"
	"pegasus/cluster/internal/golden"
	nodeslices "pegasus/cluster/slices"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// slice returns the slice of a node with as many accelerators as there are policies.
func slice(node string, change func(*nodeslices.Node), policies ...string) resourceapi.ResourceSlice {
	var all []control.Accelerator
	for i, p := range policies {
		all = append(all, control.Accelerator{Name: fmt.Sprint("soft", i), Type: "soft", Device: "Software accelerator", Policy: p, Mode: "production", Memory: 1 << 30, MaxDomains: 8})
	}
	n := nodeslices.Node{Release: "1", CUDA: "12.4", Credits: 1024}
	if change != nil {
		change(&n)
	}
	devices, _ := nodeslices.Devices(all, n)
	return resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-slice"},
		Spec: resourceapi.ResourceSliceSpec{Driver: "pegasus.dev", NodeName: ptr.To(node), Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: devices}}
}

// claim returns an allocated claim. Its domain is k8s-NAME.
func claim(name, node, device string, credits int, memory string, pods ...string) resourceapi.ResourceClaim {
	c := resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
		Request: "gpu", Driver: "pegasus.dev", Pool: node, Device: device,
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
			"credits": *resource.NewQuantity(int64(credits), resource.DecimalSI), "memory": resource.MustParse(memory), "domains": resource.MustParse("1")},
	}}}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID(p)})
	}
	return c
}

// figures are the metrics of a domain in a test.
type figures struct {
	domain, accelerator string
	credits             int
	entitled, share     float64
	busy, turn, idle    float64 // parts of its time
	engine, calls       float64
	violated            string
	memory              int
}

// metrics returns the text of a driver's metrics.
func metrics(accelerators string, all ...figures) string {
	var b strings.Builder
	for _, a := range strings.Fields(accelerators) {
		name, policy, _ := strings.Cut(a, "=")
		fmt.Fprintf(&b, "pegasus_accelerator_info{accelerator=%q,policy=%q,mode=\"production\"} 1\n", name, policy)
	}
	for _, a := range strings.Fields(accelerators) {
		name, _, _ := strings.Cut(a, "=")
		fmt.Fprintf(&b, "pegasus_accelerator_busy_ratio{accelerator=%q} 0.75\n", name)
	}
	for _, row := range []struct {
		name string
		of   func(figures) float64
	}{
		{"credits", func(f figures) float64 { return float64(f.credits) }},
		{"entitled_ratio", func(f figures) float64 { return f.entitled }},
		{"share_ratio", func(f figures) float64 { return f.share }},
		{"memory_bytes", func(f figures) float64 { return float64(f.memory) }},
		{"engine_seconds_total", func(f figures) float64 { return f.engine }},
		{"calls_total", func(f figures) float64 { return f.calls }},
	} {
		for _, f := range all {
			fmt.Fprintf(&b, "pegasus_domain_%s{domain=%q,accelerator=%q} %v\n", row.name, f.domain, f.accelerator, row.of(f))
		}
	}
	for _, f := range all {
		for in, v := range map[string]float64{"accelerator": f.busy, "turn": f.turn, "vcpu": 0, "idle": f.idle} {
			fmt.Fprintf(&b, "pegasus_domain_time_ratio{domain=%q,accelerator=%q,in=%q} %v\n", f.domain, f.accelerator, in, v)
		}
		if f.violated != "" {
			fmt.Fprintf(&b, "pegasus_domain_objective_violated{domain=%q,accelerator=%q,objective=%q} 1\n", f.domain, f.accelerator, f.violated)
		}
	}
	return b.String()
}

func measured(t *testing.T, text string) *Measured {
	t.Helper()
	m, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fleet returns a state with each kind of host: good ones, and one for each reason.
func fleet(t *testing.T) *State {
	old := slice("good", nil, "accc")
	old.Spec.Pool.Generation, old.Name = -1, "older"
	other := slice("good", nil, "accc")
	other.Spec.Driver = "gpu.example.com"
	s := &State{At: noon,
		Slices: []resourceapi.ResourceSlice{slice("good", nil, "accc", "lag"), old, other,
			slice("away", func(n *nodeslices.Node) { n.Away = "connection refused" }, "accc"),
			slice("left", nil, "accc"), slice("silent", nil, "accc"), slice("crowded", nil, "accc"), slice("slow", nil, "accc"),
			slice("oversold", func(n *nodeslices.Node) { n.Credits = 512 }, "accc"), slice("fifo", nil, "none")},
		Claims: []resourceapi.ResourceClaim{
			claim("web", "good", "soft0", 256, "256Mi", "web-0"), claim("batch", "good", "soft0", 768, "512Mi", "batch-0", "batch-1"),
			claim("starting", "good", "soft1", 128, "64Mi", "starting-0"),
			claim("crowd", "crowded", "soft0", 1024, "1Gi", "crowd-0"), claim("slow", "slow", "soft0", 512, "64Mi", "slow-0"),
			claim("quiet", "silent", "soft0", 256, "64Mi", "quiet-0"), claim("first", "oversold", "soft0", 512, "64Mi", "a"), claim("second", "oversold", "soft0", 256, "64Mi", "b"),
			claim("away", "away", "soft0", 100, "64Mi", "away-0"), {ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pending"}},
		},
		Hosts: []HostState{
			{Node: "good", Pod: "pegasus-1", Measured: measured(t, metrics("soft0=accc soft1=lag",
				figures{domain: "k8s-web", accelerator: "soft0", credits: 256, entitled: 0.25, share: 0.3, busy: 0.3, idle: 0.7, memory: 1 << 20},
				figures{domain: "k8s-batch", accelerator: "soft0", credits: 768, entitled: 0.75, share: 0.7, busy: 0.7, turn: 0.04, idle: 0.26, memory: 1 << 28}))},
			{Node: "away", Pod: "pegasus-2", Why: "driver pegasus-2 does not answer: 502"},
			{Node: "silent", Pod: "pegasus-3", Why: "driver pegasus-3 serves no metrics"},
			{Node: "crowded", Pod: "pegasus-4", Measured: measured(t, "pegasus_config_last_reload_successful 0\n"+metrics("soft0=accc",
				figures{domain: "k8s-crowd", accelerator: "soft0", credits: 1024, entitled: 0.8, share: 0.8, busy: 0.8, turn: 0.2},
				figures{domain: "laptop", accelerator: "soft0", credits: 256, entitled: 0.2, share: 0.2, busy: 0.2, turn: 0.8}))},
			{Node: "slow", Pod: "pegasus-5", Measured: measured(t, "pegasus_accelerator_memory_bytes{accelerator=\"soft0\"} 100\npegasus_accelerator_memory_used_bytes{accelerator=\"soft0\"} 99\n"+
				"pegasus_accelerator_memory_allocated_bytes{accelerator=\"soft0\"} 100\npegasus_accelerator_uncharged_seconds{accelerator=\"soft0\"} 0.5\n"+metrics("soft0=accc",
				figures{domain: "k8s-slow", accelerator: "soft0", credits: 512, entitled: 1, share: 0.5, busy: 0.4, turn: 0.6, violated: "wait_p99"}))},
			{Node: "oversold", Pod: "pegasus-6", Measured: measured(t, metrics("soft0=accc"))},
			{Node: "fifo", Pod: "pegasus-7", Measured: measured(t, metrics("soft0=none"))},
			{Node: "new", Pod: "pegasus-8", Why: "driver pegasus-8 is ContainerCreating"},
		}}
	return s
}

func TestView(t *testing.T) {
	f := View(fleet(t))
	golden.YAML(t, "fleet.yaml", f)
	var b strings.Builder
	if err := Write(&b, f); err != nil {
		t.Fatal(err)
	}
	golden.Text(t, "fleet.txt", b.String())
}

// A cluster without the driver is an empty view, with lists and not null in JSON.
func TestEmpty(t *testing.T) {
	var b strings.Builder
	f := View(&State{At: noon})
	if err := Write(&b, f); err != nil {
		t.Fatal(err)
	}
	if want := "0 accelerators on 0 hosts, 0 domains; credits: 0 of 0 sold, 0 free; memory: 0 B of 0 B sold, 0 B free\n\nshares are kept on 0 of 0 hosts\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	if f.Hosts == nil || f.Accelerators == nil || f.Domains == nil {
		t.Errorf("lists: %v", f)
	}
}

// Texts of a node do not reach the terminal as control characters.
func TestPlain(t *testing.T) {
	s := &State{At: noon, Hosts: []HostState{{Node: "n", Pod: "p", Why: "a\x1b[2Jb\nc\u202ed"}}}
	var b strings.Builder
	if err := Write(&b, View(s)); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "  a?[2Jb c?d\n") {
		t.Errorf("got %q", got)
	}
}

func TestReadMetrics(t *testing.T) {
	if _, err := Read(strings.NewReader("no { metrics")); err == nil {
		t.Error("text without metrics is read")
	}
	m := measured(t, "# TYPE pegasus_domain_engine_seconds_total counter\n"+
		"pegasus_domain_engine_seconds_total{domain=\"a\",accelerator=\"soft0\",class=\"compute\",namespace=\"x\"} 2\n"+
		"pegasus_domain_engine_seconds_total{domain=\"a\",accelerator=\"soft0\",class=\"copy\",namespace=\"x\"} 1\n")
	if d := m.domain("a"); d == nil || d.Engine != 3 || d.Timed || m.domain("b") != nil || m.accelerator("soft0") != nil || m.Refused {
		t.Errorf("got %+v", m)
	}
}
