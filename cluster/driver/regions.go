package driver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"pegasus/cluster/claims"
	"pegasus/hypervisor/kvm"
)

// regions are the regions of claims for virtual machines: files of the daemon's directory of regions, for each of which
// the daemon runs a hub. A region exists from its claim's preparation on, whether or not its machine runs, and is never
// replaced: a machine may use it.
type regions struct {
	group int    // of QEMU
	dir   string // the daemon's, as last queried; empty: none
	known bool   // dir was queried
}

// placeRegion sets the path of a planned region, if there is one.
func (d *Driver) placeRegion(ctx context.Context, of *claims.Domain) error {
	if of.Region == nil {
		return nil
	}
	if err := d.findRegions(ctx); err != nil {
		return err
	}
	if d.regions.dir == "" {
		return fmt.Errorf("capacity %s: the daemon has no directory of regions; set regions under [daemon] of its configuration, such as \"/dev/shm/pegasus\"", claims.Shared)
	}
	of.Region.Path = filepath.Join(d.regions.dir, of.Name())
	return nil
}

// findRegions queries the daemon's directory of regions.
func (d *Driver) findRegions(ctx context.Context) error {
	dir, err := d.daemon.regions(ctx)
	if err == nil {
		d.regions.dir, d.regions.known = dir, true
	}
	return err
}

// make makes the region of a claim, if the claim has one and the region is missing. All of its memory is allocated
// then, so that no machine is killed when the host has none left.
func (r *regions) make(of *claims.Domain) error {
	if of.Region == nil {
		return nil
	}
	return kvm.MakeContainerRegion(of.Region.Path, of.Region.Bytes, r.group)
}

// remove removes the region of a claim. A machine that still runs keeps the memory until it ends, without accelerator.
func (r *regions) remove(of *claims.Domain) error {
	if of.Region == nil {
		return nil
	}
	return kvm.RemoveContainerRegion(of.Region.Path)
}

// sweepRegions removes the regions of claims without a record, in the daemon's directory as last queried.
func (d *Driver) sweepRegions(ctx context.Context, recorded map[string]bool) error {
	if !d.regions.known {
		if err := d.findRegions(ctx); err != nil {
			return err
		}
	}
	if d.regions.dir == "" {
		return nil
	}
	all, err := kvm.ContainerRegions(d.regions.dir)
	errs := []error{err}
	for _, region := range all {
		if name := filepath.Base(region); strings.HasPrefix(name, claims.Name("")) && !recorded[name] {
			d.log.Warn("removing region without a record of its claim", "domain", name)
			errs = append(errs, kvm.RemoveContainerRegion(region))
		}
	}
	return errors.Join(errs...)
}
