package api

import (
	"fmt"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/guests"
	"pegasus/backend/objectives"
	"pegasus/hypervisor"
)

// stealToTell is the steal time, as a part of a machine's time, from which explain reports it.
const stealToTell = 0.05

// explain returns the reasons for the state of one domain, or of all.
func (s *Server) explain(q control.DomainParams) ([]control.Explanation, error) {
	shown, err := s.guests.Domains(q)
	if err != nil {
		return nil, err
	}
	all := []control.Explanation{}
	for _, d := range shown {
		lines := append(reasons(d), objectiveReasons(&d)...)
		if d.Accelerator != "" {
			lines = append(lines, s.guests.ExplainPolicy(d.Name)...)
		}
		all = append(all, control.Explanation{Domain: d.Name, Lines: lines})
	}
	return all, nil
}

// reasons returns the reasons for the state of a domain that its description has.
func reasons(s control.Domain) []string {
	lines := machineReasons(s)
	if s.Removing {
		lines = append(lines, fmt.Sprintf("it is being removed: it admits no process, and ends with the last of %s and %s", control.Count(s.Processes, "guest process"), control.Count(len(s.Programs), "program")))
	} else if s.Socket == "" {
		lines = append(lines, "removed from the configuration: it admits no process, and ends with its last process")
	}
	if s.Accelerator == "" {
		lines = append(lines, "no guest process has called cuInit: it is on no accelerator")
		if s.Socket != "" {
			lines = append(lines, "programs reach it through "+s.Socket)
		}
		return lines
	}
	lines = append(lines,
		fmt.Sprintf("on %s, %s, with %s", s.Accelerator, s.State, control.Count(s.Processes, "guest process")))
	owed := fmt.Sprintf("owed %.1f %%", 100*s.Entitled)
	if s.Entitled == 0 {
		owed = "owed nothing for certain"
	}
	lines = append(lines, fmt.Sprintf("credits %d: %s, got %.1f %% of the time used in the last %v", s.Credits, owed, 100*s.Share, guests.ShareWindow))
	if t := s.Spent; t.Window > 0 {
		vcpus := ""
		if s.VCPUs > 0 {
			vcpus = fmt.Sprintf("%.1f %% waiting for its vCPUs, ", 100*t.VCPU)
		}
		lines = append(lines, fmt.Sprintf("of the last %v: %.1f %% on the accelerator, %.1f %% waiting for its turn, %s%.1f %% with nothing asked of it",
			time.Duration(t.Window).Round(100*time.Millisecond), 100*t.Accelerator, 100*t.Turn, vcpus, 100*t.Idle))
	}
	if s.CPUWeight != 0 {
		from := "from its processes' cgroup and niceness"
		if s.Machine != nil && s.Machine.Xen != 0 {
			from = "as Xen's scheduler has it"
		}
		lines = append(lines, fmt.Sprintf("CPU weight %d, %s", s.CPUWeight, from))
	}
	if s.Steal >= stealToTell {
		lines = append(lines, fmt.Sprintf("its %d vCPUs were kept waiting by others on the host's CPUs for %.0f %% of their time lately: a greater CPU weight, or fewer machines on these CPUs, helps",
			s.VCPUs, 100*s.Steal))
	}
	lines = append(lines, workerReason(s))
	if s.MemoryQuota != 0 && s.Memory >= s.MemoryQuota/10*9 {
		lines = append(lines, fmt.Sprintf("it holds %d of %d bytes of device memory: `pegasus set %s memory=…` allows more", s.Memory, s.MemoryQuota, s.Name))
	}
	if s.Swapped > 0 {
		lines = append(lines, fmt.Sprintf("%d of its %d bytes of device memory are in host memory, since others needed the room; %d bytes left the accelerator so far, %d came back: a `memory_guarantee` or a higher priority keeps more of it there",
			s.Swapped, s.Memory, s.SwapOut, s.SwapIn))
	}
	if s.HostQuota != 0 && s.HostMemory >= s.HostQuota/10*9 {
		lines = append(lines, fmt.Sprintf("it holds %d of %d bytes of host memory: `pegasus set %s host_memory=…` allows more", s.HostMemory, s.HostQuota, s.Name))
	}
	return lines
}

// objectiveReasons describes a domain's objectives.
func objectiveReasons(d *control.Domain) (lines []string) {
	for i := range d.Objective.Objectives {
		o := &d.Objective.Objectives[i]
		lines = append(lines, objectives.Text(o))
		for _, cause := range o.Causes {
			lines = append(lines, "  "+cause)
		}
	}
	return lines
}

// workerReason describes the CPU use of a domain's workers.
func workerReason(s control.Domain) string {
	limit := "no limit but its weight"
	if s.WorkerCPULimit != 0 {
		limit = fmt.Sprintf("at most %d %%", s.WorkerCPULimit)
	}
	return fmt.Sprintf("its workers had %v of the host's CPUs, lately %.0f %% of one; %s (`cpu`)",
		time.Duration(s.WorkerCPU).Round(time.Millisecond), 100*s.WorkerCPULately, limit)
}

// machineReasons returns the reasons why a domain's machine does not run work.
func machineReasons(s control.Domain) []string {
	if s.Machine == nil {
		return nil
	}
	start, resume := "virsh start "+s.Name, "virsh resume "+s.Name
	if s.Machine.Host == hypervisor.XenHost {
		start, resume = "xl create", "xl unpause "+s.Name
	}
	switch hypervisor.MachineState(s.Machine.State) {
	case hypervisor.MachineOff:
		return []string{fmt.Sprintf("its machine is off: `%s` starts it", start)}
	case hypervisor.MachinePaused:
		return []string{fmt.Sprintf("its machine is paused, and its gate is closed as long: `%s` lets it go on", resume)}
	}
	switch {
	case !s.Machine.Agent:
		return []string{"its machine runs, but no agent has come: start `pegasus-guest agent` there; `pegasus-guest doctor` says what it lacks"}
	case s.Processes == 0:
		return []string{"its machine runs: if programs in it find no accelerator, `pegasus-guest doctor` says why there"}
	}
	return nil
}
