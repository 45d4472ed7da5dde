package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/hypervisor/kvm"
	"pegasus/hypervisor/libvirt"
	"pegasus/policies"
)

// checkMachines checks the host's preconditions for virtual machines.
func (c *call) checkMachines() []control.Check {
	if inDom0() {
		return c.checkDomUs()
	}
	config := c.configInForce()
	regions := config.Daemon.Regions
	if regions == "" {
		return one("machines", fine, "none are served: regions isn't set in [daemon]", "")
	}
	all := append(checkRegions(regions), checkHook(filepath.Join(hooksDir, "pegasus"), regions)...)
	all = append(all, checkQEMU()...)
	for _, uri := range config.Daemon.Libvirt {
		machines, err := listMachines(uri, regions)
		if err != nil {
			all = append(all, one("libvirt", warn, uri+": "+err.Error(), "install and start it (Debian: libvirt-daemon-system), or take it out of libvirt in [daemon]")...)
			continue
		}
		all = append(all, one("libvirt", fine, fmt.Sprintf("%s: %s attached", uri, control.Count(len(machines), "machine")), "")...)
		for _, m := range machines {
			all = append(all, judgeMachine(m, regionOf(regions, m.Name), config)...)
		}
	}
	return all
}

// configInForce returns the configuration of the running daemon, or that of the next one.
func (c *call) configInForce() *configs.Config {
	config, err := configs.Load(c.configPath(), configs.Options{Policies: policies.Names()})
	if err != nil {
		return configs.Default()
	}
	return config
}

func checkRegions(dir string) []control.Check {
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return one("regions", fine, dir+" isn't there yet: the first machine that starts makes it", "")
	case err != nil:
		return one("regions", warn, dir+": "+err.Error(), "")
	case st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || st.Mode&0o022 != 0:
		return one("regions", fail, fmt.Sprintf("%s belongs to user %d, mode %#o: others could put machines there", dir, st.Uid, st.Mode&0o7777), "remove it, or choose another for regions in [daemon]")
	}
	var room unix.Statfs_t
	if err := unix.Statfs(dir, &room); err != nil {
		return one("regions", warn, dir+": "+err.Error(), "")
	}
	return judgeRoom(dir, room.Bavail*uint64(room.Bsize))
}

// judgeRoom returns the findings about the space for regions.
func judgeRoom(dir string, bytes uint64) []control.Check {
	if kvm.CheckSize(bytes>>21<<21) != nil {
		return one("regions", warn, fmt.Sprintf("%s is full: it has room for %s, and no machine that is attached starts", dir, bytesText(bytes)),
			"remove what lies beside the regions, give machines less --memory, or make the file system larger (mount -o remount,size=…)")
	}
	return one("regions", fine, fmt.Sprintf("%s has room for %s more", dir, bytesText(bytes)), "")
}

// checkHook checks whether libvirt will make regions.
func checkHook(path, regions string) []control.Check {
	all := judgeHook(path, regions)
	if all[0].State == fine && startedBeforeHook(path) {
		return one("hook", warn, "libvirtd may not know it: it has run since before that was installed", "restart libvirtd once; machines that run aren't disturbed")
	}
	return all
}

// judgeHook returns the findings about the hook's file.
func judgeHook(path, regions string) []control.Check {
	text, err := os.ReadFile(path)
	if err != nil {
		return one("hook", warn, path+" isn't there: no machine that is attached starts", "`pegasus attach MACHINE` installs it")
	}
	st, err := os.Stat(path)
	switch {
	case err != nil || st.Mode()&0o111 == 0:
		return one("hook", warn, path+" can't be executed", "chmod 755 "+path)
	case !strings.Contains(string(text), "--regions "+quoted(regions)+" "):
		return one("hook", warn, path+" is for another directory than regions in [daemon], "+regions, "attach the machines again with --regions "+regions)
	}
	if m := hookProgram.FindSubmatch(text); m != nil {
		if st, err := os.Stat(string(m[1])); err != nil || st.Mode()&0o111 == 0 {
			return one("hook", warn, fmt.Sprintf("%s runs %s, which is gone: no machine that is attached starts", path, m[1]), "`pegasus attach MACHINE`, with any that is attached")
		}
	}
	return one("hook", fine, path, "")
}

// hookProgram matches the program that the hook runs.
var hookProgram = regexp.MustCompile(`(?m)^program='([^']*)'$`)

// startedBeforeHook reports whether the running libvirtd was started before a hook was installed.
func startedBeforeHook(path string) bool {
	pid, started := libvirtd()
	st, err := os.Stat(path)
	return err == nil && pid != 0 && st.ModTime().After(started)
}

