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

// awayAfter is how long the daemon may be away until its devices are tainted; it restarts in less.
const awayAfter = 15 * time.Second

// Interface is one of the two interfaces by which the kubelet uses a driver: Dynamic Resource Allocation, or the device
// plugin API.
type Interface interface {
	// offer gives the scheduler the accelerators of the daemon as last described. Away is the reason for which the daemon
	// has not answered since; empty: it answers.
	offer(ctx context.Context, h host, away string, since time.Time) error
	// Reconcile makes domains and files as the kubelet requires them.
	Reconcile(ctx context.Context) error
}

// Watcher keeps the offered accelerators and the domains as they have to be.
type Watcher struct {
	Driver *Driver
	To     Interface
	Every  time.Duration // between two looks at the daemon

	host  host      // the last that the daemon reported
	away  time.Time // of the first failure since the daemon answered; zero: it does
	noted string    // text of the latest error
}

// Run reconciles and offers until ctx ends.
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
		w.Driver.log.Warn("reconcile", "err", err)
	default:
		w.Driver.log.Info("reconciled")
	}
	w.noted = text
}

// step looks at the daemon once.
func (w *Watcher) step(ctx context.Context, now time.Time) error {
	host, err := w.Driver.daemon.describe(ctx)
	if err != nil {
		return w.missed(ctx, now, err)
	}
	w.host, w.away = host, time.Time{}
	if err := w.To.offer(ctx, host, "", w.away); err != nil {
		return err
	}
	return w.To.Reconcile(ctx)
}

// missed reports the devices' daemon as away when it has been for long.
func (w *Watcher) missed(ctx context.Context, now time.Time, cause error) error {
	if w.away.IsZero() {
		w.away = now
	}
	if now.Sub(w.away) >= awayAfter && len(w.host.accelerators) > 0 {
		if err := w.To.offer(ctx, w.host, oneLine(cause), w.away); err != nil {
			return err
		}
	}
	return cause
}

// Publisher writes the ResourceSlices of the node; kubeletplugin.Helper is one.
type Publisher interface {
	PublishResources(context.Context, resourceslice.DriverResources) error
}

// Slices offers the accelerators as devices of ResourceSlices.
type Slices struct {
	*Plugin
	To      Publisher
	Credits int64 // that each accelerator without max_credits sells
	Shared  int64 // bytes of virtual machines' regions that each accelerator sells

	has  []resourceapi.Device
	left []string
}

// offer writes the slices if they have changed. Devices whose daemon is away get a taint.
func (s *Slices) offer(ctx context.Context, h host, away string, since time.Time) error {
	devices, left := slices.Devices(h.accelerators, slices.Node{
		Release: h.release, CUDA: cudaVersion, Credits: s.Credits, Declared: h.declared, Shared: s.Shared,
		Away: away, AwaySince: metav1.NewTime(since.Truncate(time.Second)),
	})
	s.report(devices, away)
	s.noteLeft(&s.left, left)
	if reflect.DeepEqual(devices, s.has) {
		return nil
	}
	err := s.To.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		s.node: {Slices: []resourceslice.Slice{{Devices: devices}}}}})
	if err == nil {
		s.has = devices
		s.log.Info("publishing devices", "devices", len(devices))
	}
	return err
}

// noteLeft logs the accelerators that are not offered, unless they are those of before.
func (d *Driver) noteLeft(before *[]string, left []string) {
	if !reflect.DeepEqual(left, *before) {
		d.log.Warn("accelerators left out", "why", strings.Join(left, "; "))
		*before = left
	}
}

// cudaVersion is the version that the guest's library reports by default.
const cudaVersion = "12.4"
