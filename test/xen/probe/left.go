package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/privcmd"
)

// left counts the product's resources in Dom0: processes, their descriptors and mappings, and, from the
// hypervisor's prints, granted pages that other domains use, and event channels. It ignores numbers in names.
func left() error {
	found := map[string]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if program, _ := os.Readlink(dir + "/exe"); strings.TrimSuffix(program, " (deleted)") != "/bin/pegasusd" {
			continue
		}
		command, _ := os.ReadFile(dir + "/cmdline")
		name := roleOf(strings.Split(strings.TrimRight(string(command), "\x00"), "\x00"))
		found["process "+name]++
		maps, _ := os.ReadFile(dir + "/maps")
		found["mapping of pages of domUs by "+name] += bytes.Count(maps, []byte("/dev/xen/gntdev"))
		for _, target := range openBy(dir) {
			found[target+" open by "+name]++
		}
	}
	for _, dir := range []string{"/run/pegasus/hubs", "/run/pegasus/workers"} {
		files, _ := os.ReadDir(dir)
		found["files in "+dir] = len(files)
	}
	if err := leftOfXen(found); err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(found)) {
		if found[what] != 0 {
			fmt.Printf("%s: %d\n", what, found[what])
		}
	}
	return nil
}

var number = regexp.MustCompile(`[0-9]+`)

// openBy returns a process's descriptors. It leaves out the pidfds of live processes: their number depends on whether the process
// has started or adopted them.
func openBy(dir string) (all []string) {
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		target, err := os.Readlink(dir + "/fd/" + fd.Name())
		if strings.Contains(target, "pidfd") {
			info, _ := os.ReadFile(dir + "/fdinfo/" + fd.Name())
			if !bytes.Contains(info, []byte("\nPid:\t-1\n")) {
				continue
			}
			target = "a process that has gone"
		}
		if err == nil {
			all = append(all, number.ReplaceAllString(target, "N"))
		}
	}
	return all
}

// roleOf returns the role of a pegasusd process: hub, worker or daemon.
func roleOf(args []string) string {
	switch {
	case len(args) > 1 && args[1] == "hub":
		for i, a := range args[:len(args)-1] {
			if a == "--domain" {
				return "hub of " + args[i+1]
			}
		}
	case strings.HasPrefix(args[0], "pegasusd worker"):
		return args[0]
	}
	return "daemon"
}

// leftOfXen adds the hypervisor's resources, which the hypervisor prints for these debug keys.
func leftOfXen(found map[string]int) error {
	calls, err := privcmd.Open()
	if err != nil {
		return err
	}
	defer calls.Close()
	x, err := control.New(calls)
	if err != nil {
		return err
	}
	all, err := x.Domains()
	if err != nil {
		return err
	}
	for _, d := range all {
		found["domain"]++
		if d.Flags&control.DomainDying != 0 {
			found["domain that is dying"]++
		}
	}
	for key, count := range map[string]func(map[string]int, string){"g": countGrants, "e": countPorts} {
		text, err := press(x, key)
		if err != nil {
			return err
		}
		if !strings.Contains(text, "'"+key+"' pressed") {
			return fmt.Errorf("what key %s prints isn't on Xen's console, but %d bytes: is conring_size too small?", key, len(text))
		}
		count(found, text)
	}
	return nil
}

func press(x *control.Xen, key string) (text string, err error) {
	read := func(from uint32) (next uint32, err error) {
		for text = ""; ; {
			part, to, err := x.Console(from)
			if err != nil || len(part) == 0 {
				return to, err
			}
			text, from = text+string(part), to
		}
	}
	next, err := read(0)
	if err == nil {
		err = x.Press(key)
	}
	if err == nil {
		_, err = read(next)
	}
	return text, err
}

// activeGrant matches an active entry: its number, the domain that uses it, the page and the number of uses.
var activeGrant = regexp.MustCompile(`\(XEN\) +\[0x[0-9a-f]+\] +([0-9]+) 0x[0-9a-f]+ 0x([0-9a-f]+) `)

// countGrants counts pages that other domains use.
func countGrants(found map[string]int, text string) {
	for _, m := range activeGrant.FindAllStringSubmatch(text, -1) {
		found["granted page in use by domain "+m[1]]++
	}
}

var (
	portsOf     = regexp.MustCompile(`Event channel information for domain ([0-9]+):`)
	boundPort   = regexp.MustCompile(`: s=3 .* d=([0-9]+) p=`)
	unboundPort = regexp.MustCompile(`: s=2 .* d=([0-9]+)`)
)

// countPorts counts event channels between domains.
func countPorts(found map[string]int, text string) {
	of := ""
	for line := range strings.Lines(text) {
		if m := portsOf.FindStringSubmatch(line); m != nil {
			of = "a domU's"
			if m[1] == "0" {
				of = "Dom0's"
			}
		}
		if boundPort.MatchString(line) {
			found["event channel of "+of]++
		}
		if unboundPort.MatchString(line) {
			found["event channel that nobody is bound to, of "+of]++
		}
	}
}
