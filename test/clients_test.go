//go:build clients

package test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// python is a command of Debian's Python with the unpacked modules.
func (h *host) python(t *testing.T, domain string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := h.guest(domain, "/usr/bin/python3", args...)
	cmd.Env = append(cmd.Environ(), "PYTHONPATH="+built(t, "clients/root/usr/lib/python3/dist-packages"))
	return cmd
}

// Tools as Debian and NVIDIA ship them see the domain's memory, its process, and that it is busy.
func TestClientsSeeTheDomain(t *testing.T) {
	h := startHost(t, watchedDomains)
	busy := h.bench("one", "busy", "--seconds", "3600")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { busy.Process.Kill(); busy.Wait() }()
	pid := strconv.Itoa(busy.Process.Pid)
	for _, c := range []struct {
		name string
		cmd  func(t *testing.T) string
		want []string // regular expressions; PID is the busy process
	}{
		{"pynvml", func(t *testing.T) string {
			return string(succeed(t, h.python(t, "one", "-c", `
import time, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
for i in range(200):
	time.sleep(0.2)
	u = n.nvmlDeviceGetUtilizationRates(h).gpu
	if u > 0: break
print(n.nvmlDeviceGetName(h), n.nvmlSystemGetDriverVersion(), n.nvmlDeviceGetMemoryInfo(h).total, "busy" if u > 0 else u)
print([p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)], [p.pid for p in n.nvmlDeviceGetProcessUtilization(h, 0)])
refused = failed = 0
for name in dir(n):
	if name.startswith("nvmlDeviceGet"):
		try: getattr(n, name)(h)
		except n.NVMLError_NotSupported: refused += 1
		except n.NVMLError_FunctionNotFound: failed += 1
		except Exception: pass
print(refused, "refused", failed, "missing")
`)))
		}, []string{`Pegasus Software Accelerator.* 550\.54\.14 67108864 busy`, `\[PID\] \[PID\]`, `[1-9]\d+ refused 0 missing`}},
		{"gpustat", func(t *testing.T) string {
			return string(succeed(t, h.python(t, "one", "-m", "gpustat", "--no-color", "--show-pid", "--show-cmd")))
		}, []string{`550\.54\.14`, `\[0\] Pegasus Software Accelerator.*/ +64 MB`, `busy/PID`}},
		{"nvtop", func(t *testing.T) string {
			return onTerminal(t, h.guest("one", built(t, "clients/root/usr/bin/nvtop")), 5*time.Second, "q")
		}, []string{`Pegasus Software Accelerator`, `/64\.000Mi\]`, `PID\s.*Compute\s+\d+%.*busy`}},
		{"go-nvml devices", func(t *testing.T) string {
			return string(succeed(t, h.guest("one", built(t, "clients/bin/devices"))))
		}, []string{`GPU-[0-9a-f-]{36}`}},
		{"go-nvml compute-processes", func(t *testing.T) string {
			return string(succeed(t, h.guest("one", built(t, "clients/bin/compute-processes"))))
		}, []string{`Found 1 processes on device 0`, `PID`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := c.cmd(t)
			t.Logf("%s", out)
			for _, want := range c.want {
				if !regexp.MustCompile(strings.ReplaceAll(want, "PID", pid)).MatchString(out) {
					t.Errorf("nothing like %q", want)
				}
			}
		})
	}
}

// Numba's layer over the driver API, which finds functions by name as it likes, without a compiler of kernels.
func TestClientsNumba(t *testing.T) {
	h := startHost(t, watchedDomains)
	out := string(succeed(t, h.python(t, "one", "-c", `
import numpy as np
from numba import cuda
a = np.arange(1 << 16, dtype=np.int32)
d = cuda.to_device(a)
s = cuda.stream()
e, f = cuda.event(), cuda.event()
e.record(s)
b = d.copy_to_host(stream=s)
f.record(s)
s.synchronize()
print(cuda.current_context().device.name, (a == b).all(), e.elapsed_time(f) >= 0, cuda.current_context().get_memory_info().total)
cuda.synchronize()
`)))
	t.Logf("%s", out)
	if want := fmt.Sprint("True True ", 64<<20); !strings.Contains(out, want) {
		t.Errorf("nothing like %q", want)
	}
}

// onTerminal runs a program on a terminal of its own for a while, types keys, and returns what it showed without escapes.
func onTerminal(t *testing.T, cmd *exec.Cmd, d time.Duration, keys string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	unlock := 0
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock))); e != 0 {
		t.Fatal(e)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Environ(), "TERM=xterm", "HOME="+t.TempDir())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	shown := make(chan []byte)
	go func() {
		var all []byte
		b := make([]byte, 1<<16)
		for {
			n, err := master.Read(b)
			all = append(all, b[:n]...)
			if err != nil {
				shown <- all
				return
			}
		}
	}()
	time.Sleep(d)
	fmt.Fprint(master, keys)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(soon):
		cmd.Process.Kill()
		err = fmt.Errorf("still there: %w", <-ended)
	}
	out := regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78]`).ReplaceAllString(string(<-shown), " ")
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return out
}
