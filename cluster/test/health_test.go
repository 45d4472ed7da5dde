package test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

// The kubelet receives the health of the node's devices.
func TestHealth(t *testing.T) {
	n := newNode(t, oneAccelerator)
	n.slices() // the driver has seen the daemon
	n.register()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	service := health.NewDRAResourceHealthClient(n.dial(n.path("kubelet", "plugins", "pegasus.dev", "dra.sock")))
	reports, err := service.NodeWatchResources(ctx, &health.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	r, err := reports.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Devices) != 1 || r.Devices[0].GetDevice().GetDeviceName() != "soft0" || r.Devices[0].GetDevice().GetPoolName() != nodeName || r.Devices[0].GetHealth() != health.HealthStatus_HEALTHY {
		t.Errorf("health: %v", r)
	}
}
