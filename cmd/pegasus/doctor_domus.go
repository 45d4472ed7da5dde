package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/configs"
	xen "pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/domus"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/xenstore"
)

// checkDomUs checks Dom0's preconditions for domUs.
func (c *call) checkDomUs() []control.Check {
	config := c.configInForce()
	all := append(c.checkServes(), checkHypervisor()...)
	all = append(all, checkDevice("events", "/dev/xen/evtchn", "xen-evtchn")...)
	all = append(all, checkDevice("grants", "/dev/xen/gntdev", "xen-gntdev")...)
	all = append(all, checkGrants("/sys/module/xen_gntdev/parameters/limit", uint64(config.Template.Arena))...)
	files := domus.Files{Dir: config.Daemon.Machines, Valid: configs.CheckName}
	attached, err := files.List()
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		all = append(all, one("attached", warn, first, "mend or remove it; the daemon goes on with what it knew")...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	store, err := xenstore.Dial(ctx, xenstore.Local())
	if err == nil {
		defer store.Close()
	}
	names := map[uint16]string{}
	if err == nil {
		names, err = domus.Names(ctx, store)
	}
	if err != nil {
		return append(all, one("XenStore", fail, err.Error(), "start xenstored (Debian: systemctl start xen)")...)
	}
	all = append(all, one("XenStore", fine, fmt.Sprintf("it has %s; attached: %s", control.Count(len(names), "domU"), control.Count(len(attached), "name")), "")...)
	for _, a := range attached {
		ids := numbersOf(a.Name, names)
		agent := len(ids) > 0 && domus.HasAgent(ctx, store, ids[0])
		all = append(all, judgeDomU(a, ids, agent, config)...)
	}
	return all
}

// checkServes checks whether the host's daemon, if it runs, has found Xen.
func (c *call) checkServes() []control.Check {
	s, err := ask(c, (*client.Client).Status)
	if err != nil || s.Private || s.DomUs {
		return nil
	}
	return one("domUs", fail, fmt.Sprintf("the daemon that runs, process %d, serves none", s.PID), servesNone)
}

// checkHypervisor queries Xen directly.
func checkHypervisor() []control.Check {
	const fix = "modprobe xen-privcmd, and run this as root"
	calls, err := privcmd.Open()
	if err != nil {
		return one("Xen", fail, err.Error(), fix)
	}
	defer calls.Close()
	x, err := xen.New(calls)
	if err != nil {
		return one("Xen", fail, err.Error(), fix)
	}
	s, err := x.Scheduler()
	if err != nil {
		return one("Xen", fail, err.Error(), fix)
	}
	text := fmt.Sprintf("%d.%d, with scheduler %v", x.Major, x.Minor, s)
	if s != xen.Credit && s != xen.Credit2 {
		return one("Xen", warn, text+", which has no weights that are known here", "boot with sched=credit or sched=credit2")
	}
	return one("Xen", fine, text, "")
}

// checkDevice checks whether a device exists, and whether this process may open it.
func checkDevice(name, path, module string) []control.Check {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return one(name, warn, path+" can't be opened by this user", "run this as root")
	case err != nil:
		return one(name, fail, err.Error(), "modprobe "+module)
	}
	f.Close()
	return one(name, fine, path, "")
}

// segmentOwn is the size of a segment without its arena.
const segmentOwn = 2 << 20

// checkGrants checks whether the kernel maps as many pages at once as an arena has. Without the file, the
// kernel has no such limit.
func checkGrants(path string, arena uint64) []control.Check {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return one("grants", warn, fmt.Sprintf("%s has %q", path, text), "")
	}
	if pages := (min(arena, domus.DefaultMemory) + segmentOwn) / 4096; limit < pages {
		return one("grants", warn, fmt.Sprintf("the kernel maps %d pages of a domU at once, a process may share %d", limit, pages), fmt.Sprintf("echo %d >%s", pages, path))
	}
	return one("grants", fine, fmt.Sprintf("the kernel maps up to %d pages of a domU at once", limit), "")
}

// judgeDomU returns the findings about an attached name: ids are the domains that have it.
func judgeDomU(a domus.Attachment, ids []uint16, agent bool, config *configs.Config) []control.Check {
	name := "domU " + a.Name
	_, known := config.Domain(a.Name)
	switch {
	case known != nil:
		return one(name, warn, known.Error(), fmt.Sprintf("declare it: [[domain]] name = %q", a.Name))
	case len(ids) == 0:
		return one(name, fine, "off; it may share "+bytesText(a.Memory), "")
	case len(ids) > 1:
		return one(name, warn, fmt.Sprintf("domains %v have this name, of which one is served", ids), "xl rename the others")
	case !agent:
		return one(name, warn, fmt.Sprintf("there, as domain %d, without an agent", ids[0]), "`pegasus-guest install` there, as root; `pegasus-guest doctor` says what it lacks")
	}
	return one(name, fine, fmt.Sprintf("there, as domain %d, with its agent; it may share %s", ids[0], bytesText(a.Memory)), "")
}
