// Package driver prepares claims on a node: a domain of the node's daemon and a CDI file for each claim, from its first
// pod to its last, and the region of a claim for a virtual machine. For kubelets without claims it makes the domains of
// the devices of a device plugin (Devices).
//
// A claim's record is written first and removed last. So an interrupted step is completed by the next call, or by
// Reconcile, which makes domains and files what the records require.
//
// Callers: pegasus-dra.
//
// Trust boundary: the kubelet and the API server are trusted; the content of claims is checked by package claims.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"pegasus/cluster/cdi"
	"pegasus/cluster/claims"
	"pegasus/cluster/records"
)

// Config has the places of a node.
type Config struct {
	RuntimeDir string // the daemon's
	Libraries  string // the directory of the CUDA libraries
	CDI        string // the directory of CDI files
	Records    string // the directory of records
	Hook       string // the hook of KubeVirt, on the host; empty: none
	Group      uint32 // of the sockets of domains; 0: every user of a container may connect
	QEMU       uint32 // group of QEMU in the containers of virtual machines
	Log        *slog.Logger
}

// Driver prepares and unprepares claims. It is safe for concurrent use; calls and Reconcile follow each other.
type Driver struct {
	daemon  daemon
	host    cdi.Host
	files   cdi.Dir
	records records.Dir
	sockets map[string]string // settings of each domain's socket
	regions regions
	log     *slog.Logger

	mu sync.Mutex // records, domains, regions and files belong together
}

// New returns a driver. It touches nothing.
func New(c Config) *Driver {
	d := &Driver{
		daemon:  daemon{c.RuntimeDir},
		host:    cdi.Host{Domains: filepath.Join(c.RuntimeDir, "domains"), Libraries: c.Libraries, Hook: c.Hook, Group: c.Group},
		files:   cdi.Dir(c.CDI),
		records: records.Dir(c.Records),
		sockets: map[string]string{"socket_mode": "0666"},
		regions: regions{group: int(c.QEMU)},
		log:     c.Log,
	}
	if c.Group != 0 {
		d.sockets = map[string]string{"socket_mode": "0660", "socket_group": strconv.FormatUint(uint64(c.Group), 10)}
	}
	return d
}

// Prepare makes the domain of an allocated claim and its CDI file. It can be repeated, and returns the same device.
func (d *Driver) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (kubeletplugin.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of, err := d.record(ctx, claim)
	if err != nil {
		return kubeletplugin.Device{}, err
	}
	if err := d.make(ctx, of); err != nil {
		return kubeletplugin.Device{}, fmt.Errorf("claim %s: %w", of, err)
	}
	d.log.Info("prepared claim", "claim", of.String(), "domain", of.Name(), "accelerator", of.Device)
	return kubeletplugin.Device{
		Requests: []string{of.Request}, PoolName: of.Pool, DeviceName: of.Device, ShareID: of.Share,
		CDIDeviceIDs: []string{cdi.DeviceID(of.UID)},
	}, nil
}

// record returns the record of a claim's allocation, and writes it if there is none. The record of a prepared claim
// stays as it is when a later release would translate the claim differently. A record of an earlier allocation, which
// the kubelet has not unprepared, is replaced with its domain.
func (d *Driver) record(ctx context.Context, claim *resourceapi.ResourceClaim) (*claims.Domain, error) {
	of, err := d.records.Read(claim.UID)
	if err != nil {
		return nil, err
	}
	plan, err := claims.Plan(claim, d.sockets)
	if one := claims.OneMachine(claim, of != nil && of.Region != nil || plan != nil && plan.Region != nil); one != nil {
		return nil, one
	}
	switch {
	case of != nil && err != nil:
		return of, nil
	case of != nil && of.SameAllocation(plan):
		if slices.Equal(of.Pods, plan.Pods) {
			return of, nil
		}
		of.Pods = plan.Pods
		return of, d.records.Write(of)
	case err != nil:
		return nil, err
	case of != nil:
		d.log.Warn("claim is allocated anew", "claim", of.String(), "domain", of.Name())
		if err := d.unmake(ctx, claim.UID); err != nil {
			return nil, err
		}
	}
	if err := d.placeRegion(ctx, plan); err != nil {
		return nil, fmt.Errorf("claim %s: %w", plan, err)
	}
	return plan, d.records.Write(plan)
}

