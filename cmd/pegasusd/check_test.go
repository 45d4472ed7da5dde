package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The daemon starts with every configuration that --check accepts.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"fine":          {twoDomains, "pegasus.toml: fine"},
		"unknown type":  {"[[accelerator]]\nname = 'a'\ntype = 'abacus'", `pegasus.toml:3: accelerator "a": type = "abacus": must be one of`},
		"another's key": {"[[accelerator]]\nname = 'a'\ndevice = '0'", `pegasus.toml:3: accelerator "a": device = "0": goes with type = "nvidia"`},
		"a device":      {"[[accelerator]]\nname = 'a'\ntype = 'nvidia'\ndevice = '1'", "pegasus.toml: fine"},
		"owner":         {"[[domain]]\nname = 'a'\nsocket_owner = 'nosuchuser'", `pegasus.toml:3: domain "a": socket_owner = "nosuchuser": must be`},
		"policy":        {"[[accelerator]]\nname = 'a'\npolicy = 'lottery'", "pegasus.toml:3: "},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pegasus.toml")
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			expectCheck(t, c.want, strings.HasSuffix(c.want, "fine"), "--config", path)
		})
	}
	expectCheck(t, "no configuration file", true, "--private")
}

func expectCheck(t *testing.T, want string, fine bool, args ...string) {
	t.Helper()
	var out, errs strings.Builder
	status := run(append(args, "--check"), &out, &errs)
	if said := out.String() + errs.String(); !strings.Contains(said, want) || (status == 0) != fine {
		t.Errorf("%v: status %d, it says %q, want %q", args, status, said, want)
	}
}
