package kvm

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// UsedBy returns the QEMU process that has mapped a region's file as its memory; 0: none. A machine of the same name
// may run under another libvirt: a new region would take it from that.
func UsedBy(path string) int {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	mapped := fmt.Sprintf(" %02x:%02x %d ", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	all, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, file := range all {
		comm, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(comm), "qemu") {
			continue
		}
		if dir := filepath.Dir(file); hasMapped(dir, mapped) {
			var pid int
			fmt.Sscanf(dir, "/proc/%d", &pid)
			return pid
		}
	}
	return 0
}

// hasMapped reports whether a process has mapped a file.
func hasMapped(process, file string) bool {
	f, err := os.Open(filepath.Join(process, "maps"))
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.Contains(lines.Text(), file) {
			return true
		}
	}
	return false
}
