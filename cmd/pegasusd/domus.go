package main

import (
	"context"
	"fmt"
	"log/slog"

	"pegasus/backend"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/domus"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/xenstore"
)

// xenHost is what a daemon in Dom0 of a Xen host knows of its domUs.
type xenHost struct {
	units *domus.DomUs
	tuner *domus.Tuner
	// served is told of all attached domUs before anybody else is.
	served func([]hypervisor.Machine)
}

// openXen finds out how to talk to the hypervisor: for whoever lists domains, and for whoever sets
// their weights.
func openXen(c configs.Daemon, log *slog.Logger) (*xenHost, error) {
	var both [2]*control.Xen
	for i := range both {
		calls, err := privcmd.Open()
		if err != nil {
			return nil, err
		}
		if both[i], err = control.New(calls); err != nil {
			return nil, err
		}
	}
	h := &xenHost{units: &domus.DomUs{
		Files: domus.Files{Dir: c.Machines, Valid: configs.CheckName},
		Dial:  xenstore.Local(), List: both[0].Domains, Log: log,
	}}
	h.tuner = domus.NewTuner(both[1], h.units.ID)
	log.Info("this is Dom0 of a Xen host: domUs are served that are attached", "xen", fmt.Sprintf("%d.%d", both[0].Major, both[0].Minor), "machines", c.Machines)
	if c.Regions != "" {
		log.Warn("regions is for machines under QEMU: it isn't looked at in Dom0", "regions", c.Regions)
	}
	return h, nil
}

// Watch fulfils hypervisor.Machines. Who is served no more has no hub first: else its programs would
// find another worker when theirs ends.
func (h *xenHost) Watch(ctx context.Context, tell func([]hypervisor.Machine)) {
	h.units.Watch(ctx, func(all []hypervisor.Machine) {
		if h.served != nil {
			h.served(all)
		}
		tell(all)
	})
}

// give has a daemon use it.
func (h *xenHost) give(o *backend.Options) {
	o.Machines, o.Tuner = h, h.tuner
	o.Agent = func(name string) (release string, came bool) { return "", h.units.Agent(name) }
}
