package vm

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An inventory counts a stage's resources on the host: files, sockets, processes, and the
// descriptors of the product's processes. It ignores numbers in names.
type inventory map[string]int

// process is a process of the stage.
type process struct {
	pid     int
	program string // the base name of its file; empty: a zombie
	command string
}

// processes returns the processes that the stage started, directly or through other processes, and their zombies.
func (s *stage) processes() (all []process) {
	mark := []byte(s.h.mark() + "\x00")
	parents, dead := map[int]bool{}, map[int]int{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		environment, _ := os.ReadFile(dir + "/environ")
		command, _ := os.ReadFile(dir + "/cmdline")
		program, err := os.Readlink(dir + "/exe")
		switch {
		case err == nil && (bytes.Contains(environment, mark) || bytes.Contains(command, []byte(s.h.dir))):
			parents[pid] = true
			all = append(all, process{pid, filepath.Base(strings.TrimSuffix(program, " (deleted)")), string(command)})
		case err != nil:
			stat, _ := os.ReadFile(dir + "/stat")
			var state string
			var parent int
			fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
			if state == "Z" {
				dead[pid] = parent
			}
		}
	}
	for pid, parent := range dead {
		if parents[parent] {
			all = append(all, process{pid: pid})
		}
	}
	return all
}

// name returns the role of a process, or its program.
func (p process) name() string {
	args := strings.Split(strings.TrimRight(p.command, "\x00"), "\x00")
	switch {
	case p.program == "":
		return "a process that nobody waited for"
	case p.program == "pegasusd" && len(args) > 1 && args[1] == "hub":
		return "hub of " + args[len(args)-1]
	case p.program == "pegasusd" && strings.HasPrefix(args[0], "pegasusd worker"):
		return args[0]
	case p.program == "pegasusd" && len(args) > 1 && !strings.HasPrefix(args[1], "-"):
		return "pegasusd " + args[1]
	case p.program == "qemu-system-x86_64":
		for _, a := range args {
			if name, ok := strings.CutPrefix(a, "guest="); ok {
				return "QEMU of " + strings.Split(name, ",")[0]
			}
		}
	}
	return p.program
}

// ours reports whether a process belongs to the product.
func (p process) ours() bool { return p.program == "pegasusd" || p.program == "pegasus-libvirt" }

// descriptors returns a process's open files. The number of its pidfds of a live process depends on
// whether it has started or found that process, so only the pidfds of ended processes count.
func (p process) descriptors() (targets []string) {
	dir := fmt.Sprintf("/proc/%d/", p.pid)
	all, _ := os.ReadDir(dir + "fd")
	for _, fd := range all {
		target, err := os.Readlink(dir + "fd/" + fd.Name())
		if strings.Contains(target, "pidfd") {
			info, _ := os.ReadFile(dir + "fdinfo/" + fd.Name())
			if !bytes.Contains(info, []byte("\nPid:\t-1\n")) {
				continue
			}
			target = "a process that has gone"
		}
		if err == nil {
			targets = append(targets, target)
		}
	}
	return targets
}

var (
	digits = regexp.MustCompile(`[0-9]+`)
	spares = regexp.MustCompile(`/pegasus(-[0-9a-f]+)?\.spare/`)
)

// plain returns a name without the parts that differ between runs.
func (s *stage) plain(name string) string {
	name = strings.NewReplacer(s.h.regions, "REGIONS", s.h.dir, "DIR").Replace(name)
	name = spares.ReplaceAllString(name, "/") // Go's runtime opens a group's files before the worker is put there, or after
	return digits.ReplaceAllString(name, "N")
}

// inventory returns the present inventory.
func (s *stage) inventory() inventory {
	found := inventory{}
	for _, dir := range []string{s.h.dir, s.h.regions} {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil {
				found["file "+s.plain(path)]++
			}
			return nil
		})
	}
	sockets, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(sockets)) {
		f := strings.Fields(line)
		path := f[len(f)-1]
		listens := len(f) > 3 && f[3] == "00010000" // a connected socket is counted as a descriptor of its process
		if listens && (strings.HasPrefix(path, s.h.dir) || strings.HasPrefix(path, s.h.regions)) {
			found["socket "+s.plain(path)]++
		}
	}
	for _, p := range s.processes() {
		found["process "+p.name()]++
		if !p.ours() {
			continue
		}
		for _, target := range p.descriptors() {
			found["descriptor of "+p.name()+": "+s.plain(target)]++
		}
	}
	for _, name := range s.script.Names() {
		d := s.h.domain(name)
		found["processes that the daemon serves in "+name] = d.Processes
		found["bytes of device memory of "+name] = int(d.Memory)
	}
	return found
}

// beside returns the differences between the present inventory and the usual one.
func (now inventory) beside(usual inventory) string {
	var b strings.Builder
	all := maps.Clone(now)
	maps.Copy(all, usual)
	for _, what := range slices.Sorted(maps.Keys(all)) {
		if now[what] != usual[what] {
			fmt.Fprintf(&b, "%s: %d, not %d\n", what, now[what], usual[what])
		}
	}
	return b.String()
}

// settle makes the present inventory the usual one, once it stays the same.
func (s *stage) settle() {
	s.Helper()
	before := inventory{}
	for same := 0; same < 3; same++ {
		time.Sleep(500 * time.Millisecond)
		now := s.inventory()
		if now.beside(before) != "" {
			same = 0
		}
		before = now
	}
	s.usual, s.memory = before, s.resident()
}

// leftTime bounds the time until an event's leftovers are gone.
const leftTime = soon

// moreMemory bounds the growth of each of the product's processes, in KiB, over all events.
const moreMemory = 16 << 10

// checkLeft checks that the inventory is the usual one again.
func (s *stage) checkLeft() {
	s.Helper()
	began := time.Now()
	for {
		differs := s.inventory().beside(s.usual)
		if differs == "" {
			break
		}
		if time.Since(began) > leftTime {
			s.Fatalf("what there is isn't what there was before:\n%s", differs)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for name, now := range s.resident() {
		if was := s.memory[name]; now > was+moreMemory {
			s.Errorf("%s has %d KiB of memory, and had %d", name, now, was)
		}
	}
}

// resident returns the memory of daemon, hubs and pegasus-libvirt in KiB, without shared memory.
func (s *stage) resident() map[string]int {
	all := map[string]int{}
	for _, p := range s.processes() {
		name := p.name()
		if p.pid == s.h.daemon.Process.Pid {
			name = "daemon"
		} else if !strings.HasPrefix(name, "hub of ") && name != "pegasus-libvirt" {
			continue
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "RssAnon:" {
				all[name], _ = strconv.Atoi(f[1])
			}
		}
	}
	return all
}
