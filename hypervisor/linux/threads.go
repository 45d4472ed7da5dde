package linux

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pegasus/hypervisor"
)

// threads selects the threads of a process that are vCPUs.
type threads struct {
	vm    bool
	known []int // by vCPU number; none: by name
}

// vcpusOf returns the vCPUs of a domain's nth process. The emulator's report of its threads is about the first
// process.
func vcpusOf(g hypervisor.Guests, n int) threads {
	of := threads{vm: g.VM}
	if n == 0 {
		of.known = g.VCPUs
	}
	return of
}

// maxEmulator bounds the threads of an emulator that are searched for its vCPUs.
const maxEmulator = 1024

// among returns the bound of threads searched.
func (v threads) among() int {
	if v.vm {
		return maxEmulator
	}
	return maxThreads
}

// number returns a thread's vCPU number, if it is a vCPU; of a process guest each thread is.
func (v threads) number(dir string, tid int) (int, bool) {
	switch {
	case !v.vm:
		return tid, true
	case len(v.known) > 0:
		id := slices.Index(v.known, tid)
		return id, id >= 0
	}
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return 0, false
	}
	return parseName(strings.TrimSuffix(string(name), "\n"))
}

// parseName returns the number of a vCPU from its thread's name, as QEMU sets it.
func parseName(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "CPU ")
	number, accelerator, cut := strings.Cut(rest, "/")
	id, err := strconv.ParseUint(number, 10, 16)
	return int(id), ok && cut && err == nil && (accelerator == "KVM" || accelerator == "TCG")
}
