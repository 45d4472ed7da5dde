package driver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"pegasus/cluster/claims"
	node "pegasus/cluster/slices"
	"pegasus/cluster/units"
)

// Devices is a driver as the kubelet calls it by the device plugin API. A unit is a device, and the units of a container
// are a domain. The domain is made when the first container of these units starts, because a pod's containers are
// allocated before any of them starts, and a container may get the units of an init container that has yet to run. It
// ends when its units are allocated anew, when a container of other units starts with one of them, or when the kubelet
// lists none of its units any more and it has no processes.
//
// The lock of the driver guards records and absent.
type Devices struct {
	deviceplugin.UnimplementedDevicePluginServer
	driver  *Driver
	credits int64 // of a unit
	each    int64 // credits that each accelerator without max_credits sells
	kubelet string
	pod     string // namespace and name of the driver's own

	absent map[types.UID]absence
	left   []string

	mu      sync.Mutex
	divided []units.Accelerator
	away    string        // why all units are unhealthy; empty: they aren't
	changed chan struct{} // closed when divided or away change
}

// NewDevices returns the device plugin of a node with its kubelet's directory. Each unit has some credits, and an
// accelerator without max_credits sells each. Pod is the plugin's own, as namespace/name: a list of the kubelet's without
// it is of a kubelet that has not read the pods of its node yet.
func NewDevices(d *Driver, credits, each int64, kubelet, pod string) *Devices {
	return &Devices{driver: d, credits: credits, each: each, kubelet: kubelet, pod: pod, absent: map[types.UID]absence{}, changed: make(chan struct{})}
}

