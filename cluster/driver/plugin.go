package driver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"pegasus/cluster/claims"
)

// Plugin is a driver as the kubelet calls it.
type Plugin struct {
	*Driver
	node string
	log  *slog.Logger

	mu     sync.Mutex
	health map[string]string // by device: why it does not work; empty: it does
	since  time.Time         // of health
}

// NewPlugin returns the plugin of a node.
func NewPlugin(d *Driver, node string) *Plugin { return &Plugin{Driver: d, node: node, log: d.log} }

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, all []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range all {
		device, err := p.Prepare(ctx, c)
		if err != nil {
			p.log.Error("prepare claim", "claim", c.Namespace+"/"+c.Name, "err", err)
			results[c.UID] = kubeletplugin.PrepareResult{Err: errors.New(oneLine(err))}
			continue
		}
		results[c.UID] = kubeletplugin.PrepareResult{Devices: []kubeletplugin.Device{device}}
	}
	return results, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (p *Plugin) UnprepareResourceClaims(ctx context.Context, all []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, c := range all {
		err := p.Unprepare(ctx, c.UID)
		if err != nil {
			p.log.Error("unprepare claim", "claim", c.String(), "err", err)
		}
		results[c.UID] = err
	}
	return results, nil
}

// HandleError implements kubeletplugin.DRAPlugin.
func (p *Plugin) HandleError(_ context.Context, err error, msg string) {
	p.log.Error(msg, "err", err)
}

// report sets the health of the node's devices.
func (p *Plugin) report(devices []resourceapi.Device, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health, p.since = map[string]string{}, time.Now()
	for _, d := range devices {
		p.health[d.Name] = why
	}
}

// healthInterval is below the time after which the kubelet takes a device's health as unknown.
const healthInterval = 10 * time.Second

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (p *Plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case reports <- p.healthReport():
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *Plugin) healthReport() (r kubeletplugin.DeviceHealthReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for device, why := range p.health {
		h := kubeletplugin.DeviceHealth{PoolName: p.node, DeviceName: device, Health: kubeletplugin.HealthStatusHealthy, Message: why, LastUpdated: p.since}
		if why != "" {
			h.Health = kubeletplugin.HealthStatusUnhealthy
		}
		r.Devices = append(r.Devices, h)
	}
	return r
}

// Deleted returns whether a claim has been deleted or replaced by another of its name.
func Deleted(ctx context.Context, client kubernetes.Interface) func(*claims.Domain) (bool, error) {
	return func(of *claims.Domain) (bool, error) {
		c, err := client.ResourceV1().ResourceClaims(of.Namespace).Get(ctx, of.Claim, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && c.UID != of.UID, err
	}
}
