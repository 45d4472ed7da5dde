package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"pegasus/internal/usage"
)

// A command's usage line names each of its flags except --runtime-dir, which all have, and those of earlier releases.
func TestUsageNamesFlags(t *testing.T) {
	for _, cmd := range commands() {
		c := newCall(&cmd, &streams{strings.NewReader(""), io.Discard, io.Discard})
		cmd.run(c)
		c.flags.VisitAll(func(f *pflag.Flag) {
			name := "--" + f.Name
			if f.Name != "runtime-dir" && !slices.Contains(cmd.older, f.Name) && !strings.Contains(cmd.args, name) {
				t.Errorf("pegasus %s %s: %s is missing", cmd.name, cmd.args, name)
			}
		})
	}
}

// flagLine matches a flag of a help text: its name, the name of its value if it takes one, and the rest.
var flagLine = regexp.MustCompile(`^  (?:-[a-zA-Z], )?--([a-zA-Z-]+)( [A-Z]+)? {1,}([a-z"].*|[A-Z][a-zA-Z]* [a-z].*)$`)

// In each command's help a flag that takes a value is followed by the name of the value, and a flag that takes none by
// its text. No line has more than 80 columns.
func TestHelpNamesValues(t *testing.T) {
	for _, cmd := range commands() {
		var out strings.Builder
		if code := run([]string{cmd.name, "--help"}, &streams{strings.NewReader(""), &out, io.Discard}); code != exitOK {
			t.Errorf("%s --help: exit status %d", cmd.name, code)
			continue
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > usage.Width {
				t.Errorf("pegasus %s --help: %d columns, want at most %d: %s", cmd.name, n, usage.Width, line)
			}
		}
		c := newCall(&cmd, &streams{strings.NewReader(""), io.Discard, io.Discard})
		cmd.run(c)
		_, lines, _ := strings.Cut(out.String(), "\nFlags:\n")
		lines = regexp.MustCompile(`\n {8,}`).ReplaceAllString(lines, " ") // the rest of a long one
		for line := range strings.Lines(lines) {
			m := flagLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil {
				t.Errorf("pegasus %s --help: %q has another form than --NAME VALUE TEXT", cmd.name, line)
				continue
			}
			if takesValue := c.flags.Lookup(m[1]).NoOptDefVal == ""; takesValue != (m[2] != "") {
				t.Errorf("pegasus %s --help: %q: got the value's name %q, want one: %v", cmd.name, line, m[2], takesValue)
			}
		}
	}
}

// The spellings of Go's package flag, which earlier releases had.
func TestOlderSpellings(t *testing.T) {
	for _, test := range []struct{ given, want string }{
		{"domains -json", "domains --json"},
		{"domains -json=true -- -json", "domains --json=true -- -json"},
		{"why web -json", "why web --json"},
		{"smi -L -domain -json", "smi -L --domain -json"},
		{"smi --L", "smi -L"},
		{"run -domain web bench -seconds 3", "run --domain web bench -seconds 3"},
		{"run -domain=web -- bench -seconds 3", "run --domain=web -- bench -seconds 3"},
		{"hook -regions /r web prepare begin -", "hook --regions /r web prepare begin -"},
		{"sim -list", "sim --list"},
		{"-h", "help"},
		{"-- domains -json", "domains --json"},
		{"-version -json", "version --json"},
		{"set web credits=-1", "set web credits=-1"},
	} {
		root := tree(&streams{strings.NewReader(""), io.Discard, io.Discard})
		anew, _ := spelledAnew(root, strings.Fields(test.given))
		if got := strings.Join(anew, " "); got != test.want {
			t.Errorf("pegasus %s: got %s, want %s", test.given, got, test.want)
		}
	}
}

// A command, a flag, a policy and a scenario that are misspelled are answered with the nearest.
func TestDidYouMean(t *testing.T) {
	for _, test := range []struct{ given, want string }{
		{"domians", `pegasus: there is no command "domians"; did you mean "domains"?`},
		{"help acelerators", `did you mean "accelerators"?`},
		{"domains --josn", `pegasus domains: there is no flag --josn; did you mean "--json"?`},
		{"--json domains", "pegasus: there is no flag --json before the command; flags stand after it"},
		{"-- domians", `did you mean "domains"?`},
		{"config --check --changes", "--changes is of the running daemon, --check of files"},
		{"sim run P44", `did you mean "P4"?`},
		{"completion bsh", `did you mean "bash"?`},
		{"demo --seconds x", `pegasus demo: invalid value "x" for flag --seconds: invalid syntax`},
	} {
		var said strings.Builder
		run(strings.Fields(test.given), &streams{strings.NewReader(""), io.Discard, &said})
		if !strings.Contains(said.String(), test.want) {
			t.Errorf("pegasus %s: got %s, want %s", test.given, said.String(), test.want)
		}
	}
}

// Every command has a man page, and the pages are the same each time.
func TestManPages(t *testing.T) {
	texts := map[string]string{}
	for range 2 {
		dir := t.TempDir()
		if code := run([]string{"document", "man", dir}, &streams{strings.NewReader(""), io.Discard, os.Stderr}); code != exitOK {
			t.Fatalf("exit status %d", code)
		}
		for _, cmd := range shown() {
			name := "pegasus-" + cmd.name + ".1"
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Error(err)
			}
			if was, again := texts[name]; again && was != string(text) {
				t.Errorf("%s differs from the one before", name)
			}
			texts[name] = string(text)
		}
	}
}

// An argument that is too long for every command is refused as such, but the arguments of a program are not pegasus'.
func TestLongArguments(t *testing.T) {
	long := strings.Repeat("x", 70000)
	for _, args := range [][]string{{long}, {"help", long}, {"domains", long}, {"domains", "--" + long}, {"create", "web", "credits=" + long}, {"set", "--", long, "credits=1"},
		{"policy", "--accelerator", long, "none"}, {"run", "--domain", long, "--", "true"}, {"sim", "run", long}, {"attach", long}} {
		var said strings.Builder
		code := run(args, &streams{strings.NewReader(""), io.Discard, &said})
		if code != exitUsage || !strings.Contains(said.String(), "at most 4096 are allowed") || said.Len() > 200 {
			t.Errorf("pegasus %.80s: got status %d, %.300s", strings.Join(args, " "), code, said.String())
		}
	}
	root := tree(&streams{strings.NewReader(""), io.Discard, io.Discard})
	for args, want := range map[string]int{"run --domain web -- sh " + long: 3, "run --domain web sh " + long: 3, "run sh -c " + long: 1, "__complete domains " + long: 0} {
		if _, own := spelledAnew(root, strings.Fields(args)); own != want {
			t.Errorf("pegasus %.40s: got %d arguments of its own, want %d", args, own, want)
		}
	}
}
