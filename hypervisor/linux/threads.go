package linux

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pegasus/hypervisor"
)

// threads are those of a process that are vCPUs.
type threads struct {
	vm    bool
	known []int // by vCPU number; none: by name
}

// vcpusOf are the vCPUs of a domain's nth process. What an emulator told of its
// threads is about the first.
func vcpusOf(g hypervisor.Guests, n int) threads {
	of := threads{vm: g.VM}
	if n == 0 {
		of.known = g.VCPUs
	}
	return of
}

// maxEmulator is how many threads of an emulator are looked through for its vCPUs.
const maxEmulator = 1024

// among is how many threads are looked through.
func (v threads) among() int {
	if v.vm {
		return maxEmulator
	}
	return maxThreads
}

// number is a thread's vCPU number, if it is a vCPU; of a process guest each thread is.
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

// parseName reads the number of a vCPU from its thread's name, as QEMU gives it.
func parseName(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "CPU ")
	number, accelerator, cut := strings.Cut(rest, "/")
	id, err := strconv.ParseUint(number, 10, 16)
	return int(id), ok && cut && err == nil && (accelerator == "KVM" || accelerator == "TCG")
}
