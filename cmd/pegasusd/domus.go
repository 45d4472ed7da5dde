package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"pegasus/backend"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/hypervisor/xen"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/cpus"
	"pegasus/hypervisor/xen/domus"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/hypervisor/xen/trace"
	"pegasus/xenstore"
)

// xenHost is the access to the domUs of a daemon in Dom0 of a Xen host.
type xenHost struct {
	units   *domus.DomUs
	cpus    *cpus.CPUs
	keeper  *xen.Keeper
	readers *trace.SharedReaders // of Xen's trace
}

// xenCapabilities is the file in which the kernel reports whether this is Dom0; tests replace it.
var xenCapabilities = domus.CapabilitiesPath

// attachments returns the served domUs.
func attachments(c configs.Daemon) domus.Files {
	return domus.Files{Dir: c.Machines, Valid: configs.CheckName}
}

// openHypervisor opens the connection to Xen.
func openHypervisor() (*control.Xen, *privcmd.Hypercalls, error) {
	calls, err := privcmd.Open()
	if err != nil {
		return nil, nil, err
	}
	x, err := control.New(calls)
	if err != nil {
		calls.Close()
		return nil, nil, err
	}
	return x, calls, nil
}

// domainLives reports whether the hypervisor has a domain that isn't dying.
func domainLives(id uint16) (bool, error) {
	x, calls, err := openHypervisor()
	if err != nil {
		return false, err
	}
	defer calls.Close()
	all, err := x.Domains()
	return slices.ContainsFunc(all, func(d control.Domain) bool { return d.ID == id && d.Flags&control.DomainDying == 0 }), err
}

// hubsDir is the subdirectory of a runtime directory for the hubs of domUs.
const hubsDir = "hubs"

// openXen opens two connections to the hypervisor: one for listing domains, one for sampling the CPUs.
func openXen(c configs.Daemon, dir string, log *slog.Logger) (*xenHost, error) {
	var both [2]*control.Xen
	for i := range both {
		var err error
		if both[i], _, err = openHypervisor(); err != nil {
			return nil, err
		}
	}
	h := &xenHost{readers: &trace.SharedReaders{}, units: &domus.DomUs{
		Files: attachments(c),
		Dial:  xenstore.Local(), List: both[0].Domains, Log: log,
	}}
	h.cpus = cpus.NewCPUs(both[1], log)
	h.cpus.Trace(trace.Follow(trace.Now, func() (trace.Source, error) { return openTrace(h.readers, cpus.TraceEvents, log) }))
	if c.XenPrints {
		h.cpus.Print(both[1])
	}
	h.keeper = xen.NewKeeper(filepath.Join(dir, hubsDir), func(domain string, d xen.DomU, place string) []string {
		return []string{"/proc/self/exe", "hub", "--runtime-dir", dir, "--domain", domain,
			"--xen", fmt.Sprint(d.ID), "--memory", fmt.Sprint(d.Memory), "--place", place}
	}, log)
	h.units.Served = h.keeper.Served
	log.Info("this is Dom0 of a Xen host: domUs are served that are attached", "version", fmt.Sprintf("%d.%d", both[0].Major, both[0].Minor), "dir", c.Machines)
	if c.Regions != "" {
		log.Warn("regions is for machines under QEMU: it isn't looked at in Dom0", "dir", c.Regions)
	}
	return h, nil
}

// Watch implements hypervisor.Machines. The hub of a domU that is no longer served ends before its machine is
// reported: otherwise its programs would get another worker when theirs ends.
func (h *xenHost) Watch(ctx context.Context, notify func([]hypervisor.Machine)) {
	h.units.Watch(ctx, func(all []hypervisor.Machine) {
		h.keeper.Keep(all)
		notify(all)
	})
}

// keepHubs runs the hubs of domUs, beside the daemon.
func (h *xenHost) keepHubs(ctx context.Context, log *slog.Logger) {
	if err := h.keeper.Run(ctx); err != nil {
		log.Error("domUs can't be served", "err", err)
	}
}

// give sets the options by which a daemon uses the Xen host, in addition to Dom0's own processes. Temporarily
// changed weights are recorded in a directory.
func (h *xenHost) give(o *backend.Options, weights string) {
	o.Machines, o.DomUs, o.Tuner = h, true, h.cpus.Tuner(h.units.ID)
	o.CPUs, o.Raiser = cpus.NewBeside(h.cpus, o.CPUs), h.cpus.Raiser(weights)
	o.Agent = func(name string) (release string, came bool) { return "", h.units.Agent(name) }
}
