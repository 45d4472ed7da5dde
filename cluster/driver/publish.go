package driver

import (
	"context"
	"reflect"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"pegasus/cluster/slices"
)

// Publisher writes the ResourceSlices of the node; kubeletplugin.Helper is one.
type Publisher interface {
	PublishResources(context.Context, resourceslice.DriverResources) error
}

// awayAfter is how long the daemon may be away until its devices are tainted; it restarts in less.
const awayAfter = 15 * time.Second

// Watcher keeps the node's slices and the prepared claims as they have to be.
type Watcher struct {
	Plugin  *Plugin
	To      Publisher
	Credits int64         // that each accelerator without max_credits sells
	Shared  int64         // bytes of virtual machines' regions that each accelerator sells
	Every   time.Duration // between two looks at the daemon

	host  host      // the last that the daemon reported
	away  time.Time // of the first failure since the daemon answered; zero: it does
	has   []resourceapi.Device
	left  []string
	noted string // text of the latest error
}

// Run reconciles and publishes until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	for tick := time.NewTicker(w.Every); ; {
		w.note(w.step(ctx, time.Now()))
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
	}
}

// note logs an error, unless it is the one before.
func (w *Watcher) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == w.noted:
	case err != nil:
		w.Plugin.log.Warn("reconcile", "err", err)
	default:
		w.Plugin.log.Info("reconciled")
	}
	w.noted = text
}

// step looks at the daemon once.
func (w *Watcher) step(ctx context.Context, now time.Time) error {
	host, err := w.Plugin.daemon.describe(ctx)
	if err != nil {
		return w.missed(ctx, now, err)
	}
	w.host, w.away = host, time.Time{}
	if err := w.publish(ctx, ""); err != nil {
		return err
	}
	return w.Plugin.Reconcile(ctx)
}

// missed taints the devices when the daemon has been away for long.
func (w *Watcher) missed(ctx context.Context, now time.Time, cause error) error {
	if w.away.IsZero() {
		w.away = now
	}
	if now.Sub(w.away) >= awayAfter && len(w.host.accelerators) > 0 {
		if err := w.publish(ctx, oneLine(cause)); err != nil {
			return err
		}
	}
	return cause
}

// publish writes the slices if they have changed.
func (w *Watcher) publish(ctx context.Context, away string) error {
	devices, left := slices.Devices(w.host.accelerators, slices.Node{
		Release: w.host.release, CUDA: cudaVersion, Credits: w.Credits, Declared: w.host.declared, Shared: w.Shared,
		Away: away, AwaySince: metav1.NewTime(w.away.Truncate(time.Second)),
	})
	w.Plugin.report(devices, away)
	if !reflect.DeepEqual(left, w.left) {
		w.Plugin.log.Warn("accelerators left out", "why", strings.Join(left, "; "))
		w.left = left
	}
	if reflect.DeepEqual(devices, w.has) {
		return nil
	}
	err := w.To.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		w.Plugin.node: {Slices: []resourceslice.Slice{{Devices: devices}}}}})
	if err == nil {
		w.has = devices
		w.Plugin.log.Info("publishing devices", "devices", len(devices))
	}
	return err
}

// cudaVersion is the version that the guest's library reports by default.
const cudaVersion = "12.4"
