package test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/frontend"
)

// status returns the fields of a process's status file in /proc.
func status(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		m[key] = strings.TrimSpace(value)
	}
	return m
}

// The kernel denies a serving worker all operations that it does not need.
func TestWorkersAreConfined(t *testing.T) {
	h := startHost(t, hostileDomains)
	one, other := h.dial("bad"), h.dial("good")
	for _, c := range []*frontend.Client{one, other} { // a worker that answers calls is confined
		if err := c.Ping(); err != nil {
			t.Fatal(err)
		}
	}
	users := map[string]string{}
	for domain, pid := range map[string]int{"bad": one.WorkerPID(), "good": other.WorkerPID()} {
		s := status(t, pid)
		for key, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2"} {
			if s[key] != want {
				t.Errorf("%s: %s is %s, want %s", domain, key, s[key], want)
			}
		}
		if os.Getuid() == 0 {
			users[domain] = s["Uid"]
			for _, ids := range []string{s["Uid"], s["Gid"]} {
				for _, id := range strings.Fields(ids) {
					if n, _ := strconv.Atoi(id); n < 1000 {
						t.Errorf("%s: users and groups are %q and %q", domain, s["Uid"], s["Gid"])
					}
				}
			}
			if s["Groups"] != "" {
				t.Errorf("%s: groups are left: %s", domain, s["Groups"])
			}
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
				if strings.Trim(s[set], "0") != "" {
					t.Errorf("%s: %s is %s", domain, set, s[set])
				}
			}
		}
		limits(t, domain, pid)
		undumpable(t, domain, pid)
		onlyItsOwn(t, domain, pid)
	}
	if os.Getuid() == 0 && users["bad"] == users["good"] {
		t.Errorf("workers of both domains run as %s", users["bad"])
	}
}

// limits checks the limits that the kernel applies to a worker.
func limits(t *testing.T, domain string, pid int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for name, most := range map[string]uint64{"Max core file size": 0, "Max open files": 4096, "Max data size": 5 << 30} {
		_, line, _ := strings.Cut(string(text), name)
		f := strings.Fields(line)
		hard, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil || hard > most {
			t.Errorf("%s: %s may be %s, want at most %d", domain, name, f[1], most)
		}
	}
}

// undumpable checks that other processes of its user cannot inspect a worker: the kernel gives the files of such a
// process to root.
func undumpable(t *testing.T, domain string, pid int) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/mem", pid), &st); err != nil {
		t.Fatal(err)
	}
	if st.Uid != 0 {
		t.Errorf("%s: /proc/PID/mem belongs to user %d", domain, st.Uid)
	}
}

// onlyItsOwn checks a worker's open files: none has a path except its log and files that any process may open.
func onlyItsOwn(t *testing.T, domain string, pid int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	segments := 0
	for _, fd := range fds {
		to, err := os.Readlink(dir + fd.Name())
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if strings.Contains(to, "pegasus-segment") {
			segments++
		}
		// Go's runtime reads its number of cores from a cgroup.
		known := strings.HasPrefix(to, "/memfd:pegasus-") || strings.HasPrefix(to, "/sys/fs/cgroup/") || strings.HasSuffix(to, "/log") || to == os.DevNull
		if strings.HasPrefix(to, "/") && !known {
			t.Errorf("%s: descriptor %s is %s", domain, fd.Name(), to)
		}
	}
	if segments > 1 {
		t.Errorf("%s: %d segments are open", domain, segments)
	}
}
