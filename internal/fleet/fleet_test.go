package fleet

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"--json", ""},
		{"--advise --moves 20 --window 0s", ""},
		{"--advise --apply --yes --json", ""},
		{"--listen 127.0.0.1:8080 --direct", ""},
		{"--listen [::1]:8080", ""},
		{"--listen localhost:0", ""},
		{"--listen :8080", "must be an address of the loopback interface"},
		{"--listen 0.0.0.0:8080", "must be an address of the loopback interface"},
		{"--listen example.com:8080", "must be an address of the loopback interface"},
		{"--listen 8080", "--listen: address 8080: missing port"},
		{"--listen 127.0.0.1:8080 --json", "--listen excludes"},
		{"--apply", "--apply goes with --advise"},
		{"--window 5s", "--window goes with --advise"},
		{"--moves 3", "--moves goes with --advise"},
		{"--advise --yes", "--yes goes with --apply"},
		{"--advise --apply --json", "add --yes"},
		{"--advise --moves 0", "--moves 0: must be 1 to 20"},
		{"--advise --window 2h", "--window 2h0m0s: must be 0s to 1h"},
	} {
		f := pflag.NewFlagSet("fleet", pflag.ContinueOnError)
		o := Flags(f)
		if err := f.Parse(strings.Fields(c.args)); err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		err := o.Check(f.Changed)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
}

// The usage line names each flag.
func TestArguments(t *testing.T) {
	f := pflag.NewFlagSet("fleet", pflag.ContinueOnError)
	Flags(f)
	f.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(Arguments, "--"+f.Name) {
			t.Errorf("--%s is missing in %s", f.Name, Arguments)
		}
	})
}
