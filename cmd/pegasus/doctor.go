package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/callbuf"
	"pegasus/configs"
	"pegasus/cuda"
	"pegasus/guest/setup"
	"pegasus/policies"
)

// Findings of the doctor.
const (
	fine = "ok"
	warn = "warn"
	fail = "fail"
)

func doctor(c *call) action {
	c.jsonFlag()
	return c.takes(0, 0, func([]string) error {
		var all []control.Check
		for _, check := range []func() []control.Check{
			checkKernel, checkCores, checkMemory, checkFiles, checkAddresses, c.checkRuntimeDir, checkBinaries, c.checkConfiguration, c.checkNVIDIA, checkCoverage, checkCompanions, checkSocket, c.checkDaemon, c.checkMachines,
		} {
			all = append(all, check()...)
		}
		if c.json {
			if err := printJSON(c.out, all); err != nil {
				return err
			}
		} else {
			c.printChecks(all)
		}
		failed := 0
		for _, f := range all {
			if f.State == fail {
				failed++
			}
		}
		if failed > 0 {
			return fmt.Errorf("%d of %s failed", failed, control.Count(len(all), "check"))
		}
		return nil
	})
}

func (c *call) printChecks(all []control.Check) {
	t := &table{head: []string{"", "CHECK", "FINDING"}, prose: true}
	for _, f := range all {
		t.add(f.State, f.Name, f.Detail)
		if f.Fix != "" && f.State != fine {
			t.add("", "", "→ "+f.Fix)
		}
	}
	t.print(c.out)
}

func one(name, state, detail, fix string) []control.Check {
	return []control.Check{{Name: name, State: state, Detail: detail, Fix: fix}}
}

// checkKernel checks for features without a replacement: pidfds (5.3) and sealed memory files (3.17).
func checkKernel() []control.Check {
	var u unix.Utsname
	unix.Uname(&u)
	release := unix.ByteSliceToString(u.Release[:])
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return one("kernel", fail, fmt.Sprintf("Linux %s has no pidfd_open: %v", release, err), "use Linux 5.3 or later, and allow pidfd_open in the container's seccomp profile")
	}
	unix.Close(fd)
	if fd, err = unix.MemfdCreate("doctor", unix.MFD_ALLOW_SEALING); err != nil {
		return one("kernel", fail, fmt.Sprintf("Linux %s makes no sealed memory files: %v", release, err), "use Linux 3.17 or later, and allow memfd_create")
	}
	unix.Close(fd)
	return one("kernel", fine, "Linux "+release, "")
}

func checkCores() []control.Check {
	n := runtime.NumCPU()
	if n < 2 {
		return one("cores", warn, "one core: guest and worker take turns on it, calls are slow", "give the machine a second core")
	}
	return one("cores", fine, strconv.Itoa(n)+" cores", "")
}

// checkMemory compares the software accelerator's memory with the host's.
func checkMemory() []control.Check {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return one("memory", warn, err.Error(), "")
	}
	total := uint64(info.Totalram) * uint64(info.Unit)
	var offered uint64
	for _, a := range configs.Default().Accelerators {
		offered += uint64(a.Memory)
	}
	text := fmt.Sprintf("%s of memory; the default accelerator offers %s of it", bytesText(total), bytesText(offered))
	if offered > total {
		return one("memory", warn, text, "lower memory of [[accelerator]] in the configuration")
	}
	return one("memory", fine, text, "")
}

func checkFiles() []control.Check {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return one("files", warn, err.Error(), "")
	}
	text := fmt.Sprintf("a process may open %d files", r.Max)
	if r.Max < 4096 {
		return one("files", warn, text+", the daemon takes about 8 for each guest process", "raise the limit: ulimit -Hn 65536, or LimitNOFILE= in the service")
	}
	return one("files", fine, text, "")
}

// checkAddresses checks the address space limit that a daemon started from here would have.
func checkAddresses() []control.Check {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &r); err != nil {
		return one("addresses", warn, err.Error(), "")
	}
	return judgeAddresses(r.Cur)
}

// workerAddresses is a worker's need of address space, beside its part of the device window.
const workerAddresses = 4 << 30

func judgeAddresses(limit uint64) []control.Check {
	if limit == unix.RLIM_INFINITY {
		return one("addresses", fine, "a process may have as many as there are", "")
	}
	text := fmt.Sprintf("a process may have %s of them, a worker needs %s, nearly all without memory behind", bytesText(limit), bytesText(callbuf.DeviceSliceBytes+workerAddresses))
	if limit < callbuf.DeviceSliceBytes+workerAddresses {
		return one("addresses", fail, text, "start the daemon without that limit: ulimit -v unlimited, or LimitAS=infinity in the service")
	}
	return one("addresses", fine, text, "")
}

// checkRuntimeDir checks whether a daemon can write its state and its sockets.
func (c *call) checkRuntimeDir() []control.Check {
	dir := c.dir
	if dir == "" {
		var err error
		if dir, err = control.PrivateDir(); err != nil {
			return one("runtime directory", fail, err.Error(), "correct the variable, or unset it")
		}
		if os.Geteuid() == 0 && os.Getenv(control.RuntimeVariable) == "" {
			dir = control.SystemDir
		}
	}
	var fs unix.Statfs_t
	for at := dir; unix.Statfs(at, &fs) != nil; at = filepath.Dir(at) { // it need not exist yet
		if at == filepath.Dir(at) {
			return nil
		}
	}
	return judgeRuntimeDir(dir, &fs)
}

// minRuntime is more than the state of a daemon with many guests needs.
const minRuntime = 4 << 20

