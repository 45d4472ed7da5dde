package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/configs"
	"pegasus/hypervisor/libvirt"
)

func TestJudgeMachine(t *testing.T) {
	config := configs.Default()
	strict := configs.Default()
	strict.Daemon.UndeclaredDomains = false
	for _, c := range []struct {
		m      libvirt.Listed
		there  uint64
		config *configs.Config
		state  string
		want   string
	}{
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Next: 64 << 20, Now: 64 << 20}, 64 << 20, config, fine, "64 MiB"},
		{libvirt.Listed{Name: "a", Of: "a", Next: 64 << 20}, 0, config, fine, "off"},
		{libvirt.Listed{Name: "a", Of: "a", Next: 64 << 20}, 64 << 20, config, warn, "is left"},
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Next: 64 << 20}, 0, config, warn, "attached while it ran"},
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Now: 64 << 20}, 64 << 20, config, warn, "detached while it ran"},
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Next: 32 << 20, Now: 64 << 20}, 64 << 20, config, warn, "until its next start"},
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Next: 64 << 20, Now: 64 << 20}, 0, config, fail, "no hook made it"},
		{libvirt.Listed{Name: "a", Of: "b", Next: 64 << 20}, 0, config, fail, "region of another, b"},
		{libvirt.Listed{Name: "a", Of: "a", Next: 64 << 20}, 0, strict, warn, "isn't declared"},
	} {
		all := judgeMachine(c.m, c.there, c.config)
		if len(all) != 1 || all[0].State != c.state || !strings.Contains(all[0].Detail, c.want) || (all[0].Fix == "") != (c.state == fine) {
			t.Errorf("%+v with %d bytes: %+v, want %s %q", c.m, c.there, all, c.state, c.want)
		}
	}
}

func TestSetIn(t *testing.T) {
	conf := []byte("# user = \"x\"\n user = \"qemu\"\ngroup=\"kvm\"\n#group = \"z\"\n")
	if u, g, n := setIn(conf, "user"), setIn(conf, "group"), setIn(conf, "nothing"); u != "qemu" || g != "kvm" || n != "" {
		t.Errorf("%q, %q, %q", u, g, n)
	}
}

// What is wrong with the hook is said, in the order in which it keeps machines from starting.
func TestCheckHook(t *testing.T) {
	a := &attachment{hooks: t.TempDir(), regions: "/dev/shm/pegasus"}
	path := filepath.Join(a.hooks, "pegasus")
	check := func(regions, want string) {
		t.Helper()
		if got := checkHook(path, regions)[0]; !strings.Contains(got.Detail, want) || (got.State == fine) != (want == path) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	check(a.regions, "isn't there")
	if _, err := a.installHook(); err != nil {
		t.Fatal(err)
	}
	if pid, _ := libvirtd(); pid == 0 {
		check(a.regions, path)
	}
	check("/dev/shm/other", "is for another directory")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gone := hookProgram.ReplaceAll(text, []byte("program='/gone/pegasus'"))
	if err := os.WriteFile(path, gone, 0o755); err != nil {
		t.Fatal(err)
	}
	check(a.regions, "runs /gone/pegasus, which is gone")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	check(a.regions, "can't be executed")
}
