//go:build clients

package test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// python returns a command of Debian's Python with the unpacked modules.
func (h *host) python(t *testing.T, domain string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := h.guest(domain, "/usr/bin/python3", args...)
	cmd.Env = append(cmd.Environ(), "PYTHONPATH="+built(t, "clients/root/usr/lib/python3/dist-packages"))
	return cmd
}

// Tools as shipped by Debian and NVIDIA show the domain's memory, its process, and its utilisation.
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

// Numba's layer over the driver API, which looks up functions by name, without a compiler for kernels.
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

// Numba's own tests of its layer over the driver API pass, except for those that need NVIDIA's compiler, and those that
// the software accelerator rejects for a reason given in docs/programs.md.
func TestClientsNumbaDriver(t *testing.T) {
	h := startHost(t, "[[accelerator]]\nname = \"a0\"\ntype = \"soft\"\nmemory = \"2GiB\"\n[[domain]]\nname = \"one\"\n")
	out, _ := h.python(t, "one", "-m", "numba.runtests", "-v", "numba.cuda.tests.cudadrv").CombinedOutput()
	passed := strings.Count(string(out), "... ok\n")
	refused := []string{
		"NvvmSupportError", "libdevice", // no libNVVM
		"cuMemHostRegister results in CUDA_ERROR_NOT_SUPPORTED", // memory of glibc's heap
		"cuMemAllocManaged results in CUDA_ERROR_OUT_OF_MEMORY", // half of the device, in an arena of 256 MiB
	}
	for _, failure := range strings.Split(string(out), "======================================================================\n")[1:] {
		if !slices.ContainsFunc(refused, func(reason string) bool { return strings.Contains(failure, reason) }) {
			t.Errorf("%s", failure)
		}
	}
	if t.Logf("%d tests pass", passed); passed < 150 {
		t.Errorf("%d tests pass, want 150 or more\n%s", passed, tail(out, 20))
	}
}

// PyCUDA's modules, memory, pools, streams, events and arrays, with PTX in place of its compiler.
func TestClientsPyCUDA(t *testing.T) {
	h := startHost(t, watchedDomains)
	cmd := h.python(t, "one", "-c", `
import numpy as np, pycuda.driver as d
from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool
d.init()
context = d.Device(0).make_context()
twice = d.module_from_buffer(b""".version 6.0
.target sm_50
.address_size 64
.visible .entry twice(.param .u64 a)
{
	.reg .u64 %p, %o; .reg .u32 %t; .reg .f32 %f;
	ld.param.u64 %p, [a]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %p, %p, %o;
	ld.global.f32 %f, [%p]; add.f32 %f, %f, %f; st.global.f32 [%p], %f; ret;
}
""").get_function("twice")
a = np.arange(256, dtype=np.float32)
device, b = d.mem_alloc(a.nbytes), np.empty_like(a)
d.memcpy_htod(device, a)
twice(device, block=(256, 1, 1), grid=(1, 1))
d.memcpy_dtoh(b, device)
assert (b == 2 * a).all()
twice.prepare("P")
twice.prepared_call((1, 1), (256, 1, 1), int(device))
stream, first, last = d.Stream(), d.Event(), d.Event()
pinned = d.pagelocked_empty(256, np.float32)
context.synchronize()
first.record(stream)
d.memcpy_dtoh_async(pinned, device, stream)
last.record(stream)
stream.synchronize()
assert (pinned == 4 * a).all() and last.time_since(first) >= 0
for pool in DeviceMemoryPool(), PageLockedMemoryPool():
	part = pool.allocate(1024) if isinstance(pool, DeviceMemoryPool) else pool.allocate((256,), np.float32)
	del part
	pool.free_held()
assert d.matrix_to_array(np.zeros((3, 4), np.float32), "C").get_descriptor().width == 4
try:
	d.mem_alloc(1 << 40)
except d.MemoryError as e:
	print(e)
print(d.get_driver_version(), twice.max_threads_per_block)
context.pop()
`)
	cmd.Env = append(cmd.Environ(), "LD_LIBRARY_PATH="+built(t, "clients/root/usr/lib/x86_64-linux-gnu"))
	out := string(succeed(t, cmd))
	for _, want := range []string{"out of memory", "12040 1024"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing like %q in %q", want, out)
		}
	}
}

// hwloc's plugin for NVML finds the device.
func TestClientsHwloc(t *testing.T) {
	h := startHost(t, watchedDomains)
	cmd := h.guest("one", built(t, "clients/root/usr/bin/lstopo-no-graphics"), "--of", "console", "--whole-io", "-v")
	libraries := built(t, "clients/root/usr/lib/x86_64-linux-gnu")
	cmd.Env = append(cmd.Environ(), "LD_LIBRARY_PATH="+libraries, "HWLOC_PLUGINS_PATH="+libraries+"/hwloc", "HWLOC_COMPONENTS=-gl,-opencl,-cuda")
	out := string(succeed(t, cmd))
	if want := regexp.MustCompile(`GPU\(NVML\).*GPUModel="Pegasus Software Accelerator.*"nvml0"`); !want.MatchString(out) {
		t.Errorf("nothing like %v in\n%s", want, out)
	}
}

// onTerminal runs a program on a terminal of its own for d, types keys, and returns its output without escapes.
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
