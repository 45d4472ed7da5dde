// Package events parses scripts of events in virtual machines, and checks the effect of each event on a program that
// computes in the machine all the time, by that program's output (test/programs/witness.c).
//
// Callers: tests that play scripts, with machines under QEMU (test/vm) and under Xen (test/xen).
package events

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// A Script is machines and what happens to them. In a file, each is a line of columns that are two spaces or
// more apart.
type Script struct {
	Machines []Machine
	Events   []Event
}

// A Machine is a line "machine  NAME  CREDITS  MORE", of which the last may be missing.
type Machine struct {
	Name    string
	Credits int
	More    string // its deviation from the usual machine
}

// An Event is any other line: "WHAT  WHOM  THEN".
type Event struct {
	Line int
	What string
	Whom string // a machine, or ToHost
	Then string // how the machine's program takes it
}

// ToHost is the target of an event that happens to the host.
const ToHost = "-"

// How a program takes an event.
const (
	GoesOn     = "goes on"     // it computes on
	IsFollowed = "is followed" // it is killed, and the next one computes
	Boots      = "boots"       // the machine begins anew
	FailsWith  = "fails "      // it gets an error of CUDA's, or "this or that" one, and the next one computes
)

// Known reports whether an event can happen, and whether it happens to the host.
type Known func(what string) (onHost, ok bool)

func (e Event) String() string { return fmt.Sprintf("%-30s  %-5s  %s", e.What, e.Whom, e.Then) }

// Names are those of the machines.
func (s Script) Names() (all []string) {
	for _, m := range s.Machines {
		all = append(all, m.Name)
	}
	return all
}

// String is the script as a file has it.
func (s Script) String() string {
	var b strings.Builder
	for _, m := range s.Machines {
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("machine  %s  %d  %s", m.Name, m.Credits, m.More)))
	}
	for _, e := range s.Events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// Read reads a script's file.
func Read(path string, known Known) (Script, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Script{}, err
	}
	s, err := Parse(string(text), known)
	if err != nil {
		err = fmt.Errorf("%s:%w", path, err)
	}
	return s, err
}

var columns = regexp.MustCompile(`\s{2,}`)

// Parse reads a script. A mistake is named with its line.
func Parse(text string, known Known) (s Script, err error) {
	names := map[string]bool{ToHost: true}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := columns.Split(line, -1)
		more := ""
		if f[0] == "machine" && len(f) == 4 {
			f, more = f[:3], f[3]
		}
		if len(f) != 3 {
			return s, fmt.Errorf("%d: %q has %d columns, not 3: two spaces are between them", n, line, len(f))
		}
		if f[0] == "machine" {
			credits, err := strconv.Atoi(f[2])
			if err != nil || credits < 1 || names[f[1]] {
				return s, fmt.Errorf("%d: %q: want a name of its own and credits", n, line)
			}
			names[f[1]] = true
			s.Machines = append(s.Machines, Machine{f[1], credits, more})
			continue
		}
		e := Event{n, f[0], f[1], f[2]}
		if err := e.check(names, known); err != nil {
			return s, fmt.Errorf("%d: %w", n, err)
		}
		s.Events = append(s.Events, e)
	}
	return s, nil
}

func (e Event) check(machines map[string]bool, known Known) error {
	onHost, ok := known(e.What)
	switch {
	case !ok:
		return fmt.Errorf("nothing is known that is called %q", e.What)
	case !machines[e.Whom]:
		return fmt.Errorf("there is no machine %q", e.Whom)
	case onHost != (e.Whom == ToHost):
		return fmt.Errorf("%q happens to a machine or to the host, not to %q", e.What, e.Whom)
	case e.Then != GoesOn && e.Then != IsFollowed && e.Then != Boots && !strings.HasPrefix(e.Then, FailsWith):
		return fmt.Errorf("%q isn't how a program takes it", e.Then)
	}
	return nil
}
