package linux

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/raised"
)

// Raiser implements hypervisor.Raiser with cpu.weight, or cpu.shares of version 1.
//
// Before a weight is changed for the first time it is written down in a directory what
// is set, and which daemon changes it: if that dies, the machine's hub or the next
// daemon puts it back.
type Raiser struct {
	host *CPUs // where groups are
	dir  string
	log  *slog.Logger

	mu     sync.Mutex
	groups map[string]*raisable // by domain
	told   map[string]string    // by domain: why it has none, as was logged

	used map[string]busyness // by sibling's directory
}

// raisable is a group whose weight we may change.
type raisable struct {
	file  string
	set   int64 // by others
	wrote int64 // by us, last; 0: nothing since set was read
	note  raised.Record
}

// busyness is the CPU time that a group had used when it was looked at.
type busyness struct {
	used time.Duration
	at   time.Time
}

// The weights that there can be.
const (
	leastWeight, mostWeight = 1, 10000
	leastShares, mostShares = 2, 1 << 18
)

// Raiser returns the one of this host, which writes down what it changes in dir. From
// now on the host's weights are what is set for machines, whatever they have.
func (c *CPUs) Raiser(dir string) *Raiser {
	c.raiser = &Raiser{host: c, dir: dir, log: c.log, groups: make(map[string]*raisable), told: make(map[string]string), used: make(map[string]busyness)}
	return c.raiser
}

// Groups implements hypervisor.Raiser. A machine's group is the one that libvirt made for
// all its threads, or one in which the emulator is alone.
func (r *Raiser) Groups(of []hypervisor.Guests) []hypervisor.Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []hypervisor.Group
	seen := make(map[string]bool)
	for _, g := range of {
		group, err := r.find(g)
		if err == nil && seen[r.groups[g.Domain].file] {
			err = errShared
		}
		if err != nil {
			r.complain(g.Domain, err)
			continue
		}
		seen[r.groups[g.Domain].file] = true
		all = append(all, group)
	}
	for domain, g := range r.groups {
		if !slices.ContainsFunc(all, func(o hypervisor.Group) bool { return o.Domain == domain }) && g.wrote == 0 {
			r.forget(domain)
		}
	}
	r.weighOthers(all, seen)
	return all
}

var (
	errNoMachine = errors.New("it is no virtual machine")
	errNoGroup   = errors.New("its emulator is in a cgroup with other processes; libvirt gives it one of its own, as does `systemd-run --scope`")
	errGuests    = errors.New("its cgroup's weight may be changed by others than root")
	errShared    = errors.New("another machine has the same cgroup")
	errNoNumber  = errors.New("its cgroup's weight is no number")
)

// complain says once why a machine's weight isn't changed.
func (r *Raiser) complain(domain string, err error) {
	if r.told[domain] != err.Error() {
		r.told[domain] = err.Error()
		r.log.Warn("the CPU weight of a machine can't follow the accelerator", "domain", domain, "err", err)
	}
}

// find is the group of a machine, with what is set for it now.
func (r *Raiser) find(of hypervisor.Guests) (g hypervisor.Group, err error) {
	if !of.VM || len(of.Processes) == 0 {
		return g, errNoMachine
	}
	path, v1, err := r.host.machineGroup(of.Processes[0])
	if err != nil {
		return g, err
	}
	g = hypervisor.Group{Domain: of.Domain, Least: leastWeight, Most: mostWeight}
	file := filepath.Join(path, "cpu.weight")
	if v1 {
		g.Least, g.Most, file = leastShares, mostShares, filepath.Join(path, "cpu.shares")
	}
	g.Parent = filepath.Dir(path)
	known := r.groups[of.Domain]
	if known == nil || known.file != file {
		r.forget(of.Domain)
		known = &raisable{file: file, note: raised.Record{File: file}}
		r.groups[of.Domain] = known
	}
	if err := r.read(of.Domain, known); err != nil {
		return g, err
	}
	g.Weight = min(max(known.set, g.Least), g.Most)
	if g.Has = known.wrote; g.Has == 0 {
		g.Has = g.Weight
	}
	return g, nil
}

