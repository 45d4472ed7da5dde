package main

import (
	"errors"
	"flag"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A command's usage line names each of its flags except --runtime-dir, which all have, and those of earlier releases.
func TestUsageNamesFlags(t *testing.T) {
	for _, cmd := range commands() {
		c := newCall(&cmd, &streams{strings.NewReader(""), io.Discard, io.Discard})
		if err := cmd.run(c, []string{"--help"}); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s --help: %v", cmd.name, err)
			continue
		}
		c.flags.VisitAll(func(f *flag.Flag) {
			name := "--" + f.Name
			if len(f.Name) == 1 {
				name = "-" + f.Name
			}
			if f.Name != "runtime-dir" && !slices.Contains(cmd.older, f.Name) && !strings.Contains(cmd.args, name) {
				t.Errorf("pegasus %s %s: %s is missing", cmd.name, cmd.args, name)
			}
		})
	}
}

// flagLine matches a flag of a help text: its name, the name of its value if it takes one, and the rest.
var flagLine = regexp.MustCompile(`^  --([a-zA-Z-]+)( [A-Z]+)? {1,}([a-z"].*|[A-Z][a-zA-Z]* [a-z].*)$`)

// In each command's help a flag that takes a value is followed by the name of the value, and a flag that takes none by
// its text.
func TestHelpNamesValues(t *testing.T) {
	for _, cmd := range commands() {
		var out strings.Builder
		c := newCall(&cmd, &streams{strings.NewReader(""), &out, io.Discard})
		if err := cmd.run(c, []string{"--help"}); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s --help: %v", cmd.name, err)
			continue
		}
		describe(&out, &cmd, c.flags)
		_, lines, _ := strings.Cut(out.String(), "\nFlags:\n")
		for line := range strings.Lines(lines) {
			m := flagLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil {
				t.Errorf("pegasus %s --help: %q has another form than --NAME VALUE TEXT", cmd.name, line)
				continue
			}
			kind, _ := c.flags.Lookup(m[1]).Value.(interface{ IsBoolFlag() bool })
			if takesValue := kind == nil || !kind.IsBoolFlag(); takesValue != (m[2] != "") {
				t.Errorf("pegasus %s --help: %q: got the value's name %q, want one: %v", cmd.name, line, m[2], takesValue)
			}
		}
	}
}
