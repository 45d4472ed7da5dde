package libvirt

import (
	"encoding/json"
	"errors"
	"fmt"

	"pegasus/hypervisor"
	"pegasus/vcpu"
)

// Report is a line of `pegasus-libvirt watch`: all attached machines, or why they are unknown now.
type Report struct {
	Machines []Machine `json:"machines,omitempty"`
	Away     string    `json:"away,omitempty"`
}

// Machine is a machine in a report.
type Machine struct {
	Name  string                  `json:"name"`
	State hypervisor.MachineState `json:"state"`
	// Started distinguishes an emulator from the next. Resets counts how often the machine restarted in the same one,
	// as far as the reporting program has seen.
	Started uint64       `json:"started,omitempty"`
	Resets  uint64       `json:"resets,omitempty"`
	PID     int          `json:"pid,omitempty"`
	VCPUs   []int        `json:"vcpus,omitempty"`
	Credits vcpu.Credits `json:"credits,omitempty"`
}

// Bounds of a report.
const (
	maxLine     = 1 << 20
	maxMachines = 4096
	maxVCPUs    = 4096
)

var errTooMany = errors.New("it has more machines than there can be")

// ParseReport parses and checks a line.
func ParseReport(line []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(line, &r); err != nil {
		return Report{}, err
	}
	if len(r.Machines) > maxMachines {
		return Report{}, errTooMany
	}
	seen := map[string]bool{}
	for _, m := range r.Machines {
		if err := m.check(); err != nil {
			return Report{}, fmt.Errorf("machine %q: %w", m.Name, err)
		}
		if seen[m.Name] {
			return Report{}, fmt.Errorf("machine %q is there twice", m.Name)
		}
		seen[m.Name] = true
	}
	return r, nil
}

func (m Machine) check() error {
	switch m.State {
	case hypervisor.MachineOff:
		if m.PID != 0 || len(m.VCPUs) > 0 {
			return errors.New("it is off and has a process")
		}
	case hypervisor.MachineRunning, hypervisor.MachinePaused:
	default:
		return fmt.Errorf("state %q", m.State)
	}
	if m.Name == "" || m.PID < 0 || len(m.VCPUs) > maxVCPUs {
		return errors.New("a number or name that none can have")
	}
	for _, t := range m.VCPUs {
		if t <= 0 {
			return fmt.Errorf("thread %d", t)
		}
	}
	return nil
}

// Shown is the output of `pegasus-libvirt show` and `define` for a machine.
type Shown struct {
	Lasting    bool   `json:"lasting"` // false: libvirt forgets it when it ends
	Runs       bool   `json:"runs"`
	Saved      bool   `json:"saved,omitempty"` // its next start restores a saved state
	Definition string `json:"definition"`      // from its next start on
	Live       string `json:"live,omitempty"`  // while it runs
}

// Listed is one machine in the output of `pegasus-libvirt list`.
type Listed struct {
	Name string `json:"name"`
	Runs bool   `json:"runs"`
	Of   string `json:"of"`             // the name of its region, which should be its own
	Next uint64 `json:"next,omitempty"` // bytes of its region from its next start on; 0: none
	Now  uint64 `json:"now,omitempty"`  // and while it runs
	// Shared reports whether the region is a PCI device, which doesn't isolate the machine's processes.
	Shared bool `json:"shared,omitempty"`
	// Memory and Counted are as of kvm.Definition.BesideCells; 0 where it reports no mistake.
	Memory  uint64 `json:"memory,omitempty"`
	Counted uint64 `json:"counted,omitempty"`
}
