package linux

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"pegasus/hypervisor"
	"pegasus/vcpu"
)

// niceWeights are the weights of threads in the kernel's fair scheduler, from nice -20 to 19.
var niceWeights = [40]float64{
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277,
	1024, 820, 655, 526, 423, 335, 272, 215, 172, 137,
	110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
}

// NiceCredits returns the CPU weight of a domain with processes of a niceness from -20 to 19, in a cgroup without a
// weight of its own that it shares with others.
func NiceCredits(nice int) vcpu.Credits {
	return vcpu.Credits(math.Round(niceWeights[nice+20] / niceWeights[20] * float64(vcpu.DefaultCredits)))
}

// The kernel's default weights of a cgroup: cpu.weight of version 2, cpu.shares of version 1.
const (
	plainWeight = 100
	plainShares = 1024
)

// Bounds of the depth of a process's cgroups, and of a domain's processes, that are read.
const (
	maxDepth     = 32
	maxProcesses = 64
)

// cgroup has the settings of a group of processes, with those of all groups above it.
type cgroup struct {
	path   string  // the lowest that counts
	weight float64 // relative to the default
	cap    int     // in % of one CPU; 0: none
}

// Weights implements hypervisor.CPUs. A domain's weight is that of its processes' cgroup: the product of cpu.weight
// (or cpu.shares) on the way down to it, so that the level at which it was set does not matter. Among several domains
// in one cgroup, their niceness counts. Of several processes the heaviest is the domain's. A virtual machine's group
// is that of all its threads, as libvirt creates it, and not those of single threads within.
func (c *CPUs) Weights(of []hypervisor.Guests) []hypervisor.Weight {
	type place struct {
		path string // as the process has it
		vm   bool
	}
	groups := make(map[place]cgroup)
	users := make(map[string]map[string]bool)
	type process struct {
		group cgroup
		nice  float64
	}
	all := make([][]process, len(of))
	for i, g := range of {
		for _, pid := range g.Processes[:min(len(g.Processes), maxProcesses)] {
			path, v1, ok := c.pathOf(pid)
			if !ok {
				continue
			}
			stat, ok := readStat(filepath.Join(c.proc, strconv.Itoa(pid), "stat"))
			if !ok {
				continue
			}
			at := place{path, g.VM}
			group, known := groups[at]
			if !known {
				group = c.group(path, v1, g.VM)
				groups[at] = group
			}
			if users[group.path] == nil {
				users[group.path] = make(map[string]bool)
			}
			users[group.path][g.Domain] = true
			all[i] = append(all[i], process{group, niceWeights[min(max(stat.nice+20, 0), 39)] / niceWeights[20]})
		}
	}
	weights := make([]hypervisor.Weight, len(of))
	for i := range of {
		for n, p := range all[i] {
			weight := p.group.weight * float64(vcpu.DefaultCredits)
			if len(users[p.group.path]) > 1 {
				weight *= p.nice
			}
			credits := vcpu.Credits(min(max(math.Round(weight), float64(vcpu.MinCredits)), float64(vcpu.MaxCredits)))
			w := &weights[i]
			w.Credits = max(w.Credits, credits)
			if n == 0 || p.group.cap == 0 {
				w.Cap = p.group.cap
			} else if w.Cap != 0 {
				w.Cap = max(w.Cap, p.group.cap)
			}
		}
	}
	c.weights = make(map[string]hypervisor.Weight, len(of))
	for i, g := range of {
		c.weights[g.Domain] = weights[i]
	}
	return weights
}

// pathOf returns the cgroup of a process for CPU time.
func (c *CPUs) pathOf(pid int) (path string, v1, ok bool) {
	text, err := os.ReadFile(filepath.Join(c.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", false, false
	}
	for line := range strings.Lines(string(text)) {
		id, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, at, found := strings.Cut(rest, ":")
		switch {
		case !found:
		case id == "0":
			path, ok = at, true
		default:
			for name := range strings.SplitSeq(controllers, ",") {
				if name == "cpu" { // no such line exists if version 2 has the controller
					return at, true, true
				}
			}
		}
	}
	return path, false, ok
}

// group reads the settings on the way down to a cgroup; for a virtual machine's thread, down to the group of the
// machine.
func (c *CPUs) group(path string, v1, vm bool) cgroup {
	g := cgroup{path: "/", weight: 1}
	dir, file, plain := c.cgroups, "cpu.weight", float64(plainWeight)
	if v1 {
		dir, file, plain = filepath.Join(dir, "cpu"), "cpu.shares", plainShares
	}
	at := "/"
	if strings.HasPrefix(path, "/..") {
		path = "/" // outside this daemon's cgroup namespace
	}
	names := strings.Split(strings.Trim(filepath.Clean("/"+path), "/"), "/")
	machine := vm && ofThread.MatchString(names[len(names)-1])
	if machine {
		names = names[:len(names)-1]
	}
	for _, name := range names[:min(len(names), maxDepth)] {
		at = filepath.Join(at, name)
		weight, there, ours := setting(filepath.Join(dir, at, file))
		weight = c.raiser.plain(filepath.Join(dir, at, file), weight)
		if there && !ours {
			break // the guest may be able to write this
		}
		g.path = at
		if n, err := strconv.ParseFloat(weight, 64); err == nil && n > 0 {
			g.weight *= n / plain
		}
		if most := capOf(filepath.Join(dir, at), v1); most > 0 && (g.cap == 0 || most < g.cap) {
			g.cap = most
		}
	}
	if machine {
		if most := capOfVCPUs(filepath.Join(dir, at), v1); most > 0 && (g.cap == 0 || most < g.cap) {
			g.cap = most
		}
	}
	return g
}

// ofThread matches the groups that libvirt creates for single threads of a machine.
var ofThread = regexp.MustCompile(`^(emulator|vcpu[0-9]+|iothread[0-9]+)$`)

// capOfVCPUs returns the limit of CPU time of a machine's vCPUs together, by their groups, which is where libvirt
// sets vcpu_quota; 0: none.
func capOfVCPUs(dir string, v1 bool) (sum int) {
	groups, _ := filepath.Glob(filepath.Join(dir, "vcpu[0-9]*"))
	for _, g := range groups {
		most := capOf(g, v1)
		if most == 0 {
			return 0
		}
		sum = int(min(int64(sum)+int64(most), math.MaxInt32))
	}
	return sum
}

// capOf returns the limit of CPU time of a cgroup, in % of one CPU; 0: none.
func capOf(dir string, v1 bool) int {
	var quota, period string
	if v1 {
		quota, _, _ = setting(filepath.Join(dir, "cpu.cfs_quota_us"))
		period, _, _ = setting(filepath.Join(dir, "cpu.cfs_period_us"))
	} else {
		text, _, _ := setting(filepath.Join(dir, "cpu.max"))
		quota, period, _ = strings.Cut(text, " ")
	}
	q, err := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return int(min(max(math.Ceil(100*q/p), 1), math.MaxInt32))
}

// setting reads a file of one line. ours reports that only the host, or this daemon's user, could have written it.
func setting(path string) (text string, there, ours bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", false, false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	ours = ok && (owner.Uid == 0 || int(owner.Uid) == os.Geteuid()) && info.Mode()&0o022 == 0
	var buf [64]byte
	n, err := f.Read(buf[:])
	if err != nil {
		return "", true, ours
	}
	return string(bytes.TrimSpace(buf[:n])), true, ours
}
