package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// limits are what all workers of a domain may take of the host together.
type limits struct {
	memory  uint64 // bytes
	credits int    // their weight on the CPUs
	cpu     int    // in % of one CPU; 0: as much as there is
}

// The controllers of cgroups that workers are put under.
const (
	memoryController = "memory"
	cpuController    = "cpu"
)

// cgroup is the group of this daemon under one controller, with a group for each
// domain below. Under version 2 both controllers have the same directory.
type cgroup struct {
	dir        string
	controller string
	v2         bool
}

const cgroups = "/sys/fs/cgroup"

// cgroupName is what the groups of daemons are called.
var cgroupName = regexp.MustCompile(`^pegasus(-[0-9]+)?$`)

// findCgroup returns the daemon's group under a controller, version 2 first, or why
// there is none.
func findCgroup(controller string, apart int) (cgroup, error) {
	name := "pegasus"
	if apart != 0 {
		name += "-" + strconv.Itoa(apart)
	}
	if text, err := os.ReadFile(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		if !slices.Contains(strings.Fields(string(text)), controller) {
			return cgroup{}, fmt.Errorf("the cgroup version 2 hierarchy has no %s controller", controller)
		}
		if err := handOut(cgroups, controller); err != nil {
			return cgroup{}, err
		}
		g := cgroup{filepath.Join(cgroups, name), controller, true}
		return g, g.make()
	}
	top := filepath.Join(cgroups, controller)
	if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err != nil {
		return cgroup{}, fmt.Errorf("no %s controller is mounted at %s", controller, cgroups)
	}
	g := cgroup{filepath.Join(top, name), controller, false}
	return g, g.make()
}

// handOut lets the groups below a version 2 group have limits.
func handOut(dir, controller string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
		return fmt.Errorf("hand out the %s controller: %w", controller, err)
	}
	return nil
}

// make makes the group of the daemon if it isn't there.
func (g cgroup) make() error {
	if err := mkdir(g.dir); err != nil {
		return err
	}
	switch {
	case g.v2:
		return handOut(g.dir, g.controller)
	case g.controller == cpuController:
		// At the top of version 1 each process weighs as much as a whole group. The
		// workers of all domains weigh what as many busy processes as there are CPUs do,
		// which is what they come to without a group.
		return write(g.dir, "cpu.shares", strconv.Itoa(cpuShares(defaultCredits)*runtime.NumCPU()))
	}
	return nil
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func write(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
}

// groupOf is the directory of a domain's group. No file of the kernel's has such a
// name, whatever the domain is called.
func (g cgroup) groupOf(domain string) string { return filepath.Join(g.dir, "domain-"+domain) }

// defaultCredits weigh what a process weighs whose weight was never set.
const defaultCredits = 256

// cpuWeight and cpuShares are credits in the units of version 2 and 1.
func cpuWeight(credits int) int { return min(max(credits*100/defaultCredits, 1), 10_000) }
func cpuShares(credits int) int { return min(max(credits*1024/defaultCredits, 2), 262_144) }

// cpuPeriod is short, since a domain that has used up its part of one may hold an
// engine of a software accelerator until the next begins.
const cpuPeriod = 10 * time.Millisecond

// limit puts limits on a domain's group.
func (g cgroup) limit(domain string, l limits) error {
	dir := g.groupOf(domain)
	quota := cpuPeriod.Microseconds() * int64(l.cpu) / 100
	period := strconv.FormatInt(cpuPeriod.Microseconds(), 10)
	switch {
	case g.controller == memoryController && g.v2:
		return write(dir, "memory.max", strconv.FormatUint(l.memory, 10))
	case g.controller == memoryController:
		return write(dir, "memory.limit_in_bytes", strconv.FormatUint(l.memory, 10))
	case g.v2:
		most := "max"
		if quota != 0 {
			most = strconv.FormatInt(quota, 10)
		}
		return errors.Join(write(dir, "cpu.weight", strconv.Itoa(cpuWeight(l.credits))), write(dir, "cpu.max", most+" "+period))
	default:
		if quota == 0 {
			quota = -1
		}
		return errors.Join(write(dir, "cpu.shares", strconv.Itoa(cpuShares(l.credits))),
			write(dir, "cpu.cfs_quota_us", "-1"), // a shorter period must fit the quota of before
			write(dir, "cpu.cfs_period_us", period), write(dir, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)))
	}
}

// enter puts a worker into its domain's group, under these limits.
func (g cgroup) enter(domain string, pid int, l limits) (err error) {
	for range 3 { // another daemon may just sweep the group away, since it is still empty
		err = g.tryToEnter(domain, pid, l)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return err
}

func (g cgroup) tryToEnter(domain string, pid int, l limits) error {
	if err := g.make(); err != nil {
		return err
	}
	if err := mkdir(g.groupOf(domain)); err != nil {
		return err
	}
	if err := g.limit(domain, l); err != nil {
		return err
	}
	return write(g.groupOf(domain), "cgroup.procs", strconv.Itoa(pid))
}

// leave removes a domain's group once it is empty.
func (g cgroup) leave(domain string) { os.Remove(g.groupOf(domain)) }

// sweep removes the groups that daemons of other directories have left behind,
// having been killed. Those that run make theirs anew when they need it.
func (g cgroup) sweep() {
	top := filepath.Dir(g.dir)
	entries, err := os.ReadDir(top)
	if err != nil {
		return
	}
	for _, e := range entries {
		if dir := filepath.Join(top, e.Name()); dir != g.dir && cgroupName.MatchString(e.Name()) {
			cgroup{dir: dir}.close()
		}
	}
}

// close removes all empty groups, and reports whether none is left.
func (g cgroup) close() bool {
	entries, _ := os.ReadDir(g.dir)
	for _, e := range entries {
		if e.IsDir() {
			os.Remove(filepath.Join(g.dir, e.Name()))
		}
	}
	err := os.Remove(g.dir)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}
