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

func TestNames(t *testing.T) {
	_, left := Devices([]control.Accelerator{{Name: "GPU_0"}, {Name: "gpu-0"}, {Name: "-gpu"}, {Name: strings.Repeat("g", 64)}}, node)
	if len(left) != 3 || !strings.HasPrefix(left[0], "GPU_0: ") {
		t.Errorf("left out: %q", left)
	}
}
