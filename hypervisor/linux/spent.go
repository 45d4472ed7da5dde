package linux

import (
	"os"
	"path/filepath"
	"strconv"

	"pegasus/hypervisor"
)

// Spent implements hypervisor.CPUs. It keeps no files open, since calls are rare.
func (c *CPUs) Spent(of []hypervisor.Guests) []hypervisor.Spent {
	all := make([]hypervisor.Spent, len(of))
	for i, g := range of {
		s := &all[i]
		for n, pid := range g.Processes[:min(len(g.Processes), maxProcesses)] {
			dir, vcpus := filepath.Join(c.proc, strconv.Itoa(pid), "task"), vcpusOf(g, n)
			for _, tid := range vcpus.candidates(dir) {
				if s.VCPUs == maxThreads {
					break
				}
				path := filepath.Join(dir, strconv.Itoa(tid))
				if _, is := vcpus.number(path, tid); !is {
					continue
				}
				text, err := os.ReadFile(filepath.Join(path, "schedstat"))
				if ran, waited, ok := parseSchedstat(text); err == nil && ok {
					s.VCPUs++
					s.Ran, s.Waited = s.Ran+ran, s.Waited+waited
				}
			}
		}
	}
	return all
}

// candidates returns the threads that may be vCPUs, of the process with the directory dir.
func (v threads) candidates(dir string) (tids []int) {
	if len(v.known) > 0 {
		return v.known
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(v.among())
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}
