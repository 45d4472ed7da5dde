package workers

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
)

// Limits bound the use of the host by all workers of a domain together.
type Limits struct {
	Memory  uint64 // bytes
	Credits int    // their weight on the CPUs
	CPU     int    // in % of one CPU; 0: no limit
}

// The cgroup controllers for workers.
const (
	memoryController = "memory"
	cpuController    = "cpu"
)

// cgroup describes this daemon's groups under one controller: one for each domain, and one for workers without a job.
// All are at the top level: while processes compute and start in a nested group, Linux (6.18) makes a process outside
// wait for up to 100 ms for a processor. Under version 2 both controllers have the same groups.
type cgroup struct {
	dir        string // prefix of their paths
	controller string
	v2         bool
}

const cgroups = "/sys/fs/cgroup"

// cgroupName matches the groups of daemons, also those of earlier releases, which had numbers in their names, or had
// the others nested in one.
var cgroupName = regexp.MustCompile(`^(pegasus(?:-[0-9]+|-[0-9a-f]{16})?)(\.spare|\.domain-.*)?$`)

// groupsOf returns the prefix of the groups of the daemon with a runtime directory. Each directory has its own prefix:
// the number that separates the users of two daemons is too small for that.
func groupsOf(dir string) string {
	if dir == control.SystemDir {
		return "pegasus"
	}
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("pegasus-%x", sum[:8])
}

// findCgroup returns the groups of that name under a controller, version 2 first, or an error.
func findCgroup(controller, name string) (cgroup, error) {
	if text, err := os.ReadFile(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		if !slices.Contains(strings.Fields(string(text)), controller) {
			return cgroup{}, fmt.Errorf("the cgroup version 2 hierarchy has no %s controller", controller)
		}
		if err := handOut(cgroups, controller); err != nil {
			return cgroup{}, err
		}
		return cgroup{filepath.Join(cgroups, name), controller, true}, nil
	}
	top := filepath.Join(cgroups, controller)
	if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err != nil {
		return cgroup{}, fmt.Errorf("no %s controller is mounted at %s", controller, cgroups)
	}
	g := cgroup{filepath.Join(top, name), controller, false}
	if err := mkdir(g.spares()); err != nil { // as for each worker later
		return cgroup{}, err
	}
	return g, nil
}

// handOut enables a controller for the groups below a version 2 group.
func handOut(dir, controller string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
		return fmt.Errorf("enable the %s controller: %w", controller, err)
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

// groupOf returns the directory of a domain's group. No file of the kernel has such a name, whatever the domain's name
// is.
func (g cgroup) groupOf(domain string) string { return g.dir + ".domain-" + domain }

// spares returns the directory of the group of workers without a job. Its weight is that of one process.
func (g cgroup) spares() string { return g.dir + ".spare" }

// defaultCredits give the weight that a process has until one is set.
const defaultCredits = 256

// cpuWeight and cpuShares return credits in the units of version 2 and 1.
func cpuWeight(credits int) int { return min(max(credits*100/defaultCredits, 1), 10_000) }
func cpuShares(credits int) int { return min(max(credits*1024/defaultCredits, 2), 262_144) }

// cpuPeriod is short, since a domain that has used up its part of one may hold an engine of a software accelerator
// until the next begins.
const cpuPeriod = 10 * time.Millisecond

// limit applies limits to a domain's group.
func (g cgroup) limit(domain string, l Limits) error {
	dir := g.groupOf(domain)
	quota := cpuPeriod.Microseconds() * int64(l.CPU) / 100
	period := strconv.FormatInt(cpuPeriod.Microseconds(), 10)
	switch {
	case g.controller == memoryController && g.v2:
		return write(dir, "memory.max", strconv.FormatUint(l.Memory, 10))
	case g.controller == memoryController:
		return write(dir, "memory.limit_in_bytes", strconv.FormatUint(l.Memory, 10))
	case g.v2:
		most := "max"
		if quota != 0 {
			most = strconv.FormatInt(quota, 10)
		}
		return errors.Join(write(dir, "cpu.weight", strconv.Itoa(cpuWeight(l.Credits))), write(dir, "cpu.max", most+" "+period))
	default:
		if quota == 0 {
			quota = -1
		}
		return errors.Join(write(dir, "cpu.shares", strconv.Itoa(cpuShares(l.Credits))),
			write(dir, "cpu.cfs_quota_us", "-1"), // a shorter period must fit the previous quota
			write(dir, "cpu.cfs_period_us", period), write(dir, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)))
	}
}

// enter puts a worker into its domain's group, under these limits.
func (g cgroup) enter(domain string, pid int, l Limits) error {
	return g.join(g.groupOf(domain), pid, func() error { return g.limit(domain, l) })
}

// park puts a worker into the group of those without a job.
func (g cgroup) park(pid int) error { return g.join(g.spares(), pid, func() error { return nil }) }

// join puts a process into a group, and makes the group if necessary.
func (g cgroup) join(dir string, pid int, limit func() error) (err error) {
	for range 3 { // another daemon may remove the group meanwhile, while it is empty
		if err = mkdir(dir); err != nil {
			return err
		}
		if err = limit(); err == nil {
			err = write(dir, "cgroup.procs", strconv.Itoa(pid))
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return err
}

// leave removes a domain's group once it is empty.
func (g cgroup) leave(domain string) { os.Remove(g.groupOf(domain)) }

// sweep removes the groups that killed daemons of other directories have left behind. Running daemons make theirs again
// when needed.
func (g cgroup) sweep() {
	for _, dir := range g.all(func(daemon string) bool { return daemon != filepath.Base(g.dir) }) {
		removeTree(dir)
	}
}

// close removes all empty groups of the daemon, and reports whether all were removed.
func (g cgroup) close() bool {
	none := true
	for _, dir := range g.all(func(daemon string) bool { return daemon == filepath.Base(g.dir) }) {
		none = removeTree(dir) && none
	}
	return none
}

// all returns the groups of the daemons that of selects.
func (g cgroup) all(of func(daemon string) bool) (dirs []string) {
	top := filepath.Dir(g.dir)
	entries, _ := os.ReadDir(top)
	for _, e := range entries {
		if name := cgroupName.FindStringSubmatch(e.Name()); name != nil && of(name[1]) {
			dirs = append(dirs, filepath.Join(top, e.Name()))
		}
	}
	return dirs
}

// removeTree removes a group, and those of earlier releases within it, if all are empty, and reports whether the group
// is gone.
func removeTree(dir string) bool {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	err := os.Remove(dir)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}
