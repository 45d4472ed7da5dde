package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"pegasus/configs"
	"pegasus/hypervisor/kvm"
)

// Where the regions of machines lie, and what libvirt runs when one starts or ends,
// unless told otherwise.
const (
	regionsDir = "/dev/shm/pegasus"
	hooksDir   = "/etc/libvirt/hooks/qemu.d"
)

// attachment is what attach and detach are about.
type attachment struct {
	*call
	uri, regions, hooks string
}

func newAttachment(c *call) *attachment {
	a := &attachment{call: c}
	c.flags.StringVar(&a.uri, "connect", "qemu:///system", "libvirt's `uri`")
	c.flags.StringVar(&a.regions, "regions", regionsDir, "`directory` of the machines' shared memory, as in the daemon's configuration")
	return a
}

// attach makes a machine of libvirt's one with an accelerator.
func attach(c *call, args []string) error {
	a := newAttachment(c)
	size := configs.Size(512 * configs.MiB)
	c.flags.StringVar(&a.hooks, "hooks", hooksDir, "`directory` of libvirt's hooks")
	c.flags.Func("memory", "`size` of the memory that it shares with the host (default 512MiB)", func(s string) (err error) {
		size, err = configs.ParseSize(s)
		return err
	})
	operands, err := c.parse(args, 1, 1)
	if err != nil {
		return err
	}
	name := operands[0]
	if err := configs.CheckName(name); err != nil {
		return usagef("machine %q can't be a domain of Pegasus: %v", name, err)
	}
	d, err := a.definition(name)
	if err != nil {
		return err
	}
	text, err := d.WithRegion(filepath.Join(a.regions, name), uint64(size))
	if err != nil {
		return usagef("%v", err)
	}
	fresh, err := a.installHook()
	if err != nil {
		return err
	}
	if err := a.define(text); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s is attached: from its next start on it shares %s with the host.\n", name, size)
	if fresh {
		fmt.Fprintln(c.out, "Restart libvirtd once, so that it finds the new hook; machines that run aren't disturbed.")
	}
	fmt.Fprintln(c.out, "In the machine, install libcuda.so.1 and start `pegasus-guest agent` as root.")
	return nil
}

// detach undoes attach.
func detach(c *call, args []string) error {
	a := newAttachment(c)
	operands, err := c.parse(args, 1, 1)
	if err != nil {
		return err
	}
	d, err := a.definition(operands[0])
	if err != nil {
		return err
	}
	text, err := d.WithoutRegion(a.regions)
	if err != nil {
		return err
	}
	if err := a.define(text); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s is detached from its next start on.\n", operands[0])
	return nil
}

func (a *attachment) definition(name string) (*kvm.Definition, error) {
	text, err := a.virsh(nil, "dumpxml", "--inactive", "--security-info", name)
	if err != nil {
		return nil, err
	}
	return kvm.Parse(text)
}

func (a *attachment) define(text []byte) error {
	_, err := a.virsh(text, "define", "/dev/stdin")
	return err
}

// virsh asks libvirt. Its own command does, so that ours needs no C library of libvirt's.
func (a *attachment) virsh(in []byte, args ...string) ([]byte, error) {
	cmd := exec.Command("virsh", append([]string{"--quiet", "--connect", a.uri}, args...)...)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("virsh isn't installed (Debian: libvirt-clients)")
	case err != nil:
		return nil, fmt.Errorf("virsh %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}

// installHook has libvirt call us when machines start and end, and says whether it
// didn't before.
func (a *attachment) installHook() (fresh bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	path := filepath.Join(a.hooks, "pegasus")
	text := fmt.Sprintf("#!/bin/sh\nexec '%s' hook --regions '%s' \"$@\"\n", self, a.regions)
	if was, err := os.ReadFile(path); err == nil && string(was) == text {
		return false, nil
	}
	if err := os.MkdirAll(a.hooks, 0o755); err != nil {
		return false, fmt.Errorf("libvirt's hooks: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		return false, fmt.Errorf("libvirt's hook: %w", err)
	}
	return true, nil
}

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
	if err != nil {
		return err
	}
	path, size, ok := d.Region(*regions)
	switch {
	case !ok:
		return nil // not one of ours
	case path != filepath.Join(*regions, name):
		return fmt.Errorf("machine %q has the region of another, %s: attach it again", name, path)
	case what == "release end":
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := kvm.MakeDir(*regions); err != nil {
		return err
	}
	return kvm.MakeRegion(path, size, qemuGroup())
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