// make makes the domain, the region and the file of a record, as far as they are missing.
func (d *Driver) make(ctx context.Context, of *claims.Domain) error {
	if err := d.daemon.create(ctx, of); err != nil {
		return err
	}
	if err := d.regions.make(of); err != nil { // after the domain, which the region's hub would create with other settings
		return err
	}
	_, err := d.writeFile(of)
	return err
}

// writeFile writes the CDI file of a record, unless it is as it has to be, and reports whether it wrote. The containers
// of units get the same from the kubelet.
func (d *Driver) writeFile(of *claims.Domain) (bool, error) {
	if len(of.Units) > 0 {
		return false, nil
	}
	return d.files.Write(of.UID, d.host.Spec(of))
}

// Unprepare removes the domain and the files of a claim. It can be repeated.
func (d *Driver) Unprepare(ctx context.Context, claim types.UID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.unmake(ctx, claim); err != nil {
		return err
	}
	d.log.Info("unprepared claim", "domain", claims.Name(claim))
	return nil
}

func (d *Driver) unmake(ctx context.Context, claim types.UID) error {
	if err := d.files.Remove(claim); err != nil { // first, so that no new container enters the domain
		return err
	}
	of, err := d.records.Read(claim)
	if of == nil && err == nil { // so there is no domain, and the daemon may be away
		return nil
	}
	if of != nil { // of a record that can't be read, Reconcile removes it
		if err := d.regions.remove(of); err != nil { // before the domain, which the region's hub holds
			return err
		}
	}
	if err := d.daemon.remove(ctx, claims.Name(claim)); err != nil {
		return err
	}
	return d.records.Remove(claim)
}

// Reconcile makes missing domains and files of prepared claims, such as after the node's restart, and removes those of
// claims without a record. An error does not end it: it returns all errors together.
func (d *Driver) Reconcile(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, damaged := d.records.All()
	held, err := d.daemon.held(ctx)
	if err != nil {
		return errors.Join(damaged, err)
	}
	errs := []error{damaged}
	recorded := map[string]bool{}
	for _, of := range all {
		recorded[of.Name()] = true
		errs = append(errs, d.restore(ctx, of, slices.Contains(held, of.Name())))
	}
	if damaged != nil { // the domains of unreadable records look abandoned
		return errors.Join(errs...)
	}
	for _, name := range held {
		if !recorded[name] {
			d.log.Warn("removing domain without a record of its claim", "domain", name)
			errs = append(errs, d.daemon.remove(ctx, name))
		}
	}
	errs = append(errs, d.sweepRegions(ctx, recorded))
	files, err := d.files.Claims()
	errs = append(errs, err)
	for _, claim := range files {
		if !recorded[claims.Name(claim)] {
			d.log.Warn("removing CDI file without a record of its claim", "domain", claims.Name(claim))
			errs = append(errs, d.files.Remove(claim))
		}
	}
	return errors.Join(errs...)
}

// restore makes the missing domain, region and file of a prepared claim.
func (d *Driver) restore(ctx context.Context, of *claims.Domain, held bool) error {
	if !held {
		if err := d.daemon.create(ctx, of); err != nil {
			return fmt.Errorf("claim %s: %w", of, err)
		}
		d.log.Warn("made missing domain", "claim", of.String(), "domain", of.Name())
	}
	if err := d.regions.make(of); err != nil {
		return fmt.Errorf("claim %s: %w", of, err)
	}
	wrote, err := d.writeFile(of)
	if wrote {
		d.log.Info("wrote CDI file", "claim", of.String(), "domain", of.Name())
	}
	return err
}

// Forget unprepares the claims for which gone returns true: those that were deleted while neither driver nor kubelet
// ran.
func (d *Driver) Forget(ctx context.Context, gone func(*claims.Domain) (bool, error)) error {
	all, err := d.records.All()
	errs := []error{err}
	for _, of := range all {
		is, err := gone(of)
		if is && err == nil {
			d.log.Warn("claim is deleted", "claim", of.String(), "domain", of.Name())
			err = d.Unprepare(ctx, of.UID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// oneLine returns an error's text for an event.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
