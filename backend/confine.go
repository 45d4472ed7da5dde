package backend

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
)

// Workers execute hostile input. Under root, each domain's workers run as a user of their own, from a range that no
// system assigns, and in cgroups of their own where cgroups are available.
const (
	firstUID = 1_600_000_000
	maxUIDs  = maxDomains
)

// apart returns 0 for the host's daemon and one of 8191 numbers for others, so that two daemons seldom use the same
// users. Their groups always differ: see groupsOf.
func (d *Daemon) apart() int {
	if d.opt.RuntimeDir == control.SystemDir {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(d.opt.RuntimeDir))
	return 1 + int(h.Sum32()%8191)
}

// takeUID assigns a user to a domain's workers. d.mu is held.
func (d *Daemon) takeUID(dom *domain) {
	if dom.uid != 0 || os.Geteuid() != 0 {
		return
	}
	for i := range maxUIDs {
		if uid := firstUID + d.apart()*maxUIDs + i; !d.uids[uid] {
			d.uids[uid] = true
			dom.uid = uid
			return
		}
	}
}

// workerOverhead is a worker's need of memory beside its guest's requests, in bytes.
const workerOverhead = 256 << 20

// leaveCgroups removes the groups. For a private daemon, whose workers have ended, it retries: the kernel takes a
// moment to release ended processes.
func (d *Daemon) leaveCgroups() {
	end := time.Now().Add(deathGrace)
	for _, g := range d.cgroups {
		for !g.close() && d.opt.Private && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
	}
}

// confine puts a worker into its domain's cgroups, where available.
func (d *Daemon) confine(g *guest, pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.cgroups {
		if err := c.enter(g.dom.name, pid, g.dom.limits()); err != nil {
			d.noteOf(g.dom, "warning", "limit the %s of worker %d: %v", c.controller, pid, err)
		}
	}
}

// park puts a worker without a job into a CPU group that weighs as much as a domain's, together with all other such
// workers: guests cause the start of workers.
func (d *Daemon) park(pid int) {
	for _, c := range d.cgroups {
		if c.controller != cpuController {
			continue
		}
		if err := c.park(pid); err != nil {
			d.log.Warn("limit the CPUs of workers that have no job", "worker", pid, "err", err)
		}
	}
}

// limitAnew applies a domain's limits to its existing workers. d.mu is held.
func (d *Daemon) limitAnew(dom *domain) {
	for _, c := range d.cgroups {
		if err := c.limit(dom.name, dom.limits()); err != nil && !errors.Is(err, fs.ErrNotExist) { // no worker has started yet
			d.noteOf(dom, "warning", "limit the %s of its workers: %v", c.controller, err)
		}
	}
}

func (dom *domain) limits() limits {
	return limits{memory: dom.memoryLimit(), credits: dom.settings.Credits, cpu: dom.settings.CPU}
}

// wants returns the memory that all workers of a domain may use by its configuration, in bytes.
func (dom *domain) wants() uint64 {
	device := uint64(dom.settings.Memory)
	if device == 0 && dom.on != nil {
		p := dom.on.Hardware.Profile()
		device = p.Memory + p.Swap
	}
	return device + uint64(dom.settings.HostMemory) + uint64(dom.settings.Processes)*workerOverhead
}

// memoryLimit returns the limit on the memory of all workers of a domain together. It leaves an eighth of the host to
// others: the kernel ends workers of a domain that exceeds it.
func (dom *domain) memoryLimit() uint64 {
	total := hostMemory()
	return min(dom.wants(), total-total/8)
}

// hostMemory returns the host's memory in bytes.
func hostMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxUint64
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}

// confinement finds the cgroups, and reports how far workers can be confined on this host.
func (d *Daemon) confinement() []control.Check {
	var all []control.Check
	if os.Geteuid() == 0 {
		all = append(all, control.Check{Name: "users", State: "ok",
			Detail: fmt.Sprintf("workers run as users from %d on, one for each domain", firstUID+d.apart()*maxUIDs)})
	} else {
		all = append(all, control.Check{Name: "users", State: "warn",
			Detail: "workers of all domains run as this user: domains are separated from each other less well",
			Fix:    "run pegasusd as root"})
	}
	for _, c := range []struct{ controller, name, what string }{
		{memoryController, "cgroup", "the memory of each domain's workers is limited in "},
		{cpuController, "cpu", "each domain's workers weigh on the host's CPUs by credits, and have at most what its cpu says, in "},
	} {
		g, err := findCgroup(c.controller, groupsOf(d.opt.RuntimeDir))
		if err != nil {
			all = append(all, control.Check{Name: c.name, State: "warn",
				Detail: fmt.Sprintf("the %s of workers isn't limited: %v", c.controller, err),
				Fix:    fmt.Sprintf("run pegasusd as root, with a %s cgroup that it may write to", c.controller)})
			continue
		}
		d.cgroups = append(d.cgroups, g)
		all = append(all, control.Check{Name: c.name, State: "ok", Detail: c.what + g.groupOf("NAME")})
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		all = append(all, control.Check{Name: "seccomp", State: "warn", Detail: "the kernel can't filter system calls",
			Fix: "use a kernel with CONFIG_SECCOMP_FILTER"})
	} else {
		all = append(all, control.Check{Name: "seccomp", State: "ok", Detail: "the kernel can filter system calls"})
	}
	return all
}