func judgeRuntimeDir(dir string, fs *unix.Statfs_t) []control.Check {
	room := fs.Bavail * uint64(fs.Bsize)
	const fix = "remove what fills that file system, or make it larger (mount -o remount,size=…)"
	switch {
	case fs.Files != 0 && fs.Ffree == 0:
		return one("runtime directory", fail, fmt.Sprintf("%s: its file system has no room for another file: no program can begin there", dir), fix)
	case room == 0:
		return one("runtime directory", fail, fmt.Sprintf("%s: its file system is full: no program can begin, and the daemon's state isn't written", dir), fix)
	case room < minRuntime:
		return one("runtime directory", warn, fmt.Sprintf("%s: its file system has room for %s only", dir, bytesText(room)), fix)
	}
	return one("runtime directory", fine, fmt.Sprintf("%s has room for %s more", dir, bytesText(room)), "")
}

func checkBinaries() []control.Check {
	var all []control.Check
	if path, err := findDaemon(); err != nil {
		all = append(all, one("pegasusd", fail, err.Error(), "run `make`")...)
	} else {
		all = append(all, one("pegasusd", fine, path, "")...)
	}
	path, err := findLibrary()
	return append(all, judgeLibrary(path, err, inDom0())...)
}

// judgeLibrary returns the finding about the library for this host's own programs. Dom0 needs none: domUs
// have theirs.
func judgeLibrary(path string, err error, dom0 bool) []control.Check {
	switch {
	case err != nil && dom0:
		return one("library", warn, err.Error(), "programs of Dom0 itself need it; domUs have their own")
	case err != nil:
		return one("library", fail, err.Error(), "run `make`")
	}
	return one("library", fine, filepath.Clean(path), "")
}

// configPath returns the configuration file of the running daemon, or that of the next one.
func (c *call) configPath() string {
	if s, err := ask(c, (*client.Client).Status); err == nil && s.Config != "" {
		return s.Config
	}
	return configs.Path
}

func (c *call) checkConfiguration() []control.Check {
	path := c.configPath()
	if !configs.Exists(path) {
		return one("configuration", fine, path+" doesn't exist: the defaults hold", "")
	}
	if _, err := configs.Load(path, configs.Options{Policies: policies.Names()}); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return one("configuration", fail, first, fmt.Sprintf("mend it; `pegasus config --check %s` shows everything that is wrong", path))
	}
	if files, _ := configs.DropIns(path); len(files) > 0 {
		return one("configuration", fine, fmt.Sprintf("%s, with %s of %s.d", path, control.Count(len(files), "file"), path), "")
	}
	return one("configuration", fine, path, "")
}

// checkDaemon queries the running daemon, if any.
func (c *call) checkDaemon() []control.Check {
	s, err := ask(c, (*client.Client).Status)
	switch {
	case errors.Is(err, errNoDaemon):
		return one("daemon", fine, "none runs; `pegasus run` starts a private one", "")
	case errors.As(err, new(*refusal)):
		return one("daemon", warn, err.Error(), "run as root, or ask to be put into control_group")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return one("daemon", fail, err.Error(), "continue it (kill -CONT) if it was stopped, or restart it: running guests of the host's daemon go on")
	case errors.As(err, new(*control.Stranger)):
		return one("daemon", warn, err.Error(), "unset PEGASUS_RUNTIME_DIR and XDG_RUNTIME_DIR, which may be another user's")
	case err != nil:
		return one("daemon", warn, err.Error(), "")
	}
	kind := "the host's"
	if s.Private {
		kind = "a private one"
	}
	all := one("daemon", fine, fmt.Sprintf("%s, process %d in %s, %s", kind, s.PID, s.RuntimeDir, control.Count(s.Guests, "guest")), "")
	if s.Version != control.Release() {
		all = append(all, one("version", warn, fmt.Sprintf("the daemon is %s, this command %s", s.Version, control.Release()), "restart the daemon: running guests go on")...)
	}
	if s.ConfigError != "" {
		first, _, _ := strings.Cut(s.ConfigError, "\n")
		all = append(all, one("reload", warn, "the last reload was refused: "+first, "mend the file, then `pegasus reload`")...)
	}
	return append(all, s.Confinement...)
}

// checkCompanions lists the parts of NVIDIA's driver and toolkit that Pegasus does not include.
func checkCompanions() []control.Check {
	var all []control.Check
	for _, c := range setup.Companions() {
		detail, fix := c.Finding(c.Find("/", os.Getenv("LD_LIBRARY_PATH")))
		state := fine
		if fix != "" {
			state = warn
		}
		all = append(all, one(c.Name, state, detail, fix)...)
	}
	return all
}

// checkSocket checks, in a guest, whether the domain's socket answers: a guest has no other access to the
// host's daemon.
func checkSocket() []control.Check {
	path := os.Getenv("PEGASUS_SOCKET")
	if path == "" {
		return nil
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.Dial("unixpacket", path)
	if err != nil {
		return one("socket", fail, fmt.Sprintf("PEGASUS_SOCKET names %s: %v", path, err), "start pegasusd, or have socket_owner, socket_group or socket_mode of the domain admit this user; or unset PEGASUS_SOCKET")
	}
	conn.Close()
	return one("socket", fine, path+", which PEGASUS_SOCKET names, answers", "")
}

// checkCoverage reports how much of the driver API is implemented.
func checkCoverage() []control.Check {
	all := cuda.Coverage(0)
	first := cuda.Coverage(1)
	text := fmt.Sprintf("%d of the %d symbols are implemented, the others answer CUDA_ERROR_NOT_SUPPORTED; of the %d that ffmpeg loads, %d",
		all.Implemented(), all.Symbols, first.Symbols, first.Implemented())
	return one("symbols", fine, text, "")
}
