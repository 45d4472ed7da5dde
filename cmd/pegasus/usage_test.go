package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
)

// A command's usage line names each of its flags except --runtime-dir, which all have.
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
			if f.Name != "runtime-dir" && !strings.Contains(cmd.args, name) {
				t.Errorf("pegasus %s %s: %s is missing", cmd.name, cmd.args, name)
			}
		})
	}
}
