package main

import (
	"errors"
	"fmt"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/hypervisor/kvm"
	"pegasus/hypervisor/libvirt"
)

// has reports whether a machine runs and has a region.
func (a *attachment) has(now libvirt.Shown) bool {
	if !now.Runs {
		return false
	}
	live, err := kvm.Parse([]byte(now.Live))
	if err != nil {
		return false
	}
	_, ok := live.Attached(a.regions)
	return ok
}

// plug gives a running machine its region at once, if that was requested. libvirt calls no hook for that, so
// the region is made here.
func (a *attachment) plug(name string, want kvm.Attachment, now libvirt.Shown) error {
	if !a.live || !now.Runs {
		return nil
	}
	if a.has(now) {
		fmt.Fprintln(a.out, "It runs, and has its region.")
		return nil
	}
	live, err := kvm.Parse([]byte(now.Live))
	if err != nil {
		return err
	}
	devices := live.Plugs(want)
	if a.dry {
		for _, d := range devices {
			fmt.Fprintf(a.out, "It runs, and would be given:\n    %s\n", d)
		}
		return nil
	}
	if err := want.Make(qemuGroup()); err != nil {
		return err
	}
	for _, d := range devices {
		if _, err = a.libvirt([]byte(d), "plug", name); err != nil {
			break
		}
	}
	if err != nil {
		a.pull(name, want)
		return fmt.Errorf("%w; it has its region from its next start on", err)
	}
	fmt.Fprintf(a.out, "It runs, and has its region now.\n")
	if len(devices) == 1 {
		fmt.Fprintln(a.out, "It has no virtio-serial controller for a port until its next start: until then it and the host look every few milliseconds whether there is something to do.")
	}
	return nil
}

// pull removes the parts of a region that were added to a machine.
func (a *attachment) pull(name string, region kvm.Attachment) error {
	now, _, err := a.show(name)
	if err != nil {
		return err
	}
	live, err := kvm.Parse([]byte(now.Live))
	if err != nil {
		return err
	}
	for _, alias := range live.Plugged(a.regions) {
		if _, err := a.libvirt(nil, "unplug", name, alias); err != nil {
			return err
		}
	}
	return region.Remove()
}

// unplug removes a machine's region while it runs, if that was requested. Programs that use the region would
// be killed, so there must be none.
func (a *attachment) unplug(name string, now libvirt.Shown) error {
	if !a.live || !a.has(now) {
		return nil
	}
	live, err := kvm.Parse([]byte(now.Live))
	if err != nil {
		return err
	}
	is, _ := live.Attached(a.regions)
	if is.Device != kvm.IVSHMEM {
		return usagef("--live: an NVDIMM can't be unplugged: detach without --live, and shut the machine down")
	}
	if n := a.programs(name); n > 0 {
		return fmt.Errorf("the region of machine %q is used by %s, which would be killed; end them first", name, control.Count(n, "program"))
	}
	if a.dry {
		fmt.Fprintf(a.out, "It runs, and its device would be unplugged.\n")
		return nil
	}
	if err := a.pull(name, is); err != nil {
		return fmt.Errorf("%w; detach without --live, and shut it down", err)
	}
	fmt.Fprintln(a.out, "It runs, and its device was unplugged.")
	return nil
}

// programs returns the number of a machine's programs with accelerators, as reported by the daemon.
func (a *attachment) programs(name string) int {
	domains, err := ask(a.call, (*client.Client).Domains)
	if err != nil && !errors.Is(err, errNoDaemon) {
		fmt.Fprintf(a.err, "cannot check for programs that use it: %v\n", err)
	}
	for _, d := range domains {
		if d.Name == name {
			return d.Processes
		}
	}
	return 0
}
