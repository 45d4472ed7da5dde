package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/hypervisor/kvm"
	"pegasus/hypervisor/libvirt"
	"pegasus/vcpu"
)

// Defaults of the directory of machines' regions, and of the hook that libvirt runs when a machine starts or
// ends.
const (
	regionsDir = "/dev/shm/pegasus"
	hooksDir   = "/etc/libvirt/hooks/qemu.d"
)

// attachment is the state of the commands attach and detach.
type attachment struct {
	*call
	uri, regions, hooks string
	dry, live           bool
}

func newAttachment(c *call) *attachment {
	a := &attachment{call: c}
	c.flags.StringVar(&a.uri, "connect", "qemu:///system", "libvirt's `uri`")
	c.flags.StringVar(&a.regions, "regions", regionsDir, "`directory` of the machines' shared memory, as in the daemon's configuration")
	c.flags.BoolVar(&a.dry, "dry-run", false, "show what would change in the machine's definition, and change nothing")
	return a
}

// takesMachine returns an action with a machine's name, which checks the common flags before.
func (a *attachment) takesMachine(do func(name string) error) action {
	return a.takes(1, 1, func(operands []string) error {
		if err := checkURI(a.uri, false); err != nil {
			return err
		}
		if !filepath.IsAbs(a.regions) {
			return usagef("--regions %q: want an absolute path, the one of regions in [daemon]", a.regions)
		}
		a.regions = filepath.Clean(a.regions)
		return do(operands[0])
	})
}

// attach gives a libvirt machine an accelerator.
func attach(c *call) action {
	if inDom0() {
		return attachDomU(c)
	}
	a := newAttachment(c)
	var size configs.Size
	credits := -1
	device := c.flags.String("device", "", "add the memory as a device of this `kind`: nvdimm (default) or ivshmem")
	c.flags.BoolVar(&a.live, "live", false, "plug it into the machine at once, if that runs (ivshmem only)")
	c.flags.StringVar(&a.hooks, "hooks", hooksDir, "`directory` of libvirt's hooks")
	c.flags.Func("memory", "`size` of the memory that it shares with the host (default 512MiB)", func(s string) (err error) {
		if size, err = configs.ParseSize(s); err == nil {
			err = kvm.CheckSize(uint64(size))
		}
		return err
	})
	c.flags.Func("credits", "`n` credits of the accelerator, that go with the machine; 0: as in the daemon's configuration", func(s string) error {
		return parseCredits(s, &credits)
	})
	return a.takesMachine(func(name string) error {
		if err := configs.CheckName(name); err != nil {
			return fmt.Errorf("machine %q can't be a domain of Pegasus: its name %w; rename it (virsh domrename)", name, err)
		}
		was, d, err := a.show(name)
		if err != nil {
			return err
		}
		want := kvm.Attachment{Region: filepath.Join(a.regions, name), Bytes: uint64(size), Credits: vcpu.Credits(max(credits, 0)), Device: kvm.Device(*device)}
		is, ok := d.Attached(a.regions)
		if dir := d.RegionDir(); !ok && dir != "" { // it moves
			is, ok = d.Attached(dir)
		}
		if ok { // unspecified values stay
			if size == 0 {
				want.Bytes = is.Bytes
			}
			if credits < 0 {
				want.Credits = is.Credits
			}
			want.Device = cmp.Or(want.Device, is.Device)
		} else if size == 0 {
			want.Bytes = uint64(512 * configs.MiB)
		}
		want.Device = cmp.Or(want.Device, kvm.NVDIMM)
		if a.live && want.Device != kvm.IVSHMEM {
			return usagef("--live: an NVDIMM can't be plugged into a machine that runs; --device ivshmem can, for programs that trust each other")
		}
		text, err := d.WithRegion(want)
		if err != nil {
			return err
		}
		if err := kvm.CheckRoom(want.Region, want.Bytes); err != nil {
			return err
		}
		if a.dry {
			return errors.Join(a.print(was, text), a.plug(name, want, was))
		}
		fresh, err := a.installHook()
		if err != nil {
			return err
		}
		if fresh {
			fmt.Fprintln(c.out, "Restart libvirtd once, so that it finds the new hook; machines that run aren't disturbed.")
		}
		if string(text) == was.Definition {
			fmt.Fprintf(c.out, "%s is attached already, with %s: nothing changes.\n", name, configs.Size(want.Bytes))
			return a.plug(name, want, was)
		}
		now, err := a.define(text)
		if err != nil {
			return err
		}
		if onlyCredits(d, want, a.regions) {
			fmt.Fprintf(c.out, "%s has from now on %s.\n", name, creditsText(want.Credits))
			return a.plug(name, want, now)
		}
		fmt.Fprintf(c.out, "%s is attached: from its next start on it shares %s with the host.\n", name, configs.Size(want.Bytes))
		if want.Device == kvm.IVSHMEM {
			fmt.Fprintln(c.out, "Its programs that use an accelerator have to trust each other: each can read and change what the others share with the host.")
		}
		if !a.live || !now.Runs {
			a.remind(name, now)
		} else if err := a.plug(name, want, now); err != nil {
			return err
		}
		if serves := c.configInForce().Daemon.Regions; serves == "" || filepath.Clean(serves) != a.regions {
			fmt.Fprintf(c.out, "The daemon doesn't serve machines there: set regions = %q in [daemon] of its configuration, and restart it.\n", a.regions)
		}
		fmt.Fprintln(c.out, "Copy pegasus-guest into the machine, and run `pegasus-guest install` there, as root.")
		return nil
	})
}

