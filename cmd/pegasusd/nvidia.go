package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"pegasus/accel/nvidia/listing"
	"pegasus/backend/hardware"
	"pegasus/configs"
)

// nvidiaHardware is an NVIDIA device: the driver's data of it, and the page that its workers share, on which
// memory and time are counted.
type nvidiaHardware struct {
	*softHardware
	device   listing.Device
	contexts listing.Switching // zeros: unknown
}

// openNVIDIA runs pegasus-nvidia to query the driver. The daemon itself never loads it.
func openNVIDIA(c configs.Accelerator, dir string, spinners int, files []*os.File, log *slog.Logger) (hardware.Accelerator, error) {
	d, err := askNVIDIA(c)
	if err != nil {
		return nil, fmt.Errorf("type = \"nvidia\": %w", err)
	}
	if c.Swap != 0 && !d.Maps {
		return nil, fmt.Errorf("type = \"nvidia\": swap = %q: the driver of %s doesn't map memory under addresses that can be chosen; leave swap out", c.Swap, d.Name)
	}
	if c.Memory == 0 {
		c.Memory = configs.Size(d.Memory)
	}
	c.Memory, c.Cores = min(c.Memory, configs.Size(d.Memory)), max(d.Units, 1)
	n := &nvidiaHardware{device: d}
	if len(files) == 0 { // no worker uses it yet
		n.contexts = measureContexts(c)
	}
	if has := configs.Size(n.contexts.Unused); c.Swap != 0 && has != 0 { // a swapping accelerator uses all of its memory: there must not be less
		c.Memory = min(c.Memory, has)
	}
	if n.softHardware, err = openPage(c, dir, spinners, files, false, log); err != nil {
		return nil, err
	}
	return n, nil
}

// measureContexts measures the cost of a change of contexts, and a context's memory; zeros if that fails:
// policies then use a default, and quotas nothing.
func measureContexts(c configs.Accelerator) (s listing.Switching) {
	program, err := listing.Find()
	if err == nil {
		s, _ = listing.AskSwitching(program, c.Library, c.Device)
	}
	return s
}

func askNVIDIA(c configs.Accelerator) (d listing.Device, err error) {
	program, err := listing.Find()
	if err != nil {
		return d, err
	}
	all, err := listing.Ask(program, c.Library)
	if err != nil {
		return d, withHint(err)
	}
	return listing.Choose(all, c.Device)
}

// withHint adds the remedy to the error for a missing driver.
func withHint(err error) error {
	if strings.Contains(err.Error(), "cannot open shared object file") {
		return fmt.Errorf("%w; install NVIDIA's driver, or set library = to the path of its libcuda.so.1", err)
	}
	return err
}

// nvidiaWorker returns the command that runs a worker of such devices.
func nvidiaWorker() []string {
	program, err := listing.Find()
	if err != nil {
		program = listing.Program
	}
	return []string{program, "worker"}
}

func (h *nvidiaHardware) Profile() hardware.Profile {
	p := h.softHardware.Profile()
	p.Device, p.UUID = h.device.Name, h.device.UUID
	p.Change, p.Context = h.contexts.Cost, h.contexts.Context
	p.Bandwidth = h.device.Link
	p.Compute = uint64(max(h.device.Units, 1)) * uint64(max(h.device.Clock/1_000_000, 1))
	return p
}

// absentNVIDIA returns why there is no accelerator of that type, if the configuration has none. It does not
// start the driver, which takes seconds; pegasus doctor does.
func absentNVIDIA(c *configs.Config, device string) string {
	for _, a := range c.Accelerators {
		if a.Type == "nvidia" {
			return ""
		}
	}
	if _, err := os.Stat(device); err != nil {
		return "nvidia: this host has no GPU of NVIDIA's, or its driver isn't loaded (" + device + " is missing)"
	}
	if _, err := listing.Find(); err != nil {
		return "nvidia: " + err.Error()
	}
	return "nvidia: there is a GPU, and no [[accelerator]] with type = \"nvidia\""
}
