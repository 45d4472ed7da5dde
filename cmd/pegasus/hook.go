package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"pegasus/configs"
	"pegasus/hypervisor/kvm"
)

// hookText is the hook. libvirt calls it for each machine of the host: if our program has moved, unrelated
// machines must still start.
const hookText = `#!/bin/sh
program=%s
[ -x "$program" ] && exec "$program" hook --regions %s "$@"
grep -qF %s || exit 0
echo "$program, which makes the machine's memory, is gone: run pegasus attach $1 again" >&2
[ "$2" != prepare ]
`

// installHook makes libvirt call us when machines start and end, and reports whether the hook is new.
func (a *attachment) installHook() (fresh bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	path := filepath.Join(a.hooks, "pegasus")
	text := fmt.Sprintf(hookText, quoted(self), quoted(a.regions), quoted(a.regions+"/"))
	if was, err := os.ReadFile(path); err == nil && string(was) == text && executable(path) {
		return a.hooks == hooksDir && startedBeforeHook(path), nil
	}
	err = os.MkdirAll(a.hooks, 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o755)
	}
	if err == nil {
		return true, os.Chmod(path, 0o755) // an existing hook keeps its mode
	}
	if judgeHook(path, a.regions)[0].State == fine { // of another installation, installed by root
		return a.hooks == hooksDir && startedBeforeHook(path), nil
	}
	return false, fmt.Errorf("libvirt's hook: %w; attach one machine as root, which installs it: from then on every user of libvirt can attach", err)
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&0o111 != 0
}

// quoted returns text as one word of the shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// hook is the program behind the hook: libvirt passes a machine's name, the event, and its definition. An
// error keeps the machine from starting.
func hook(c *call) action {
	regions := c.flags.String("regions", regionsDir, "`directory` of the machines' shared memory")
	return c.takes(2, -1, func(operands []string) error {
		name, what := operands[0], strings.Join(operands[1:min(len(operands), 3)], " ")
		if what != "prepare begin" && what != "release end" {
			return nil
		}
		text, err := io.ReadAll(c.in)
		if err != nil {
			return err
		}
		d, err := kvm.Parse(text)
		if err != nil && !bytes.Contains(text, []byte(*regions+"/")) {
			return nil // not one of ours
		}
		if err != nil {
			return err
		}
		a, ok := d.Attached(*regions)
		switch {
		case !ok:
			return nil // not one of ours
		case configs.CheckName(name) != nil:
			return fmt.Errorf("machine %q can't be a domain of Pegasus: its name %w; rename it (virsh domrename), and attach it again", name, configs.CheckName(name))
		case a.Region != filepath.Join(*regions, name):
			return fmt.Errorf("machine %q has the region of another, %s: attach it again", name, a.Region)
		case what == "release end" && kvm.UsedBy(a.Region) != 0:
			return nil // the region wasn't made for this one: its start was refused
		case what == "release end":
			return a.Remove()
		}
		return errors.Join(a.Make(qemuGroup()), d.MakeOldPorts(*regions))
	})
}

// qemuGroup returns the group that QEMU runs in on Debian and elsewhere; -1 without one.
func qemuGroup() int {
	for _, name := range []string{"kvm", "qemu"} {
		if g, err := user.LookupGroup(name); err == nil {
			if id, err := strconv.Atoi(g.Gid); err == nil {
				return id
			}
		}
	}
	return -1
}
