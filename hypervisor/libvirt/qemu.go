package libvirt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// vcpuOf is one vCPU in QEMU's answer to query-cpus-fast.
type vcpuOf struct {
	Index  int `json:"cpu-index"`
	Thread int `json:"thread-id"`
}

// ParseThreads returns the vCPU threads in QEMU's answer to query-cpus-fast, by vCPU index.
func ParseThreads(out []byte) ([]int, error) {
	var r struct {
		Return []vcpuOf `json:"return"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	slices.SortFunc(r.Return, func(x, y vcpuOf) int { return cmp.Compare(x.Index, y.Index) })
	var ids []int
	for _, c := range r.Return {
		if c.Thread <= 0 {
			return nil, fmt.Errorf("thread %d of vCPU %d", c.Thread, c.Index)
		}
		ids = append(ids, c.Thread)
	}
	if len(ids) == 0 || len(ids) > maxVCPUs {
		return nil, fmt.Errorf("QEMU reports %d vCPUs", len(ids))
	}
	return ids, nil
}

// SocketOf returns the socket of a libvirt of this host.
func SocketOf(uri string) string {
	if u, err := url.Parse(uri); err == nil {
		if s := u.Query().Get("socket"); s != "" {
			return s
		}
	}
	for _, s := range []string{"/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock"} {
		if _, err := os.Stat(s); err == nil {
			return s
		}
	}
	return "/run/libvirt/libvirt-sock"
}

// ProcessOf returns the process of a machine's threads. QEMU isn't trusted to report only its own: all must be of one
// process, which was started for that machine.
func ProcessOf(name string, ids []int) (pid int, err error) {
	for _, id := range ids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
		if err != nil {
			return 0, err
		}
		of := field(text, "Tgid:")
		if pid != 0 && of != pid {
			return 0, fmt.Errorf("threads of processes %d and %d", pid, of)
		}
		pid = of
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return 0, err
	}
	for _, arg := range bytes.Split(command, []byte{0}) {
		if strings.HasPrefix(string(arg), "guest="+name+",") {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d isn't its QEMU", pid)
}

func field(text []byte, key string) int {
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return 0
}
