package main

import (
	"fmt"
	"os"
	"strings"

	"pegasus/accel/nvidia/listing"
	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/policies"
)

// checkNVIDIA checks NVIDIA's devices: with the drivers that the configuration names for them, otherwise with
// the system's, which may be missing.
func (c *call) checkNVIDIA() []control.Check {
	if os.Getenv("PEGASUS_SOCKET") != "" {
		return nil // in a guest the visible driver is Pegasus' own
	}
	wanted := c.nvidiaTables()
	if len(wanted) == 0 {
		return judgeNVIDIA(configs.Accelerator{}, false)
	}
	var all []control.Check
	for _, a := range wanted {
		all = append(all, judgeNVIDIA(a, true)...)
	}
	return all
}

// nvidiaTables returns the accelerators of that type in the configuration.
func (c *call) nvidiaTables() (all []configs.Accelerator) {
	path := c.configPath()
	if !configs.Exists(path) {
		return nil
	}
	config, err := configs.Load(path, configs.Options{Policies: policies.Names()})
	if err != nil {
		return nil // reported by checkConfiguration
	}
	for _, a := range config.Accelerators {
		if a.Type == "nvidia" {
			all = append(all, a)
		}
	}
	return all
}

func judgeNVIDIA(a configs.Accelerator, wanted bool) []control.Check {
	const name = "nvidia"
	found, err := askNVIDIA(a)
	switch {
	case err == nil:
		return one(name, fine, found, "")
	case wanted:
		return one(name, fail, fmt.Sprintf("accelerator %q: %v", a.Name, err), "install NVIDIA's driver, or give library and device in its [[accelerator]]; see docs/nvidia.md")
	}
	return one(name, fine, fmt.Sprintf("none to be had: %v", err), "")
}

// askNVIDIA returns the device that an accelerator would use, or all that there are.
func askNVIDIA(a configs.Accelerator) (string, error) {
	program, err := listing.Find()
	if err != nil {
		return "", err
	}
	all, err := listing.Ask(program, a.Library)
	if err != nil {
		return "", err
	}
	if a.Name != "" {
		d, err := listing.Choose(all, a.Device)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("accelerator %q: %s", a.Name, describeNVIDIA(d)), nil
	}
	var text []string
	for _, d := range all {
		text = append(text, describeNVIDIA(d))
	}
	return strings.Join(text, "; ") + "; the configuration uses none", nil
}

func describeNVIDIA(d listing.Device) string {
	text := fmt.Sprintf("device %d, %s, %s, %s, compute capability %s; its driver knows CUDA %d.%d",
		d.Index, d.Name, d.UUID, bytesText(d.Memory), d.Capability, d.Version/1000, d.Version%1000/10)
	if d.Used > 0 || d.Busy > 0 {
		text += fmt.Sprintf("; %s of its memory and %d %% of its time are used now", bytesText(d.Used), d.Busy)
	}
	return text
}
