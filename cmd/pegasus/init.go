package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel/nvidia/listing"
	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/policies"
)

// hostFacts are the properties of a host that its configuration depends on.
type hostFacts struct {
	Cores  int       `json:"cores"`
	Memory uint64    `json:"memory"` // bytes
	GPUs   []gpuFact `json:"gpus"`
	// Driver is the reason for which no GPU is usable; empty: there are some.
	Driver   string   `json:"driver,omitempty"`
	Libvirt  bool     `json:"libvirt"`  // libvirtd or virtqemud has a socket
	Machines []string `json:"machines"` // of libvirt, by name
	Dom0     bool     `json:"dom0"`     // of a Xen host
	Group    bool     `json:"group"`    // the group "pegasus" exists
	Config   string   `json:"config"`   // the existing configuration: none, empty (no setting), settings
}

type gpuFact struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Memory uint64 `json:"memory"` // bytes
}

// The states of an existing configuration file.
const (
	noConfig       = "none"
	emptyConfig    = "empty"
	settingsConfig = "settings"
)

const controlGroup = "pegasus"

// initialize writes a configuration for this host.
func initialize(c *call) action {
	c.jsonFlag()
	output := c.flags.String("output", configs.Path, "`file` to write; - prints it")
	force := c.flags.Bool("force", false, "replace a file that has settings")
	return c.takes(0, 0, func([]string) error {
		target := *output
		if target != "-" {
			var err error
			if target, err = configTarget(target); err != nil {
				return fmt.Errorf("write %s: %w", *output, err)
			}
		}
		host := findHost(*output)
		text := configFor(host)
		if _, err := configs.Parse("generated", text, configs.Options{Policies: policies.Names()}); err != nil {
			return fmt.Errorf("the configuration for this host is invalid: %w; pegasus init --json shows what was found", err)
		}
		switch {
		case c.json:
			return printJSON(c.out, host)
		case *output == "-":
			_, err := c.out.Write(text)
			return err
		case host.Config == settingsConfig && !*force:
			return fmt.Errorf("write %s: the file has settings; --force replaces it, --output - prints the configuration for this host", *output)
		}
		if err := writeConfig(target, text); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "Wrote %s: %s.\n", *output, host.summary())
		restarted := *output == configs.Path && restartDaemon()
		for _, step := range host.nextSteps(*output, restarted) {
			fmt.Fprintln(c.out, step)
		}
		return nil
	})
}

// findHost examines this host, and the file that a configuration would replace.
func findHost(output string) hostFacts {
	h := hostFacts{Cores: runtime.NumCPU(), GPUs: []gpuFact{}, Machines: []string{}, Dom0: inDom0(), Config: stateOfConfig(output)}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.Memory = info.Totalram * uint64(info.Unit)
	}
	h.GPUs, h.Driver = findGPUs()
	for _, socket := range []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"} {
		if _, err := os.Stat(socket); err == nil && !h.Dom0 {
			h.Libvirt = true
		}
	}
	if h.Libvirt {
		h.Machines = machinesOfVirsh()
	}
	_, err := user.LookupGroup(controlGroup)
	h.Group = err == nil
	return h
}

func findGPUs() ([]gpuFact, string) {
	found := []gpuFact{}
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		return found, "no GPU of NVIDIA's with a loaded driver: /dev/nvidiactl is missing"
	}
	program, err := listing.Find()
	if err != nil {
		return found, err.Error()
	}
	all, err := listing.Ask(program, "")
	if err != nil {
		return found, err.Error()
	}
	for _, d := range all {
		found = append(found, gpuFact{UUID: d.UUID, Name: d.Name, Memory: d.Memory})
	}
	return found, ""
}

// machinesOfVirsh returns libvirt's machines; none without virsh, or if libvirt does not answer within listTime.
func machinesOfVirsh() []string {
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "virsh", "--connect", "qemu:///system", "list", "--all", "--name")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return []string{}
	}
	names := slices.DeleteFunc(strings.Split(string(out), "\n"), func(name string) bool { return configs.CheckName(name) != nil })
	slices.Sort(names)
	return names
}

// stateOfConfig reports whether a file has settings: lines other than comments.
func stateOfConfig(path string) string {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || path == "-" {
		return noConfig
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return settingsConfig
		}
	}
	if err != nil {
		return settingsConfig // it can't be read, and may have some
	}
	return emptyConfig
}

// configTarget returns the file to write for a path: that of a symbolic link, which stays, or the path itself.
func configTarget(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(target); err == nil && !info.Mode().IsRegular() {
		return "", errors.New("is no regular file; give --output a file")
	}
	return target, nil
}

