package vm

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A script is machines and what happens to them, as in testdata/events.txt.
type script struct {
	machines []credited
	events   []event
}

type credited struct {
	name    string
	credits int
	device  string // what its region is to it; empty: what it is unless something else is asked for
}

// event is a line of a script.
type event struct {
	line int
	what string
	whom string // a machine, or toHost
	then string // how the machine's program takes it
}

// toHost is whom an event happens to that is no machine's.
const toHost = "-"

// How a program takes an event, beside that it fails.
const (
	goesOn     = "goes on"
	isFollowed = "is followed"
	boots      = "boots"
	failsWith  = "fails "
)

func (e event) String() string { return fmt.Sprintf("%-30s  %-5s  %s", e.what, e.whom, e.then) }

func (s script) names() (all []string) {
	for _, m := range s.machines {
		all = append(all, m.name)
	}
	return all
}

// String is the script as a file has it.
func (s script) String() string {
	var b strings.Builder
	for _, m := range s.machines {
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("machine  %s  %d  %s", m.name, m.credits, m.device)))
	}
	for _, e := range s.events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

func readScript(t *testing.T, path string) script {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseScript(string(text))
	if err != nil {
		t.Fatalf("%s:%v", path, err)
	}
	return s
}

var columns = regexp.MustCompile(`\s{2,}`)

func parseScript(text string) (s script, err error) {
	known := map[string]bool{toHost: true}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := columns.Split(line, -1)
		device := ""
		if f[0] == "machine" && len(f) == 4 {
			f, device = f[:3], f[3]
		}
		if len(f) != 3 {
			return s, fmt.Errorf("%d: %q has %d columns, not 3: two spaces are between them", n, line, len(f))
		}
		if f[0] == "machine" {
			credits, err := strconv.Atoi(f[2])
			if err != nil || credits < 1 || known[f[1]] {
				return s, fmt.Errorf("%d: %q: want a name of its own and credits", n, line)
			}
			known[f[1]] = true
			s.machines = append(s.machines, credited{f[1], credits, device})
			continue
		}
		e := event{n, f[0], f[1], f[2]}
		if err := e.check(known); err != nil {
			return s, fmt.Errorf("%d: %v", n, err)
		}
		s.events = append(s.events, e)
	}
	return s, nil
}

func (e event) check(machines map[string]bool) error {
	d, ok := findDeed(e.what)
	switch {
	case !ok:
		return fmt.Errorf("nothing is known that is called %q", e.what)
	case !machines[e.whom]:
		return fmt.Errorf("there is no machine %q", e.whom)
	case d.onHost != (e.whom == toHost):
		return fmt.Errorf("%q happens to a machine or to the host, not to %q", e.what, e.whom)
	case e.then != goesOn && e.then != isFollowed && e.then != boots && !strings.HasPrefix(e.then, failsWith):
		return fmt.Errorf("%q isn't how a program takes it", e.then)
	}
	return nil
}

// A mistake in a script is named with its line.
func TestScripts(t *testing.T) {
	for text, want := range map[string]string{
		"machine  one  1  ivshmem\nreset  one  boots\n":         "",
		"machine  one  1\nreset  one  boots\n":                  "",
		"machine  one  1\nreset one  boots\n":                   `2: "reset one  boots" has 2 columns, not 3: two spaces are between them`,
		"machine  one  1\nresist  one  boots\n":                 `2: nothing is known that is called "resist"`,
		"machine  one  1\n# two\n\nreset  two  boots\n":         `4: there is no machine "two"`,
		"machine  one  1\nreset  -  boots\n":                    `2: "reset" happens to a machine or to the host, not to "-"`,
		"machine  one  1\nkill daemon  one  goes on\n":          `2: "kill daemon" happens to a machine or to the host, not to "one"`,
		"machine  one  1\nreset without daemon  one  boots\n":   "",
		"machine  one  1\nreset without libvirtd  one  boots\n": `2: nothing is known that is called "reset without libvirtd"`,
		"machine  one  1\nreset twice in 1.5s  one  boots\n":    "",
		"machine  one  1\nreset twice  one  boots\n":            `2: nothing is known that is called "reset twice"`,
		"machine  one  1\nreset in 1s  one  boots\n":            `2: nothing is known that is called "reset in 1s"`,
		"machine  one  1\nreset  one  sulks\n":                  `2: "sulks" isn't how a program takes it`,
		"machine  one  1\nmachine  one  2\n":                    `2: "machine  one  2": want a name of its own and credits`,
		"machine  one  many\n":                                  `1: "machine  one  many": want a name of its own and credits`,
	} {
		s, err := parseScript(text)
		if got := fmt.Sprint(err); err != nil && got != want || err == nil && want != "" {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if want != "" {
			continue
		}
		if again, err := parseScript(s.String()); err != nil || fmt.Sprint(again.machines) != fmt.Sprint(s.machines) || again.events[0].String() != s.events[0].String() {
			t.Errorf("%q is written as %q: %v", text, s, err)
		}
	}
}