// read sees what is set for a group. What we wrote down of it before, if that was
// something else, doesn't hold any more.
func (r *Raiser) read(domain string, g *raisable) error {
	err := g.read()
	if g.note.Set != g.set {
		g.note.Erase(r.dir, domain)
	}
	return err
}

// read sees what is set for a group: what it has, unless we gave it that.
func (g *raisable) read() error {
	text, there, ours := setting(g.file)
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case !there:
		return fmt.Errorf("%s: there is none", g.file)
	case !ours:
		return errGuests
	case err != nil || n <= 0:
		return errNoNumber
	case n != g.wrote:
		g.set, g.wrote = n, 0
	}
	return nil
}

// machineGroup is the directory of the cgroup that a machine has to itself.
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
			path = scope // what is below is alone in there
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
	if changed, err = r.raise(domain, weight); err != nil {
		r.complain(domain, err)
	} else {
		delete(r.told, domain)
	}
	return changed, err
}

func (r *Raiser) raise(domain string, weight int64) (changed bool, err error) {
	g := r.groups[domain]
	if g == nil {
		return false, fmt.Errorf("domain %q: it has no cgroup of its own", domain)
	}
	had := g.set
	if g.wrote != 0 {
		had = g.wrote
	}
	if err := r.read(domain, g); err != nil {
		return false, err
	}
	if g.wrote == 0 && g.set != had {
		return true, nil
	}
	if weight == g.set {
		return false, g.put(0, g.set)
	}
	if err := g.note.Note(r.dir, domain, g.set, weight); err != nil {
		return false, err
	}
	return false, g.put(weight, weight)
}

// put writes a weight into the group's file.
func (g *raisable) put(wrote, weight int64) error {
	g.wrote = wrote
	f, err := os.OpenFile(g.file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(strconv.AppendInt(nil, weight, 10))
	return errors.Join(err, f.Close())
}

// Restore implements hypervisor.Raiser.
func (r *Raiser) Restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for domain := range r.groups {
		r.forget(domain)
	}
}

// forget gives a group back what is set for it.
func (r *Raiser) forget(domain string) {
	g := r.groups[domain]
	if g == nil {
		return
	}
	if g.wrote != 0 && g.read() == nil && g.wrote != 0 {
		if err := g.put(0, g.set); err != nil {
			r.log.Warn("give a machine back its CPU weight", "domain", domain, "err", err)
		}
	}
	delete(r.groups, domain)
	g.note.Erase(r.dir, domain)
}

// plain is what is set for the group of a file that said text. We may have written
// something else since.
func (r *Raiser) plain(file, text string) string {
	if r == nil {
		return text
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.groups {
		if n, err := strconv.ParseInt(text, 10, 64); g.file == file && err == nil && slices.Contains(g.note.Ours, n) {
			return strconv.FormatInt(g.set, 10)
		}
	}
	return text
}

// someUse is the CPU time, as a part of what passed, that tells a group which wants CPUs
// from one that rests: 1 %.
const someUse = 100

// weighOthers fills in what else wants the CPUs beside the groups.
func (r *Raiser) weighOthers(all []hypervisor.Group, mine map[string]bool) {
	now, before := time.Now(), r.used
	r.used = make(map[string]busyness)
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
				was, seen := before[dir]
				r.used[dir] = busyness{used, now}
				if ok && seen && (used-was.used)*someUse > now.Sub(was.at) {
					sum += weight
				}
			}
			others[parent] = sum
		}
		all[i].Others = sum
	}
}

// weightOf is what a group has, in the terms of its version.
func weightOf(dir string) (int64, bool) {
	for _, name := range []string{"cpu.weight", "cpu.shares"} {
		if text, there, _ := setting(filepath.Join(dir, name)); there {
			n, err := strconv.ParseInt(text, 10, 64)
			return n, err == nil && n > 0
		}
	}
	return 0, false
}

// usageOf is the CPU time that a group has used. Version 1 counts it in a hierarchy of its own.
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