// onlyCredits reports whether a machine already has everything requested except the credits, which need no
// restart.
func onlyCredits(d *kvm.Definition, want kvm.Attachment, regions string) bool {
	is, ok := d.Attached(regions)
	want.Credits = is.Credits
	text, err := d.WithRegion(want)
	return ok && err == nil && d.Is(text)
}

func creditsText(c vcpu.Credits) string {
	if c == 0 {
		return "the credits of the daemon's configuration"
	}
	return control.Count(int(c), "credit") + ", unless the daemon's configuration declares that domain"
}

func parseCredits(s string, credits *int) error {
	if s == "0" {
		*credits = 0
		return nil
	}
	var d configs.Domain
	if err := d.Set("credits", s); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("credits = %q: ", s)))
	}
	*credits = d.Credits
	return nil
}

// detach undoes attach.
func detach(c *call) action {
	if inDom0() {
		return detachDomU(c)
	}
	a := newAttachment(c)
	c.flags.BoolVar(&a.live, "live", false, "unplug it from the machine at once, too, if that runs and has an ivshmem device")
	return a.takesMachine(func(name string) error {
		was, d, err := a.show(name)
		if err != nil {
			return err
		}
		text, err := d.WithoutRegion(a.regions)
		if errors.Is(err, kvm.ErrDetached) && a.live && a.has(was) {
			return a.unplug(name, was)
		}
		if errors.Is(err, kvm.ErrDetached) {
			fmt.Fprintf(c.out, "%s has no region in %s: nothing changes.\n", name, a.regions)
			return nil
		}
		if err != nil {
			return err
		}
		if a.dry {
			return errors.Join(a.print(was, text), a.unplug(name, was))
		}
		if err := a.unplug(name, was); err != nil { // first, so that the user can retry after a refusal
			return err
		}
		now, err := a.libvirt(text, "define")
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s is detached from its next start on.\n", name)
		if !a.live || !now.Runs {
			a.remind(name, now)
		}
		return nil
	})
}

// remind prints the remaining steps for a machine that runs, or was saved while it did.
func (a *attachment) remind(name string, now libvirt.Shown) {
	if now.Saved {
		fmt.Fprintf(a.out, "It has a saved state, from which it will start as it was: start it, then shut it down and start it again; or drop that state (virsh managedsave-remove %s).\n", name)
	}
	if now.Runs {
		fmt.Fprintf(a.out, "It runs as it was until it is shut down and started again: virsh shutdown %s, then virsh start %s. A reboot inside isn't enough.\n", name, name)
	}
}

// print shows the changes.
func (a *attachment) print(was libvirt.Shown, text []byte) error {
	if string(text) == was.Definition {
		fmt.Fprintln(a.out, "Nothing would change.")
		return nil
	}
	_, err := a.out.Write(diff.Diff("now", []byte(was.Definition), "then", text))
	return err
}

// show returns libvirt's data of a machine.
func (a *attachment) show(name string) (libvirt.Shown, *kvm.Definition, error) {
	s, err := a.libvirt(nil, "show", name)
	if err != nil {
		return s, nil, err
	}
	if !s.Lasting {
		return s, nil, fmt.Errorf("machine %q is transient: libvirt forgets it when it ends, so there is nothing to change; define it first (virsh define)", name)
	}
	d, err := kvm.Parse([]byte(s.Definition))
	return s, d, err
}

// define defines a machine, and marks the controllers that libvirt adds to it for our devices, so that they
// are removed with these.
func (a *attachment) define(text []byte) (libvirt.Shown, error) {
	now, err := a.libvirt(text, "define")
	if err != nil {
		return now, err
	}
	asked, err := kvm.Parse(text)
	if err != nil {
		return now, err
	}
	d, err := kvm.Parse([]byte(now.Definition))
	if err != nil {
		return now, err
	}
	if marked := d.Added(asked); string(marked) != now.Definition {
		return a.libvirt(marked, "define")
	}
	return now, nil
}

// libvirt runs pegasus-libvirt, which links libvirt's C library.
func (a *attachment) libvirt(in []byte, args ...string) (s libvirt.Shown, err error) {
	program, err := findLibvirt()
	if err != nil {
		return s, err
	}
	args = append([]string{args[0], "--connect", a.uri}, args[1:]...)
	slow := time.AfterFunc(2*time.Second, func() { fmt.Fprintf(a.err, "waiting for libvirt, %s …\n", a.uri) })
	defer slow.Stop()
	out, err := askLibvirt(answerTime, program, in, args...)
	if err != nil {
		return s, fmt.Errorf("libvirt: %w", err)
	}
	return s, json.Unmarshal(out, &s)
}

// answerTime is libvirt's time limit for an operation.
const answerTime = 30 * time.Second

// askLibvirt runs pegasus-libvirt, which reports errors in libvirt's words. It gives up after patience: a
// libvirtd that hangs never answers.
func askLibvirt(patience time.Duration, program string, in []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	switch text := strings.TrimSpace(errs.String()); {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer for %v: does libvirtd hang? `virsh list` would, too", patience)
	case text != "":
		return nil, errors.New(text)
	default:
		return nil, fmt.Errorf("%s: %w", program, err)
	}
}

const libvirtProgram = "pegasus-libvirt"

// findLibvirt returns the path of pegasus-libvirt: beside this command, or in PATH.
func findLibvirt() (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), libvirtProgram)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(libvirtProgram)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this command nor in PATH: run `make`", libvirtProgram)
	}
	return path, nil
}
