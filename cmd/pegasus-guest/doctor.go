package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pegasus/guest/kvm"
)

const library = "libcuda.so.1"

// finding is one check: what was found, and the way out if that is bad.
type finding struct {
	name, detail, fix string
}

func (f finding) ok() bool { return f.fix == "" }

// doctor does all checks and returns the exit status.
func doctor(out io.Writer) int {
	status := 0
	findings := []finding{checkSocket(socket()), checkLibrary(searchPath())}
	if socket() == agentSocket {
		findings = append(findings, checkPort(kvm.FindPort()))
	}
	for _, f := range findings {
		mark := "ok  "
		if !f.ok() {
			mark, status = "FAIL", 1
		}
		fmt.Fprintf(out, "%s  %-8s  %s\n", mark, f.name, f.detail)
		if !f.ok() {
			fmt.Fprintf(out, "%16s→ %s\n", "", f.fix)
		}
	}
	return status
}

const runIt = "start the program by `pegasus run -- PROGRAM`, in a virtual machine start `pegasus-guest agent` as root"

// socket is where a program would connect.
func socket() string {
	path := os.Getenv("PEGASUS_SOCKET")
	if _, err := os.Stat(agentSocket); path == "" && err == nil {
		return agentSocket
	}
	return path
}

// checkSocket tells whether the daemon can be reached.
func checkSocket(path string) finding {
	f := finding{name: "socket"}
	if path == "" {
		f.detail, f.fix = "PEGASUS_SOCKET isn't set, so that programs don't know their domain", runIt+", or set it to the domain's socket, such as /run/pegasus/domains/NAME.sock"
		return f
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.Dial("unixpacket", path)
	switch {
	case err == nil:
		c.Close()
		f.detail = path + " answers"
	case errors.Is(err, fs.ErrNotExist):
		f.detail, f.fix = path+" doesn't exist", "ask for the domain's name, or start pegasusd"
	case errors.Is(err, fs.ErrPermission):
		f.detail, f.fix = path+" may not be used by this user", "ask for socket_owner, socket_group or socket_mode of the domain to be changed"
	default:
		f.detail, f.fix = err.Error(), "start pegasusd"
	}
	return f
}

// searchPath is where the dynamic loader looks: LD_LIBRARY_PATH, then the usual
// directories.
func searchPath() []string {
	var dirs []string
	for _, d := range strings.Split(os.Getenv("LD_LIBRARY_PATH"), ":") {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	return append(dirs, "/usr/local/lib/x86_64-linux-gnu", "/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

// checkLibrary tells whether programs load our library, and not a driver's.
func checkLibrary(dirs []string) finding {
	f := finding{name: "library"}
	for _, dir := range dirs {
		path := filepath.Join(dir, library)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		ours, err := isOurs(path)
		switch {
		case err != nil:
			f.detail, f.fix = fmt.Sprintf("%s can't be loaded: %v", path, err), "install Pegasus' "+library+" there"
		case !ours:
			f.detail, f.fix = path+" isn't Pegasus', and programs load it first", runIt+", or put the directory of Pegasus' library into LD_LIBRARY_PATH"
		default:
			f.detail = path + " is Pegasus', and programs load it first"
		}
		return f
	}
	f.detail, f.fix = "the loader finds no "+library, runIt+", or put the directory of Pegasus' library into LD_LIBRARY_PATH"
	return f
}

// isOurs looks for the variable by which our library reads its socket.
func isOurs(path string) (bool, error) {
	e, err := elf.Open(path)
	if err != nil {
		return false, err
	}
	defer e.Close()
	section := e.Section(".rodata")
	if section == nil {
		return false, nil
	}
	data, err := section.Data()
	if err != nil {
		return false, err
	}
	return slices.Contains(strings.Split(string(data), "\x00"), "PEGASUS_SOCKET"), nil
}
