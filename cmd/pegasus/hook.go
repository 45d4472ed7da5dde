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

// hookText is the hook. libvirt calls it for each machine of the host: when our program has moved,
// those that have nothing to do with us start all the same.
const hookText = `#!/bin/sh
program=%s
[ -x "$program" ] && exec "$program" hook --regions %s "$@"
grep -qF %s || exit 0
echo "$program, which makes the machine's memory, is gone: run pegasus attach $1 again" >&2
[ "$2" != prepare ]
`

// installHook has libvirt call us when machines start and end, and says whether it
// didn't before.
func (a *attachment) installHook() (fresh bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	path := filepath.Join(a.hooks, "pegasus")
	text := fmt.Sprintf(hookText, quoted(self), quoted(a.regions), quoted(a.regions+"/"))
	if was, err := os.ReadFile(path); err == nil && string(was) == text && executable(path) {
		return a.hooks == hooksDir && unheard(path), nil
	}
	err = os.MkdirAll(a.hooks, 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o755)
	}
	if err == nil {
		return true, os.Chmod(path, 0o755) // one that was there keeps its mode
	}
	if judgeHook(path, a.regions)[0].State == fine { // of another installation, as root installed it
		return a.hooks == hooksDir && unheard(path), nil
	}
	return false, fmt.Errorf("libvirt's hook: %w; attach one machine as root, which installs it: from then on every user of libvirt can attach", err)
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&0o111 != 0
}

// quoted is text as one word of the shell's.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// hook is what libvirt calls with a machine's name, what happens to it, and its
// definition. An error keeps the machine from starting.
func hook(c *call, args []string) error {
	regions := c.flags.String("regions", regionsDir, "`directory` of the machines' shared memory")
	operands, err := c.parse(args, 2, -1)
	if err != nil {
		return err
	}
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
		return nil // whatever it is, it isn't one of ours
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
		return nil // it wasn't made for this one: its start was refused
	case what == "release end":
		return a.Remove()
	}
	return errors.Join(a.Make(qemuGroup()), d.MakeOldPorts(*regions))
}

// qemuGroup is the group that QEMU runs in on Debian and elsewhere; -1 without one.
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
