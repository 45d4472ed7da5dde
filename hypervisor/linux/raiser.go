package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/weightjournal"
)

// Raiser implements hypervisor.Raiser with cpu.weight, or cpu.shares of version 1. mu guards weights.
type Raiser struct {
	host *CPUs // provides the groups

	mu      sync.Mutex
	weights *weightjournal.Weights

	use weightjournal.Use[string] // by sibling's directory
}

// The valid weights.
const (
	leastWeight, mostWeight = 1, 10000
	leastShares, mostShares = 2, 1 << 18
)

// Raiser returns the Raiser of this host, which keeps its records in dir. From then on c reports the configured
// weights of machines, not the effective ones.
func (c *CPUs) Raiser(dir string) *Raiser {
	c.raiser = &Raiser{host: c, weights: weightjournal.NewWeights(dir, "a machine", c.log)}
	return c.raiser
}

// Groups implements hypervisor.Raiser. A machine's group is the one that libvirt created for all its threads, or one
// in which the emulator is alone.
func (r *Raiser) Groups(of []hypervisor.Guests) []hypervisor.Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []hypervisor.Group
	seen, named := make(map[string]bool), make(map[string]bool)
	for _, g := range of {
		group, file, err := r.find(g)
		if err == nil && seen[file] {
			err = errShared
		}
		if err != nil {
			r.weights.Complain(g.Domain, err)
			continue
		}
		seen[file], named[g.Domain] = true, true
		all = append(all, group)
	}
	r.weights.Keep(func(domain string) bool { return named[domain] })
	r.weighOthers(all, seen)
	return all
}

var (
	errNoMachine = errors.New("it is no virtual machine")
	errNoGroup   = errors.New("its emulator is in a cgroup with other processes; libvirt gives it one of its own, as does `systemd-run --scope`")
	errGuests    = errors.New("its cgroup's weight may be changed by others than root")
	errShared    = errors.New("another machine has the same cgroup")
	errNoNumber  = errors.New("its cgroup's weight is no number")
	errIdle      = errors.New("its cgroup has no weight: it is set to idle")
)

// find returns the group of a machine, with its configured weight, and the weight's file.
func (r *Raiser) find(of hypervisor.Guests) (g hypervisor.Group, file string, err error) {
	if !of.VM || len(of.Processes) == 0 {
		return g, "", errNoMachine
	}
	path, v1, err := r.host.machineGroup(of.Processes[0])
	if err != nil {
		return g, "", err
	}
	g = hypervisor.Group{Domain: of.Domain, Parent: filepath.Dir(path), Least: leastWeight, Most: mostWeight}
	file = filepath.Join(path, "cpu.weight")
	if v1 {
		g.Least, g.Most, file = leastShares, mostShares, filepath.Join(path, "cpu.shares")
	}
	if g.Weight, g.Has, err = r.weights.See(of.Domain, weightjournal.Record{File: file}, groupWeight(file)); err != nil {
		return g, file, err
	}
	set := g.Weight
	if g.Weight = min(max(set, g.Least), g.Most); g.Has == set {
		g.Has = g.Weight
	}
	return g, file, nil
}

// groupWeight is the weight of a cgroup: the path of its file.
type groupWeight string

// Get implements weightjournal.Weight.
func (w groupWeight) Get() (int64, error) {
	text, there, ours := setting(string(w))
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case !there:
		return 0, w.absent()
	case !ours:
		return 0, errGuests
	case err != nil:
		return 0, errNoNumber
	case n <= 0:
		return 0, errIdle
	}
	return n, nil
}

// absent returns why the weight can't be read.
func (w groupWeight) absent() error {
	if _, err := os.Stat(string(w)); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s can't be read", w)
	}
	return fmt.Errorf("%s: there is none: %w", w, weightjournal.ErrOff)
}

