package slices

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pegasus/backend/control"
	"pegasus/cluster/claims"
	"pegasus/cluster/internal/golden"
)

var node = Node{Release: "c7959d1e", CUDA: "12.4", Credits: 1024}

func TestDevices(t *testing.T) {
	all := []control.Accelerator{
		{Name: "soft0", Type: "soft", Device: "Pegasus software accelerator", Policy: "accc", Mode: "production", Memory: 2 << 30, MaxDomains: 64},
		{Name: "gpu0", Type: "nvidia", Device: "NVIDIA H200", UUID: "GPU-6f2b1c3d-0a1b-2c3d-4e5f-60718293a4b5", Policy: "drr", Mode: "production", Memory: 143771 << 20, MaxDomains: 16},
	}
	devices, left := Devices(all, node)
	if len(left) > 0 {
		t.Errorf("left out: %q", left)
	}
	golden.YAML(t, "devices.yaml", devices)
	node := node
	node.Away, node.AwaySince = "connection refused", metav1.NewTime(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	devices, _ = Devices(all[:1], node)
	golden.YAML(t, "away.yaml", devices)
}

// A node for virtual machines sells memory for their regions, and none by default.
func TestRegions(t *testing.T) {
	node := node
	node.Shared = 4<<30 + 1
	devices, _ := Devices([]control.Accelerator{{Name: "soft0", Memory: 1 << 30, MaxDomains: 2}}, node)
	golden.YAML(t, "regions.yaml", devices[0].Capacity[claims.Shared])
}

// A small accelerator's defaults are no more than it has.
func TestSmall(t *testing.T) {
	devices, _ := Devices([]control.Accelerator{{Name: "tiny", Memory: 33 << 20, MaxDomains: 2}}, Node{CUDA: "13", Credits: 100})
	golden.YAML(t, "small.yaml", devices)
}

// With max_credits, an accelerator sells these, less the credits of the host's own domains; a claim of one domain has at
// most 65535.
func TestMaxCredits(t *testing.T) {
	node := node
	node.Declared = map[string]int64{"some": 512, "all": 256}
	all := []control.Accelerator{{Name: "more", MaxCredits: 4096}, {Name: "some", MaxCredits: 1024}, {Name: "all", MaxCredits: 256}, {Name: "huge", MaxCredits: 200_000}}
	for i := range all {
		all[i].Memory, all[i].MaxDomains = 1<<30, 8
	}
	devices, left := Devices(all, node)
	if len(devices) != 3 || len(left) != 1 || left[0] != "all: the domains of the configuration that are tied to it have 256 credits, all of its max_credits = 256; raise it" {
		t.Fatalf("%d devices, left out: %q", len(devices), left)
	}
	for i, want := range [][2]int64{{4096, 4096}, {512, 512}, {200_000, 65535}} {
		c := devices[i].Capacity["credits"]
		if c.Value.Value() != want[0] || c.RequestPolicy.ValidRange.Max.Value() != want[1] || c.RequestPolicy.Default.Value() != 256 {
			t.Errorf("%s: %v", devices[i].Name, c)
		}
	}
}

func TestNames(t *testing.T) {
	_, left := Devices([]control.Accelerator{{Name: "GPU_0"}, {Name: "gpu-0"}, {Name: "-gpu"}, {Name: strings.Repeat("g", 64)}}, node)
	if len(left) != 3 || !strings.HasPrefix(left[0], "GPU_0: ") {
		t.Errorf("left out: %q", left)
	}
}
