package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pegasus/backend/control"
	"pegasus/guest/agent"
	"pegasus/guest/xen"
	"pegasus/xenstore"
)

// checkXen checks the preconditions of a domU's agent: the kernel's devices, the XenStore, and the limit of
// granted pages.
func (m machine) checkXen(st agent.Status) []control.Check {
	if xen.IsDom0(m.root) {
		return []control.Check{bad("domain", "this is Dom0 itself", "CUDA programs of Dom0 need no agent: `pegasus run -- PROGRAM`")}
	}
	all := []control.Check{m.checkXenDevices()}
	if all[0].State != fine {
		return all
	}
	all = append(all, checkStore(storeSays()), m.checkLimit(st.Bytes))
	if st.Why != "" && st.Device == "" {
		all = append(all, bad("grants", st.Why, "see to that; the agent tries again every 2 s"))
	}
	return all
}

func (m machine) checkXenDevices() control.Check {
	const name = "kernel"
	var lacks, modules []string
	for path, module := range xen.Devices {
		if !m.exists(path) {
			lacks, modules = append(lacks, "/"+path), append(modules, module)
		}
	}
	if len(lacks) == 0 {
		return good(name, "it has the devices by which a domU shares memory with Dom0")
	}
	slices.Sort(lacks)
	slices.Sort(modules)
	return bad(name, "it has no "+strings.Join(lacks, ", "), "as root: `modprobe -a "+strings.Join(modules, " ")+"`, which a kernel has to have, as Debian's, Ubuntu's and Fedora's do")
}

// storeSays returns this domain's number by the XenStore.
func storeSays() (domain string, err error) {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	c, err := xenstore.Dial(ctx, xenstore.Local())
	if err != nil {
		return "", err
	}
	defer c.Close()
	b, err := c.Read(ctx, "domid")
	return string(b), err
}

func checkStore(domain string, err error) control.Check {
	const name = "XenStore"
	switch {
	case errors.Is(err, fs.ErrPermission):
		return control.Check{Name: name, State: warn, Detail: "only root may ask it", Fix: "run `pegasus-guest doctor` as root to know more"}
	case err != nil:
		return bad(name, err.Error(), "in Dom0: does xenstored run, and `xl list` work?")
	}
	return good(name, "it answers; this is domain "+domain)
}

// checkLimit checks whether the kernel permits as many granted pages as the agent needs.
func (m machine) checkLimit(wanted uint64) control.Check {
	const name = "limit"
	text, err := os.ReadFile(filepath.Join(m.root, xen.LimitFile))
	limit, e := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63)
	if err = errors.Join(err, e); err != nil {
		return bad(name, err.Error(), "use a kernel whose xen-gntalloc has a limit of granted pages")
	}
	const pageBytes = 4096
	says := fmt.Sprintf("programs of this domU may share %d MiB with Dom0 (%s)", limit*pageBytes>>20, xen.LimitFile)
	if limit*pageBytes < wanted {
		return control.Check{Name: name, State: warn, Detail: fmt.Sprintf("%s, and the agent wants %d MiB", says, wanted>>20),
			Fix: "somebody has lowered it; an agent that starts anew (`systemctl restart pegasus-guest`) raises it"}
	}
	return good(name, says)
}
