package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"pegasus/backend/client"
	"pegasus/configs"
	"pegasus/hypervisor/xen/domus"
	"pegasus/vcpu"
	"pegasus/xenstore"
)

// xenCapabilities is the file that shows whether this is Dom0; tests replace it.
var xenCapabilities = domus.CapabilitiesPath

// inDom0 reports whether this host's machines are Xen's.
func inDom0() bool { return domus.IsDom0(xenCapabilities) }

// xenURI is libvirt's URI for Xen, which covers the machines of xl, too.
const xenURI = "xen:///system"

// checkURI returns an error for a URI of another hypervisor than this host's.
func checkURI(uri string, dom0 bool) error {
	switch xen := strings.HasPrefix(uri, "xen:"); {
	case xen && !dom0:
		return usagef("--connect %s: this isn't Dom0 of a Xen host: %s has no control_d; in Dom0, mount -t xenfs xenfs /proc/xen", uri, xenCapabilities)
	case !xen && dom0:
		return usagef("--connect %s: this is Dom0 of a Xen host, which has no libvirt address: leave it out", uri)
	}
	return nil
}

// domU is the state of the commands attach and detach in Dom0.
type domU struct {
	*call
	name  string
	files domus.Files
	dry   bool
}

// takesDomU returns an action with a domU's name, for which it declares the common flags and fills in name, files and
// dry before.
func (u *domU) takesDomU(do func() error) action {
	dir := u.flags.String("machines", "", "`directory` where it stands which domUs are attached (default machines of [daemon])")
	uri := u.flags.String("connect", xenURI, "libvirt's `uri`, if it has the domUs; their names are enough")
	u.flags.BoolVar(&u.dry, "dry-run", false, "show what would change, and change nothing")
	return u.takes(1, 1, func(operands []string) error {
		if err := checkURI(*uri, true); err != nil {
			return err
		}
		serves := u.configInForce().Daemon.Machines
		if *dir == "" {
			*dir = serves
		}
		if !filepath.IsAbs(*dir) {
			return usagef("--machines %q: want an absolute path, the one of machines in [daemon]", *dir)
		}
		u.name, u.files = operands[0], domus.Files{Dir: filepath.Clean(*dir), Valid: configs.CheckName}
		if u.files.Dir != filepath.Clean(serves) {
			fmt.Fprintf(u.err, "The daemon looks elsewhere, in %s: set machines = %q in [daemon] of its configuration, and restart it.\n", serves, u.files.Dir)
		}
		if err := configs.CheckName(u.name); err != nil {
			return fmt.Errorf("domU %q can't be a domain of Pegasus: its name %w; rename it (xl rename)", u.name, err)
		}
		if u.name == "Domain-0" {
			return errors.New("Domain-0 is this one: its programs need not be attached; `pegasus run` starts them")
		}
		return do()
	})
}

// attachDomU makes the daemon serve domUs of a name.
func attachDomU(c *call) action {
	u := &domU{call: c}
	var size configs.Size
	credits := -1
	c.flags.Func("memory", "`size` of its memory that the domU may share with Dom0, at most (default 64MiB)", func(s string) (err error) {
		if size, err = configs.ParseSize(s); err == nil {
			err = domus.CheckMemory(uint64(size))
		}
		return err
	})
	c.flags.Func("credits", "`n` credits of the accelerator, that go with the name; 0: as in the daemon's configuration", func(s string) error {
		return parseCredits(s, &credits)
	})
	return u.takesDomU(func() error {
		was, err := u.files.Read(u.name)
		is := err == nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is attached, but not as it should be: %w; detach it first", err)
		}
		want := domus.Attachment{Name: u.name, Credits: was.Credits, Memory: was.Memory}
		if !is { // unspecified values stay
			want.Memory = domus.DefaultMemory
		}
		if size != 0 {
			want.Memory = uint64(size)
		}
		if credits >= 0 {
			want.Credits = vcpu.Credits(credits)
		}
		switch {
		case is && want == was:
			fmt.Fprintf(c.out, "%s is attached already, and may share %s: nothing changes.\n", u.name, configs.Size(want.Memory))
			return nil
		case u.dry:
			return u.print(was, is, want.Text())
		}
		if err := u.files.Write(want); err != nil {
			return fmt.Errorf("attach %s: %w", u.name, err)
		}
		if is && want.Memory == was.Memory {
			fmt.Fprintf(c.out, "%s has from now on %s.\n", u.name, creditsText(want.Credits))
			return nil
		}
		fmt.Fprintf(c.out, "%s is attached: a domU of that name may share up to %s with Dom0.\n", u.name, configs.Size(want.Memory))
		u.sayWhetherThere()
		return nil
	})
}