// Put implements weightjournal.Weight.
func (w groupWeight) Put(weight int64) error {
	f, err := os.OpenFile(string(w), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(strconv.AppendInt(nil, weight, 10))
	return errors.Join(err, f.Close())
}

// machineGroup returns the directory of the cgroup that a machine has to itself.
func (c *CPUs) machineGroup(pid int) (dir string, v1 bool, err error) {
	path, v1, ok := c.pathOf(pid)
	if !ok || strings.HasPrefix(path, "/..") {
		return "", v1, fmt.Errorf("process %d: its cgroup can't be seen", pid)
	}
	root := c.cgroups
	if v1 {
		root = filepath.Join(root, "cpu")
	}
	path = filepath.Clean("/" + path)
	if ofThread.MatchString(filepath.Base(path)) {
		path = filepath.Dir(path)
		if scope := filepath.Dir(path); filepath.Base(path) == "libvirt" && strings.HasSuffix(scope, ".scope") {
			path = scope // the groups below are the machine's only ones
		}
		if path == "/" {
			return "", v1, errNoGroup
		}
		return filepath.Join(root, path), v1, nil
	}
	dir = filepath.Join(root, path)
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if path == "/" || err == nil && strings.TrimSpace(string(text)) != strconv.Itoa(pid) {
		return "", v1, errNoGroup
	}
	return dir, v1, err
}

// Raise implements hypervisor.Raiser.
func (r *Raiser) Raise(domain string, weight int64) (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.weights.Raise(domain, weight)
}

// Restore implements hypervisor.Raiser.
func (r *Raiser) Restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.weights.Restore()
}

// plain returns a group's configured weight where its file has text.
func (r *Raiser) plain(file, text string) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if r == nil || err != nil {
		return text
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if set := r.weights.Plain(weightjournal.Record{File: file}, n); set != n {
		return strconv.FormatInt(set, 10)
	}
	return text
}

// weighOthers sets the weights of the other CPU consumers beside the groups.
func (r *Raiser) weighOthers(all []hypervisor.Group, mine map[string]bool) {
	now := time.Now()
	r.use.Next()
	others := make(map[string]int64)
	for i := range all {
		parent := all[i].Parent
		sum, known := others[parent]
		if !known {
			entries, _ := os.ReadDir(parent)
			for _, e := range entries {
				dir := filepath.Join(parent, e.Name())
				weight, ok := weightOf(dir)
				if !e.IsDir() || !ok || mine[filepath.Join(dir, "cpu.weight")] || mine[filepath.Join(dir, "cpu.shares")] {
					continue
				}
				used, ok := r.host.usageOf(dir)
				if r.use.Busy(dir, used, now) && ok {
					sum += weight
				}
			}
			others[parent] = sum
		}
		all[i].Others = sum
	}
}

// weightOf returns a group's weight, in the terms of its cgroup version.
func weightOf(dir string) (int64, bool) {
	for _, name := range []string{"cpu.weight", "cpu.shares"} {
		if text, there, _ := setting(filepath.Join(dir, name)); there {
			n, err := strconv.ParseInt(text, 10, 64)
			return n, err == nil && n > 0
		}
	}
	return 0, false
}

// usageOf returns the CPU time that a group has used. Version 1 counts it in a hierarchy of its own.
func (c *CPUs) usageOf(dir string) (time.Duration, bool) {
	if path, err := filepath.Rel(filepath.Join(c.cgroups, "cpu"), dir); err == nil && filepath.IsLocal(path) {
		text, _, _ := setting(filepath.Join(c.cgroups, "cpuacct", path, "cpuacct.usage"))
		n, err := strconv.ParseInt(text, 10, 64)
		return time.Duration(n), err == nil
	}
	text, there, _ := setting(filepath.Join(dir, "cpu.stat"))
	fields := strings.Fields(text)
	if !there || len(fields) < 2 || fields[0] != "usage_usec" {
		return 0, false
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	return time.Duration(n) * time.Microsecond, err == nil
}
