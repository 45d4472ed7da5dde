package backend

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
)

// Workers execute hostile input. As root, each domain's run as a user of their
// own, from a range that no system hands out, and in a memory cgroup of their
// own where there is one to be had.
const (
	firstUID = 1_600_000_000
	maxUIDs  = maxDomains
)

// apart is 0 for the host's daemon and differs between others, so that users and
// groups of two daemons don't mix.
func (d *Daemon) apart() int {
	if d.opt.RuntimeDir == control.SystemDir {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(d.opt.RuntimeDir))
	return 1 + int(h.Sum32()%8191)
}

// takeUID gives a domain's workers a user. d.mu is held.
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

// workerOverhead is what a worker needs beside what its guest asks for.
const workerOverhead = 256 << 20

// cgroup is where the memory of workers can be limited; "" if nowhere.
type cgroup struct {
	dir   string // of Pegasus
	limit string // the file that a limit is written to
}

const cgroups = "/sys/fs/cgroup"

// cgroupName is what the groups of daemons are called.
var cgroupName = regexp.MustCompile(`^pegasus(-[0-9]+)?$`)

// findCgroup looks for a memory controller that we may use: version 2 first.
func findCgroup(apart int) (cgroup, error) {
	name := "pegasus"
	if apart != 0 {
		name += "-" + strconv.Itoa(apart)
	}
	if text, err := os.ReadFile(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		if !strings.Contains(" "+strings.TrimSpace(string(text))+" ", " memory ") {
			return cgroup{}, errors.New("the cgroup version 2 hierarchy has no memory controller")
		}
		if err := handOut(cgroups); err != nil {
			return cgroup{}, err
		}
		g := cgroup{filepath.Join(cgroups, name), limitV2}
		return g, g.make()
	}
	g := cgroup{filepath.Join(cgroups, "memory", name), "memory.limit_in_bytes"}
	if _, err := os.Stat(filepath.Join(cgroups, "memory", g.limit)); err != nil {
		return cgroup{}, errors.New("no memory controller is mounted at " + cgroups)
	}
	return g, g.make()
}

const limitV2 = "memory.max"

// handOut lets the groups below a version 2 group have limits.
func handOut(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0o644); err != nil {
		return fmt.Errorf("hand out the memory controller: %w", err)
	}
	return nil
}

// make makes the group of Pegasus if it isn't there.
func (g cgroup) make() error {
	if err := mkdir(g.dir); err != nil {
		return err
	}
	if g.limit == limitV2 {
		return handOut(g.dir)
	}
	return nil
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// enter puts a worker into its domain's group, limited to bytes.
func (g cgroup) enter(domain string, pid int, bytes uint64) (err error) {
	if g.dir == "" {
		return nil
	}
	for range 3 { // another daemon may just sweep the group away, since nobody is in it yet
		err = g.tryToEnter(filepath.Join(g.dir, domain), pid, bytes)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return err
}

func (g cgroup) tryToEnter(dir string, pid int, bytes uint64) error {
	if err := g.make(); err != nil {
		return err
	}
	if err := mkdir(dir); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, g.limit), []byte(strconv.FormatUint(bytes, 10)), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// leave removes a domain's group once nobody is in it.
func (g cgroup) leave(domain string) {
	if g.dir != "" {
		os.Remove(filepath.Join(g.dir, domain))
	}
}

// sweep removes the groups that daemons of other directories have left behind,
// having been killed. Those that run make theirs anew when they need it.
func (g cgroup) sweep() {
	if g.dir == "" {
		return
	}
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

// close removes all groups that nobody is in, and tells whether that is all.
func (g cgroup) close() bool {
	if g.dir == "" {
		return true
	}
	entries, _ := os.ReadDir(g.dir)
	for _, e := range entries {
		if e.IsDir() {
			os.Remove(filepath.Join(g.dir, e.Name()))
		}
	}
	err := os.Remove(g.dir)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// leaveCgroup gives up the groups. When no worker is left, none of them is: the
// kernel takes a moment to let go of processes that have ended.
func (d *Daemon) leaveCgroup() {
	end := time.Now().Add(deathGrace)
	for !d.cgroup.close() && d.opt.Private && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
}

// memoryLimit is what all workers of a domain may use together.
func (dom *domain) memoryLimit() uint64 {
	device := uint64(dom.settings.Memory)
	if device == 0 {
		p := dom.on.hw.Profile()
		device = p.Memory + p.Swap
	}
	host := uint64(dom.settings.HostMemory)
	return device + host + uint64(dom.settings.Processes)*workerOverhead
}

// confinement finds out how far workers can be confined here.
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
	var err error
	if d.cgroup, err = findCgroup(d.apart()); err != nil {
		d.cgroup = cgroup{}
		all = append(all, control.Check{Name: "cgroup", State: "warn",
			Detail: fmt.Sprintf("the memory of workers isn't limited: %v", err),
			Fix:    "run pegasusd as root, with a memory cgroup that it may write to"})
	} else {
		all = append(all, control.Check{Name: "cgroup", State: "ok", Detail: "the memory of each domain's workers is limited in " + d.cgroup.dir})
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		all = append(all, control.Check{Name: "seccomp", State: "warn", Detail: "the kernel can't filter system calls",
			Fix: "use a kernel with CONFIG_SECCOMP_FILTER"})
	} else {
		all = append(all, control.Check{Name: "seccomp", State: "ok", Detail: "the kernel can filter system calls"})
	}
	return all
}
