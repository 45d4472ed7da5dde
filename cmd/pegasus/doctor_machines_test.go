package main

import (
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
