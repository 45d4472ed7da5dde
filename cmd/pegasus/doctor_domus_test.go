package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/configs"
	"pegasus/hypervisor/xen/domus"
)

func TestJudgeDomU(t *testing.T) {
	closed := configs.Default()
	closed.Daemon.UndeclaredDomains = false
	for _, c := range []struct {
		ids         []uint16
		agent       bool
		config      *configs.Config
		state, want string
	}{
		{nil, false, configs.Default(), fine, "off; it may share 64 MiB"},
		{[]uint16{3}, false, configs.Default(), warn, "as domain 3, without an agent"},
		{[]uint16{3}, true, configs.Default(), fine, "with its agent"},
		{[]uint16{3, 4}, true, configs.Default(), warn, "domains [3 4] have this name"},
		{[]uint16{3}, true, closed, warn, "isn't declared"},
	} {
		got := judgeDomU(domus.Attachment{Name: "web", Memory: domus.DefaultMemory}, c.ids, c.agent, c.config)[0]
		if got.State != c.state || !strings.Contains(got.Detail, c.want) || (c.state != fine) != (got.Fix != "") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestCheckDomUDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if got := checkDevice("events", path, "xen-evtchn")[0]; got.State != fail || got.Fix != "modprobe xen-evtchn" {
		t.Errorf("%+v", got)
	}
	if got := checkGrants(path, 16<<20); got != nil {
		t.Errorf("%+v", got)
	}
	for text, want := range map[string]string{"65536\n": fine, "1024\n": warn, "much\n": warn} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := checkGrants(path, 16<<20)[0]; got.State != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := checkDevice("events", path, "xen-evtchn")[0]; got.State != fine {
		t.Errorf("%+v", got)
	}
}

// A Dom0 that serves only domUs has no library, and lacks nothing.
func TestJudgeLibrary(t *testing.T) {
	missing := errors.New("isn't there")
	for _, c := range []struct {
		err  error
		dom0 bool
		want string
	}{{nil, false, fine}, {nil, true, fine}, {missing, false, fail}, {missing, true, warn}} {
		if got := judgeLibrary("/usr/lib/x", c.err, c.dom0); len(got) != 1 || got[0].State != c.want {
			t.Errorf("%v in Dom0 %v: %+v", c.err, c.dom0, got)
		}
	}
}
