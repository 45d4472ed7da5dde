package driver

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"pegasus/backend/control"
	"pegasus/cluster/slices"
)

// published are the slices that a watcher has written.
type published []resourceslice.DriverResources

func (p *published) PublishResources(_ context.Context, r resourceslice.DriverResources) error {
	*p = append(*p, r)
	return nil
}

// Devices get a taint when their daemon has been away for long, once, and their health follows at once.
func TestAway(t *testing.T) {
	var to published
	plugin := NewPlugin(New(Config{RuntimeDir: t.TempDir(), CDI: t.TempDir(), Records: t.TempDir(), Log: slog.New(slog.DiscardHandler)}), "node1")
	offer := &Slices{Plugin: plugin, To: &to, Credits: 1024}
	w := Watcher{Driver: plugin.Driver, To: offer}
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	if err := w.step(t.Context(), start); err == nil || len(to) > 0 {
		t.Fatalf("before the daemon has answered: %v, %v", err, to)
	}
	w.host.accelerators, w.away = []control.Accelerator{{Name: "soft0", Memory: 1 << 30, MaxDomains: 8}}, time.Time{} // it has answered
	if err := offer.offer(t.Context(), w.host, "", w.away); err != nil || len(to) != 1 {
		t.Fatal(err, to)
	}
	for after := time.Duration(0); after < time.Minute; after += time.Second {
		w.step(t.Context(), start.Add(after))
		want := 1
		if after >= awayAfter {
			want = 2
		}
		if len(to) != want {
			t.Fatalf("after %v: %d slices were written, want %d", after, len(to), want)
		}
	}
	taints := to[1].Pools["node1"].Slices[0].Devices[0].Taints
	if len(taints) != 1 || taints[0].Key != slices.AwayTaint || !taints[0].TimeAdded.Time.Equal(start) {
		t.Errorf("taints: %v", taints)
	}
	if h := plugin.healthReport().Devices; len(h) != 1 || h[0].Health != kubeletplugin.HealthStatusUnhealthy || h[0].Message == "" {
		t.Errorf("health: %v", h)
	}
	w.away = time.Time{}
	if err := offer.offer(t.Context(), w.host, "", w.away); err != nil || len(to) != 3 || len(to[2].Pools["node1"].Slices[0].Devices[0].Taints) != 0 {
		t.Errorf("when the daemon is back: %v, %v", err, to)
	}
	if h := plugin.healthReport().Devices; len(h) != 1 || h[0].Health != kubeletplugin.HealthStatusHealthy {
		t.Errorf("health: %v", h)
	}
}