// offer implements Interface: the kubelet gets the units.
func (s *Devices) offer(_ context.Context, h host, away string, _ time.Time) error {
	divided, left := units.Divide(h.accelerators, s.credits, node.Node{Credits: s.each, Declared: h.declared})
	s.driver.noteLeft(&s.left, left)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.divided == nil || away != s.away || !reflect.DeepEqual(divided, s.divided) {
		s.divided, s.away = append([]units.Accelerator{}, divided...), away
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return nil
}

// offered returns the accelerators, nil until the daemon has answered, and a channel that is closed at the next change.
func (s *Devices) offered() (divided []units.Accelerator, away string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.divided, s.away, s.changed
}

// GetDevicePluginOptions implements deviceplugin.DevicePluginServer.
func (s *Devices) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch implements deviceplugin.DevicePluginServer.
func (s *Devices) ListAndWatch(_ *deviceplugin.Empty, to grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	for {
		divided, away, changed := s.offered()
		health := deviceplugin.Healthy
		if away != "" {
			health = deviceplugin.Unhealthy
		}
		list := new(deviceplugin.ListAndWatchResponse)
		for i := range divided {
			for _, id := range divided[i].IDs() {
				list.Devices = append(list.Devices, &deviceplugin.Device{ID: id, Health: health})
			}
		}
		if err := to.Send(list); err != nil {
			return err
		}
		s.driver.log.Info("offering devices", "devices", len(list.Devices), "health", health)
		select {
		case <-to.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// GetPreferredAllocation implements deviceplugin.DevicePluginServer.
func (s *Devices) GetPreferredAllocation(_ context.Context, q *deviceplugin.PreferredAllocationRequest) (*deviceplugin.PreferredAllocationResponse, error) {
	r := new(deviceplugin.PreferredAllocationResponse)
	for _, c := range q.GetContainerRequests() {
		ids, err := units.Prefer(c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
		if err != nil {
			return nil, err
		}
		r.ContainerResponses = append(r.ContainerResponses, &deviceplugin.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return r, nil
}

// Allocate implements deviceplugin.DevicePluginServer. Domains of which it allocates units are over: the kubelet allocates
// the units of a pod before it starts the pod's first container, and those of another when all of its containers have
// ended.
func (s *Devices) Allocate(_ context.Context, q *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	r := new(deviceplugin.AllocateResponse)
	for _, c := range q.GetContainerRequests() {
		of, err := s.domain(c.GetDevicesIds())
		if err == nil {
			err = s.driver.supersede(of)
		}
		if err != nil {
			s.driver.log.Error("allocate devices", "err", err)
			return nil, errors.New(oneLine(err))
		}
		r.ContainerResponses = append(r.ContainerResponses, s.edits(of))
	}
	return r, nil
}

func (s *Devices) domain(ids []string) (*claims.Domain, error) {
	divided, _, _ := s.offered()
	return units.Domain(ids, divided, s.driver.sockets)
}

// edits returns the changes to a container of a domain as mounts and variables: not each runtime of kubelets with device
// plugins has CDI.
func (s *Devices) edits(of *claims.Domain) *deviceplugin.ContainerAllocateResponse {
	edits := s.driver.host.Edits(of)
	r := &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{}}
	for _, variable := range edits.Env {
		name, value, _ := strings.Cut(variable, "=")
		r.Envs[name] = value
	}
	for _, m := range edits.Mounts {
		r.Mounts = append(r.Mounts, &deviceplugin.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, ReadOnly: slices.Contains(m.Options, "ro")})
	}
	return r
}

// PreStartContainer implements deviceplugin.DevicePluginServer: it makes the domain that the container enters.
func (s *Devices) PreStartContainer(ctx context.Context, q *deviceplugin.PreStartContainerRequest) (*deviceplugin.PreStartContainerResponse, error) {
	of, err := s.domain(q.GetDevicesIds())
	if err == nil {
		err = s.enter(ctx, of)
	}
	if err != nil {
		s.driver.log.Error("make domain of devices", "err", err)
		return nil, errors.New(oneLine(err))
	}
	s.driver.log.Info("made domain of devices", "units", of.String(), "domain", of.Name())
	return new(deviceplugin.PreStartContainerResponse), nil
}

// overlapping returns the records of domains that have one of a domain's units. A record that can't be read is left to
// Reconcile, which reports it.
func (d *Driver) overlapping(of *claims.Domain) (found []*claims.Domain) {
	all, _ := d.records.All()
	return slices.DeleteFunc(all, func(other *claims.Domain) bool {
		return !slices.ContainsFunc(other.Units, func(id string) bool { return slices.Contains(of.Units, id) })
	})
}

// supersede notes that the units of a domain are allocated anew. The domains that had them end when the next container
// with one of the units starts, or at the next Reconcile: the daemon may be away now.
func (d *Driver) supersede(of *claims.Domain) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.overlapping(of) {
		if other.Over {
			continue
		}
		other.Over = true
		if err := d.records.Write(other); err != nil {
			return err
		}
	}
	return nil
}

// enter makes a domain for a container that starts, unless an earlier start of it has, and ends the other domains that
// had its units.
func (s *Devices) enter(ctx context.Context, of *claims.Domain) error {
	d := s.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh := true
	for _, other := range d.overlapping(of) {
		if other.UID == of.UID && !other.Over {
			of, fresh = other, false
			continue
		}
		if err := d.unmake(ctx, other.UID); err != nil {
			return fmt.Errorf("end domain %s of an earlier pod: %w", other.Name(), err)
		}
	}
	delete(s.absent, of.UID)
	if fresh {
		pods, _, err := s.inUse(ctx)
		if err != nil {
			d.log.Warn("find the pod of a container", "units", of.String(), "err", err)
		}
		of.Init = true
		pods.note(of)
		if err := d.records.Write(of); err != nil {
			return err
		}
	}
	return d.make(ctx, of)
}

// Reconcile implements Interface: it ends the domains whose units no pod has.
func (s *Devices) Reconcile(ctx context.Context) error {
	return errors.Join(s.collect(ctx, time.Now()), s.driver.Reconcile(ctx))
}

// absence is a time without interruption in which the kubelet has listed none of the units of a domain that has no
// processes.
type absence struct {
	since time.Time
	lists int
}

const (
	// absentLists is the number of lists, one after the other, that must lack the units of a domain before the domain
	// ends. A kubelet that has started reads the pods of its node one by one.
	absentLists = 3
	// initIdle is the time for which the domain of an init container is kept without a process: no list has its units.
	initIdle = 10 * time.Minute
)

// ends reports whether an absence ends a domain.
func (a absence) ends(of *claims.Domain, now time.Time) bool {
	if of.Init {
		return now.Sub(a.since) >= initIdle
	}
	return a.lists >= absentLists
}

// collect ends domains that are over, and those that have been absent.
//
// It holds the lock while it calls the kubelet, so that the list is later than the records: the units of a container are
// in the list before the container starts.
func (s *Devices) collect(ctx context.Context, now time.Time) error {
	d := s.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.records.All()
	if len(all) == 0 {
		clear(s.absent)
		return err
	}
	errs := []error{err}
	pods, complete, err := s.inUse(ctx)
	errs = append(errs, err)
	for _, of := range all {
		if !of.Over {
			idle, err := s.idle(ctx, of, pods, complete)
			errs = append(errs, err)
			if !idle {
				delete(s.absent, of.UID)
				continue
			}
			a := s.absent[of.UID]
			if a.lists++; a.lists == 1 {
				a.since = now
			}
			s.absent[of.UID] = a
			if !a.ends(of, now) {
				continue
			}
		}
		if err := d.unmake(ctx, of.UID); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(s.absent, of.UID)
		d.log.Info("removed domain of devices", "units", of.String(), "domain", of.Name())
	}
	return errors.Join(errs...)
}

// idle reports whether a domain has neither a listed unit nor a process. A pod that an earlier list lacked is recorded.
func (s *Devices) idle(ctx context.Context, of *claims.Domain, pods pods, complete bool) (bool, error) {
	unlisted := of.Init
	switch {
	case pods.note(of) && unlisted:
		return false, s.driver.records.Write(of)
	case pods.note(of) || !complete:
		return false, nil
	}
	n, err := s.driver.daemon.processes(ctx, of.Name())
	return n == 0 && err == nil, err
}

// pod is a pod that has units.
type pod struct{ namespace, name string }

// pods are pods by the units that they have.
type pods map[string]pod

// note sets the pod that has units of a domain, if there is one, and reports whether there is.
func (p pods) note(of *claims.Domain) bool {
	for _, id := range of.Units {
		if has, listed := p[id]; listed {
			of.Namespace, of.Pods, of.Init = has.namespace, []string{has.name}, false
			return true
		}
	}
	return false
}