// libvirtd returns the process that runs hooks, and when it was started; 0: none runs.
func libvirtd() (pid int, started time.Time) {
	for _, file := range []string{"/run/virtqemud.pid", "/run/libvirtd.pid"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			if st, err := os.Stat(fmt.Sprintf("/proc/%d", n)); err == nil {
				return n, st.ModTime()
			}
		}
	}
	return 0, time.Time{}
}

// checkQEMU checks whether QEMU, which libvirt runs as another user, may open regions.
func checkQEMU() []control.Check {
	conf, _ := os.ReadFile("/etc/libvirt/qemu.conf")
	name, group := setIn(conf, "user"), setIn(conf, "group")
	for _, known := range []string{"libvirt-qemu", "qemu"} {
		if _, err := user.Lookup(known); name == "" && err == nil {
			name = known
		}
	}
	gid := qemuGroup()
	switch u, err := user.Lookup(strings.TrimPrefix(name, "+")); {
	case name == "" || name == "root" || name == "+0":
		return one("QEMU", fine, "libvirt runs it as root", "")
	case gid < 0:
		return one("QEMU", fail, "there is neither a group kvm nor qemu, to which regions could belong", "groupadd --system kvm, and put QEMU's user into it")
	case err != nil:
		return one("QEMU", warn, fmt.Sprintf("user %q of /etc/libvirt/qemu.conf: %v", name, err), "")
	default:
		groups, _ := u.GroupIds()
		if slices.Contains(groups, strconv.Itoa(gid)) || group == "kvm" || group == "qemu" {
			return one("QEMU", fine, "its user "+name+" may open regions", "")
		}
		return one("QEMU", fail, fmt.Sprintf("its user %s isn't in group %d, to which regions belong", name, gid), fmt.Sprintf("usermod -aG %d %s", gid, name))
	}
}

// setIn returns the value of a key in a file of libvirt's configuration.
func setIn(text []byte, key string) string {
	m := regexp.MustCompile(`(?m)^\s*` + key + `\s*=\s*"([^"]*)"`).FindSubmatch(text)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// listTime is libvirt's time limit for listing machines.
const listTime = 10 * time.Second

// listMachines returns all machines that have a region from their next start on, or now.
func listMachines(uri, regions string) (all []libvirt.Listed, err error) {
	program, err := findLibvirt()
	if err != nil {
		return nil, err
	}
	out, err := askLibvirt(listTime, program, nil, "list", "--connect", uri, "--regions", regions)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(out, &all)
}

// regionOf returns the size of a machine's region; 0: there is none.
func regionOf(regions, name string) uint64 {
	st, err := os.Stat(filepath.Join(regions, name))
	if err != nil {
		return 0
	}
	return uint64(st.Size())
}

// judgeMachine returns the faults of an attached machine; there is the size of its region's file.
func judgeMachine(m libvirt.Listed, there uint64, config *configs.Config) []control.Check {
	name, region := "machine "+m.Name, "a region"
	if m.Shared {
		region = "a PCI device (ivshmem: its programs have to trust each other)"
	}
	restart := fmt.Sprintf("virsh shutdown %s, then virsh start %s", m.Name, m.Name)
	_, known := config.Domain(m.Name)
	switch {
	case m.Of != "" && m.Of != m.Name:
		return one(name, fail, "it has the region of another, "+m.Of+": it doesn't start", "pegasus attach "+m.Name)
	case known != nil:
		return one(name, warn, known.Error(), fmt.Sprintf("declare it: [[domain]] name = %q", m.Name))
	case m.Memory != m.Counted:
		return one(name, warn, fmt.Sprintf("its memory was edited to %s beside its NUMA cells, which with its memory devices have %s: that is what it gets, or it doesn't start", bytesText(m.Memory), bytesText(m.Counted)),
			fmt.Sprintf("virsh edit %s: give <cell memory=…> the memory that the machine is to have; libvirt adds the region to <memory>", m.Name))
	case m.Runs && m.Now == 0:
		return one(name, warn, "it was attached while it ran, and has no region yet", restart)
	case m.Runs && m.Next == 0:
		return one(name, warn, "it was detached while it ran, and has its region still", restart)
	case m.Runs && there != m.Now:
		return one(name, fail, fmt.Sprintf("it runs, but its region has %d bytes, not %d: no hook made it, or somebody else removed it", there, m.Now), restart)
	case m.Runs && m.Next != m.Now:
		return one(name, warn, fmt.Sprintf("its region has %s until its next start, %s then", bytesText(m.Now), bytesText(m.Next)), restart)
	case !m.Runs && there != 0:
		return one(name, warn, "it is off, but its region is left: the hook wasn't called at its end", "the daemon removes it in some seconds, if one runs")
	case m.Runs:
		return one(name, fine, "runs, with "+region+" of "+bytesText(m.Now), "")
	}
	return one(name, fine, "off; it will have "+region+" of "+bytesText(m.Next), "")
}