// detachDomU makes the daemon stop serving them.
func detachDomU(c *call) action {
	u := &domU{call: c}
	return u.takesDomU(func() error {
		was, err := u.files.Read(u.name)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(c.out, "%s isn't attached: nothing changes.\n", u.name)
			return nil
		}
		if u.dry { // an unreadable file is removed, too
			return u.print(was, true, nil)
		}
		if err := u.files.Remove(u.name); err != nil {
			return fmt.Errorf("detach %s: %w", u.name, err)
		}
		fmt.Fprintf(c.out, "%s is detached: what runs on an accelerator there gets errors at once.\n", u.name)
		return nil
	})
}

// print shows the changes.
func (u *domU) print(was domus.Attachment, is bool, then []byte) error {
	var now []byte
	if is {
		now = was.Text()
	}
	_, err := u.out.Write(diff.Diff(u.files.Path(u.name)+", now", now, "then", then))
	return err
}

// storeTime is XenStore's time limit for listing domUs.
const storeTime = 5 * time.Second

// sayWhetherThere prints the remaining steps for a domU that was attached.
func (u *domU) sayWhetherThere() {
	s, err := ask(u.call, (*client.Client).Status)
	switch {
	case err != nil:
		fmt.Fprintln(u.out, "No daemon runs that could serve it: start pegasusd.")
	case s.Private:
		fmt.Fprintf(u.out, "The daemon that runs, process %d, is a private one, which serves no domUs: start pegasusd as root.\n", s.PID)
	case !s.DomUs:
		fmt.Fprintf(u.out, "The daemon that runs, process %d, serves no domUs: %s.\n", s.PID, servesNone)
	}
	names, err := domUNames()
	switch ids := numbersOf(u.name, names); {
	case err != nil:
		fmt.Fprintf(u.err, "cannot check for a domU of that name: %v\n", err)
	case len(ids) == 0 && isCalled(u.name, names) != "": // xl accepts names and numbers, so the user probably meant the number
		fmt.Fprintf(u.out, "There is none of that name now. Domain %s is called %s: if you mean that, attach %[2]s, and detach %[1]s. A number is another one's after a reboot.\n", u.name, isCalled(u.name, names))
	case len(ids) == 0:
		fmt.Fprintln(u.out, "There is none now: it will be served from its start on.")
	case len(ids) > 1:
		fmt.Fprintf(u.out, "There are several, domains %v, of which one is served: rename the others (xl rename).\n", ids)
	default:
		fmt.Fprintf(u.out, "It is there, as domain %d, and needs no restart. Inside it needs the agent: `pegasus-guest install` there; see docs/xen.md.\n", ids[0])
	}
}

// servesNone is the remedy for a daemon that did not find Xen when it was started.
const servesNone = "when it was started /proc/xen wasn't mounted, or something else was missing: see to that (`pegasus doctor`), then restart it"

// numbersOf returns the numbers of the domUs of a name.
func numbersOf(name string, names map[uint16]string) (ids []uint16) {
	for id, is := range names {
		if is == name {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// isCalled returns the name of the domU with a number; "" if there is none, or it is no number.
func isCalled(number string, names map[uint16]string) string {
	id, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return ""
	}
	return names[uint16(id)]
}

// domUNames returns the names of all domUs.
func domUNames() (map[uint16]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	store, err := xenstore.Dial(ctx, xenstore.Local())
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return domus.Names(ctx, store)
}
