package workers

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
	"pegasus/configs"
)

// Workers execute hostile input. Under root, each domain's workers run as a user of their own, from a range that no
// system assigns, and in cgroups of their own where cgroups are available.
const (
	firstUID = 1_600_000_000
	maxUIDs  = configs.MaxDomains
)

// apart returns 0 for the host's daemon and one of 8191 numbers for others, so that two daemons seldom use the same
// users. Their groups always differ: see groupsOf.
func (w *Workers) apart() int {
	if w.opt.RuntimeDir == control.SystemDir {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(w.opt.RuntimeDir))
	return 1 + int(h.Sum32()%8191)
}

// TakeUID returns a user for a domain's workers, 0 where workers run as the daemon's user. It belongs to the domain
// until FreeUID.
func (w *Workers) TakeUID() int {
	if os.Geteuid() != 0 {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range maxUIDs {
		if uid := firstUID + w.apart()*maxUIDs + i; !w.uids[uid] {
			w.uids[uid] = true
			return uid
		}
	}
	return 0
}

// KeepUID marks a user of a survivor as taken.
func (w *Workers) KeepUID(uid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uids[uid] = true
}

// FreeUID returns a domain's user.
func (w *Workers) FreeUID(uid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.uids, uid)
}

// removeCgroups removes the groups. For a private daemon, after its workers have ended, it retries for patience: the
// kernel takes a moment to release ended processes.
func (w *Workers) removeCgroups(patience time.Duration) {
	end := time.Now().Add(patience)
	for _, g := range w.cgroups {
		for !g.close() && w.opt.Private && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
	}
}

// Enter puts a worker into its domain's cgroups, where available, under these limits.
func (w *Workers) Enter(domain string, pid int, l Limits) (failed []error) {
	for _, c := range w.cgroups {
		if err := c.enter(domain, pid, l); err != nil {
			failed = append(failed, fmt.Errorf("limit the %s of worker %d: %w", c.controller, pid, err))
		}
	}
	return failed
}

// park puts a worker without a job into a CPU group that weighs as much as a domain's, together with all other such
// workers: guests cause the start of workers.
func (w *Workers) park(pid int) {
	for _, c := range w.cgroups {
		if c.controller != cpuController {
			continue
		}
		if err := c.park(pid); err != nil {
			w.opt.Log.Warn("limit the CPUs of workers without a job failed", "pid", pid, "err", err)
		}
	}
}

// Limit applies limits to a domain's existing workers.
func (w *Workers) Limit(domain string, l Limits) (failed []error) {
	for _, c := range w.cgroups {
		if err := c.limit(domain, l); err != nil && !errors.Is(err, fs.ErrNotExist) { // no worker has started yet
			failed = append(failed, fmt.Errorf("limit the %s of its workers: %w", c.controller, err))
		}
	}
	return failed
}

// Leave removes the cgroups of a domain without workers.
func (w *Workers) Leave(domain string) {
	for _, c := range w.cgroups {
		c.leave(domain)
	}
}

// LimitsMemory reports whether the memory of domains' workers is limited.
func (w *Workers) LimitsMemory() bool {
	return slices.ContainsFunc(w.cgroups, func(c cgroup) bool { return c.controller == memoryController })
}

// Confine finds the cgroups, and reports how far workers can be confined on this host.
func (w *Workers) Confine() []control.Check {
	var all []control.Check
	if os.Geteuid() == 0 {
		all = append(all, control.Check{Name: "users", State: "ok",
			Detail: fmt.Sprintf("workers run as users from %d on, one for each domain", firstUID+w.apart()*maxUIDs)})
	} else {
		all = append(all, control.Check{Name: "users", State: "warn",
			Detail: "workers of all domains run as this user: domains are separated from each other less well",
			Fix:    "run pegasusd as root"})
	}
	for _, c := range []struct{ controller, name, what string }{
		{memoryController, "cgroup", "the memory of each domain's workers is limited in "},
		{cpuController, "cpu", "each domain's workers weigh on the host's CPUs by credits, and have at most what its cpu says, in "},
	} {
		g, err := findCgroup(c.controller, groupsOf(w.opt.RuntimeDir))
		if err != nil {
			all = append(all, control.Check{Name: c.name, State: "warn",
				Detail: fmt.Sprintf("the %s of workers isn't limited: %v", c.controller, err),
				Fix:    fmt.Sprintf("run pegasusd as root, with a %s cgroup that it may write to", c.controller)})
			continue
		}
		w.cgroups = append(w.cgroups, g)
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
