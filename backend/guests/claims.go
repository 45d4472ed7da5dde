package guests

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pegasus/backend/control"
	"pegasus/configs"
)

// claim is the greatest use of the host's memory by a domain's workers, by the limit that allows it.
type claim struct {
	domain                  string
	device, host, processes uint64
	limit                   uint64 // of the sum; 0: none
}

func (c claim) sum() uint64 {
	sum := c.device + c.host + c.processes
	if c.limit != 0 {
		sum = min(sum, c.limit)
	}
	return sum
}

// claims returns each domain's claim, the largest first. A GPU's memory is not the host's, but memory swapped out of it
// is. Registry.mu is held.
func (reg *Registry) claims() (all []claim) {
	limited := reg.workers.LimitsMemory()
	for _, dom := range reg.domains {
		c := claim{domain: dom.name, host: uint64(dom.settings.HostMemory), processes: uint64(dom.settings.Processes) * workerOverhead}
		for _, a := range reg.accelerators {
			if dom.on == nil && (dom.settings.Accelerator == "" || dom.settings.Accelerator == a.Name) || dom.on == a {
				c.device = max(c.device, a.hostMemory(dom.settings.Memory))
			}
		}
		if limited {
			c.limit = dom.memoryLimit()
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b claim) int {
		return cmp.Or(cmp.Compare(b.sum(), a.sum()), cmp.Compare(a.domain, b.domain))
	})
	return all
}

// hostMemory returns how much of the host's memory a domain's device memory may use, with a quota, or 0 for none.
func (a *accelerator) hostMemory(quota configs.Size) uint64 {
	p := a.Hardware.Profile()
	most := p.Swap
	if a.Settings().Type == "soft" {
		most += p.Memory
	}
	if quota != 0 {
		most = min(most, uint64(quota))
	}
	return most
}

// admission compares all domains' claims with the memory of a host of total bytes. Device memory counts once for each
// accelerator, however many domains share it.
func admission(all []claim, devices, total uint64) control.Check {
	var sum, device uint64
	for _, c := range all {
		device += c.device
		sum += c.sum()
	}
	if device > devices { // the accelerators themselves have no more
		sum -= min(sum, device-devices)
	}
	check := control.Check{Name: "admission", State: "ok",
		Detail: fmt.Sprintf("the limits of %d domains come to %s of the host's %s of memory", len(all), gib(sum), gib(total))}
	if sum <= total {
		return check
	}
	const named = 3
	var largest []string
	for _, c := range all[:min(named, len(all))] {
		largest = append(largest, fmt.Sprintf("%s %s (device memory %s, host_memory %s, %s for its processes)",
			c.domain, gib(c.sum()), gib(c.device), gib(c.host), gib(c.processes)))
	}
	check.State = "warn"
	check.Detail += "; the largest: " + strings.Join(largest, ", ")
	check.Fix = "lower memory, host_memory or processes of domains, or give the host more: when its memory runs out, the kernel ends workers"
	return check
}

func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/float64(configs.GiB)) }

// admission checks the claims of the existing domains. Registry.mu is held.
func (reg *Registry) admission() control.Check {
	var devices uint64
	for _, a := range reg.accelerators {
		devices += a.hostMemory(0)
	}
	return admission(reg.claims(), devices, hostMemory())
}
