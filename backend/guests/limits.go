package guests

import (
	"math"

	"golang.org/x/sys/unix"

	"pegasus/backend/workers"
)

// workerOverhead is a worker's need of memory beside its guest's requests, in bytes.
const workerOverhead = 256 << 20

// limits returns the limits on all workers of a domain together.
func (dom *domain) limits() workers.Limits {
	return workers.Limits{Memory: dom.memoryLimit(), Credits: dom.settings.Credits, CPU: dom.settings.CPU}
}

// memoryNeed returns the memory that all workers of a domain may use by its configuration, in bytes.
func (dom *domain) memoryNeed() uint64 {
	device := uint64(dom.settings.Memory)
	if device == 0 && dom.on != nil {
		p := dom.on.Hardware.Profile()
		device = p.Memory + p.Swap
	}
	return device + uint64(dom.settings.HostMemory) + uint64(dom.settings.Processes)*workerOverhead
}

// memoryLimit returns the limit on the memory of all workers of a domain together. It leaves an eighth of the host to
// others: the kernel ends workers of a domain that exceeds it.
func (dom *domain) memoryLimit() uint64 {
	total := hostMemory()
	return min(dom.memoryNeed(), total-total/8)
}

// hostMemory returns the host's memory in bytes.
func hostMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxUint64
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}
