package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pegasus/backend/control"
	"pegasus/guest/agent"
	"pegasus/guest/kvm"
	"pegasus/guest/setup"
	"pegasus/guest/xen"
)

// machine is the state of a virtual machine to check.
type machine struct {
	root   string // of its files
	socket string
}

var thisMachine = machine{"/", setup.Socket}

// check follows the path of a program: agent, region, host. It searches the machine
// itself for the cause of a failure.
func (m machine) check() []control.Check {
	st, err := m.ask()
	all := []control.Check{m.checkAgent(st, err)}
	inXen := xen.Here(m.root)
	switch {
	case st.Device != "":
		all = append(all, m.checkDevice(st), checkHost(st))
		if m.inContainer() {
			return all
		}
		if inXen {
			return append(all, m.checkXen(st)...)
		}
		return append(all, checkPort(kvm.FindPort(m.root)))
	case !m.inContainer() && inXen:
		return append(all, m.checkXen(st)...)
	case !m.inContainer():
		all = append(all, m.checkRegion(st.Why))
		if len(kvm.FindShared(m.root)) > 0 { // it needs no kernel support
			return all
		}
		return append(all, m.checkKernel(), m.checkMkfs())
	case err == nil:
		return append(all, bad("region", st.Why, "run `pegasus-guest doctor` outside of the container"))
	default:
		return all
	}
}

// ask queries the agent, and waits while the agent starts, as programs do.
func (m machine) ask() (st agent.Status, err error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		st, err = agent.Ask(m.socket)
		if err != nil || st.Host || st.Why != "" {
			return st, err
		}
		if time.Now().After(end) {
			st.Why = "the agent isn't ready after 5 s"
			return st, nil
		}
	}
}

func (m machine) exists(path string) bool { return exists(filepath.Join(m.root, path)) }

func (m machine) inContainer() bool {
	return m.exists("/run/.containerenv") || m.exists("/.dockerenv") || m.exists("/run/systemd/container")
}

func (m machine) checkAgent(st agent.Status, err error) control.Check {
	const name = "agent"
	switch {
	case err == nil && st.Release != control.Release():
		return control.Check{Name: name, State: warn, Detail: fmt.Sprintf("it is %s, this program %s", st.Release, control.Release()),
			Fix: "to have the agent be this one: `pegasus-guest install` as root"}
	case err == nil:
		return good(name, fmt.Sprintf("%s, %d processes", st.Release, st.Processes))
	case errors.Is(err, fs.ErrNotExist) && m.inContainer():
		return bad(name, "this container hasn't got "+m.socket, "start it with --device pegasus.dev/gpu=all (podman; docker from 25 on), where `pegasus-guest install` was run")
	case errors.Is(err, fs.ErrNotExist):
		return bad(name, m.socket+" doesn't exist", "run `pegasus-guest install` as root, or start `pegasus-guest agent` as root; for a program that isn't in a virtual machine, `pegasus run -- PROGRAM`")
	case errors.Is(err, fs.ErrPermission):
		return bad(name, m.socket+" may not be used by this user", "as root: chmod 0666 "+m.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return bad(name, "nobody listens at "+m.socket, "as root: `systemctl restart pegasus-guest.socket pegasus-guest`, or start `pegasus-guest agent`")
	default:
		return bad(name, err.Error(), "as root: `systemctl restart pegasus-guest`, and look at `journalctl -u pegasus-guest`")
	}
}

// checkDevice describes the region's device, and which users can access it.
func (m machine) checkDevice(st agent.Status) control.Check {
	what := fmt.Sprintf("%s, of %d MiB", st.Device, st.Bytes>>20)
	if !st.Shared {
		return good("region", what)
	}
	return control.Check{Name: "region", State: warn, Detail: what + ", a PCI device (ivshmem): every user of " + m.socket + " can read and change what others' programs have there",
		Fix: "let only those use it who trust each other (docs/kvm.md says how), or attach the machine with an NVDIMM"}
}

// checkRegion gives the reason for a missing region, as far as the agent reports it.
func (m machine) checkRegion(why string) control.Check {
	spaces, _ := filepath.Glob(filepath.Join(m.root, "sys/bus/nd/devices/namespace*"))
	shared := kvm.FindShared(m.root)
	if len(spaces)+len(shared) == 0 {
		return bad("region", "this machine has no NVDIMM, and no PCI device of shared memory", "on its host: `pegasus attach NAME`, then switch the machine off and start it; to reboot it from inside isn't enough")
	}
	if why == "" && len(spaces) == 0 {
		return good("region", "this machine has a PCI device of shared memory; the agent will say whether it is its host's")
	}
	if why == "" {
		return good("region", "this machine has an NVDIMM; the agent will say whether it is its host's")
	}
	return bad("region", why, "see to that; the agent tries again every 2 s")
}

func checkHost(st agent.Status) control.Check {
	if !st.Host {
		return bad("host", st.Why, "on its host: `pegasus doctor`, `pegasus domains`")
	}
	return good("host", fmt.Sprintf("%s answers, generation %d", st.HostRelease, st.Generation))
}

// checkKernel checks for the kernel features that the agent needs.
func (m machine) checkKernel() control.Check {
	const name = "kernel"
	release, _ := os.ReadFile(filepath.Join(m.root, "proc/sys/kernel/osrelease"))
	version := strings.TrimSpace(string(release))
	var lacks []string
	for _, k := range []struct{ module, there string }{
		{"nfit", "/sys/bus/nd"}, {"nd_pmem", "/sys/bus/nd/drivers/nd_pmem"}, {"ext4", "/sys/fs/ext4"},
	} {
		if !m.exists(k.there) && !m.hasModule(version, k.module) {
			lacks = append(lacks, k.module)
		}
	}
	if config, err := os.ReadFile(filepath.Join(m.root, "boot/config-"+version)); err == nil && !strings.Contains(string(config), "\nCONFIG_FS_DAX=y\n") {
		lacks = append(lacks, "CONFIG_FS_DAX")
	}
	if len(lacks) > 0 {
		return bad(name, fmt.Sprintf("Linux %s lacks %s", version, strings.Join(lacks, ", ")), "use a kernel with them, as Debian's, Ubuntu's and Fedora's are")
	}
	return good(name, "Linux "+version+" can map an NVDIMM")
}

// hasModule reports whether a module can be loaded, or is built in.
func (m machine) hasModule(version, name string) bool {
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		text, err := os.ReadFile(filepath.Join(m.root, "lib/modules", version, list))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			module, _, _ := strings.Cut(filepath.Base(file), ".ko")
			if strings.ReplaceAll(module, "-", "_") == name {
				return true
			}
		}
	}
	return false
}

func (m machine) checkMkfs() control.Check {
	for _, dir := range kvm.SystemDirs {
		if path := filepath.Join(dir, "mkfs.ext4"); m.exists(path) {
			return good("mkfs.ext4", path)
		}
	}
	return bad("mkfs.ext4", "there is no mkfs.ext4 in "+strings.Join(kvm.SystemDirs, ", "), "install e2fsprogs")
}