// writeConfig replaces a file at once, so that the daemon never reads a part of it.
func writeConfig(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w; run as root, or give --output", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".pegasus-init-")
	if err != nil {
		return fmt.Errorf("write %s: %w; run as root, or give --output", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// restartDaemon makes a daemon that systemd runs start anew with the configuration, and reports whether it did.
func restartDaemon() bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil || os.Geteuid() != 0 {
		return false
	}
	if exec.Command("systemctl", "is-active", "--quiet", "pegasusd.service").Run() != nil {
		return false
	}
	return exec.Command("systemctl", "restart", "pegasusd.service").Run() == nil
}

// summary names the accelerators and machines of the configuration.
func (h hostFacts) summary() string {
	text := "a software accelerator on " + control.Count(h.Cores, "core")
	switch n := len(h.GPUs); {
	case n == 1:
		text = comment(h.GPUs[0].Name)
	case n > 1:
		text = fmt.Sprintf("%d GPUs", n)
	}
	switch {
	case h.Dom0:
		return text + ", domUs of Xen"
	case h.Libvirt:
		return text + ", virtual machines of libvirt"
	}
	return text
}

// nextSteps returns the commands that lead to a guest.
func (h hostFacts) nextSteps(path string, restarted bool) []string {
	steps := []string{"Next:"}
	switch {
	case path != configs.Path:
		steps = append(steps, "  pegasusd --check --config "+path)
	case restarted:
		steps[0] = "The daemon has been restarted with it; running guests continued. Next:"
	default:
		steps = append(steps, "  systemctl restart pegasusd    running guests continue")
	}
	switch {
	case h.Dom0:
		steps = append(steps, "  pegasus attach DOMU", "  pegasus doctor")
	case len(h.Machines) > 0:
		steps = append(steps, "  pegasus attach "+h.Machines[0]+"    then shut the machine down and start it", "  pegasus doctor")
	case h.Libvirt:
		steps = append(steps, "  pegasus attach MACHINE    then shut the machine down and start it", "  pegasus doctor")
	default:
		steps = append(steps, "  pegasus doctor", "  pegasus run --domain NAME -- PROGRAM")
	}
	return steps
}

// softMemory returns the device memory of a software accelerator: 2 GiB, and at most a quarter of the host's memory.
func (h hostFacts) softMemory() string {
	mib := min(h.Memory/4, 2<<30) >> 20
	return fmt.Sprintf("%dMiB", max(mib, 64))
}

// configFor returns the configuration of a host. It depends on the facts alone.
func configFor(h hostFacts) []byte {
	b := &bytes.Buffer{}
	line := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	line("# Written by `pegasus init` for this host: %s.", h.summary())
	line("# configs/examples/full.toml, with packages in /usr/share/doc/pegasus/examples, lists every key.")
	line("# `pegasusd --check` checks this file; `pegasus reload` applies it, keys marked (restart) at the next start.")
	line("")
	line("[daemon]")
	if h.Group {
		line("control_group = %q # its members may control the daemon, beside root (restart)", controlGroup)
	} else {
		line("# control_group = %q # a group that may control the daemon, beside root (restart)", controlGroup)
	}
	switch {
	case h.Dom0:
		line("machines = \"/var/lib/pegasus/machines\" # the attached domUs, by `pegasus attach DOMU` (restart)")
	case h.Libvirt:
		line("regions = %q # memory that virtual machines share with this host (restart)", regionsDir)
		line("libvirt = [\"qemu:///system\"] # the libvirt that defines these machines (restart)")
	default:
		line("# regions = %q # memory of virtual machines; this host has no libvirt (restart)", regionsDir)
	}
	for i, gpu := range h.GPUs {
		line("")
		line("# %s with %s.", comment(gpu.Name), bytesText(gpu.Memory))
		line("[[accelerator]]")
		line("name   = \"gpu%d\"", i)
		line("type   = \"nvidia\"")
		line("device = %q # (restart)", gpu.UUID)
		line("policy = \"accc\" # time in proportion to credits; `pegasus policy` lists others")
		line("# memory = 0    # less than all of its memory (restart)")
	}
	if len(h.GPUs) == 0 {
		line("")
		line("# %s.", comment(h.Driver))
		line("# The software accelerator runs PTX on this host's CPUs (%s).", control.Count(h.Cores, "core"))
		line("[[accelerator]]")
		line("name   = \"soft0\"")
		line("type   = \"soft\"")
		line("cores  = 0        # all of them; fewer leave cores to other work (restart)")
		line("memory = %q # device memory, taken from the host's %s as it is used (restart)", h.softMemory(), bytesText(h.Memory))
		line("policy = \"accc\"   # time in proportion to credits; `pegasus policy` lists others")
	}
	line("")
	line("# The values of keys that a [[domain]] does not set.")
	line("[default_domain]")
	line("credits = 256 # a domain's part is its credits over the sum of all domains' credits")
	if len(h.Machines) > 0 {
		line("")
		line("# A machine becomes a domain by `pegasus attach NAME`. A table of its name sets more than the defaults.")
	} else {
		line("")
		line("# A domain of processes, containers, or a machine of this name.")
	}
	for _, name := range domainExamples(h.Machines) {
		line("# [[domain]]")
		line("# name    = %q", name)
		line("# credits = 512")
		line("# memory  = \"512MiB\" # device memory")
	}
	return b.Bytes()
}

// domainExamples returns the names of the tables that the configuration shows: the first machines.
func domainExamples(machines []string) []string {
	if len(machines) == 0 {
		return []string{"render"}
	}
	return machines[:min(len(machines), 8)]
}

// comment returns text as a part of one line: names of devices and errors come from other programs.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
