//go:build cgo

package nvidia

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/acceltest"
	"pegasus/cuda"
)

// The driver of these tests is the project's own library, connected to a daemon with a software accelerator: to its
// callers it is a CUDA driver. On a machine with a GPU the tests also run with NVIDIA's, in a process of their own.

const (
	// realDriver is set where the tests run with NVIDIA's own driver.
	realDriver = "PEGASUS_TEST_REAL_DRIVER"
	// capable selects a driver with more abilities than the project's library (testdata/capable.c), if the tests run
	// with it.
	capable = "PEGASUS_TEST_CAPABLE_DRIVER"
	// incapable selects one with fewer (testdata/incapable.c).
	incapable = "PEGASUS_TEST_INCAPABLE_DRIVER"
	// fewAddresses is set where device memory has few.
	fewAddresses = "PEGASUS_TEST_FEW_ADDRESSES"
)

var library string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv(realDriver) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stop, err := startGPU(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	stop()
	if status != 0 { // a worker may have ended
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		fmt.Printf("the daemon's log ends with:\n%s\n", log[max(0, len(log)-16<<10):])
	}
	return status
}

// startGPU starts the daemon that the project's library connects to.
func startGPU(dir string) (stop func(), err error) {
	build := os.Getenv("PEGASUS_BUILD")
	if build == "" {
		build = "../../build"
	}
	build, err = filepath.Abs(build)
	if err != nil {
		return nil, err
	}
	library = filepath.Join(build, "guest/libcuda.so.1")
	for _, variable := range []string{capable, incapable} {
		if path := os.Getenv(variable); path != "" {
			library = path
		}
	}
	for _, path := range []string{library, filepath.Join(build, "bin/pegasusd")} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w; run `make build` first", err)
		}
	}
	config := filepath.Join(dir, "pegasus.toml")
	text := "[[accelerator]]\nname = \"soft0\"\nmemory = \"512MiB\"\npolicy = \"none\"\nkernel_timeout = \"60s\"\n[[domain]]\nname = \"gpu\"\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(build, "bin/pegasusd"), "--private", "--linger", "10m", "--runtime-dir", dir, "--config", config, "--ready-fd", "3")
	cmd.ExtraFiles = []*os.File{w}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w.Close()
	if said, _ := bufio.NewReader(r).ReadString('\n'); !strings.Contains(said, "ready") {
		return nil, fmt.Errorf("the daemon says %q", said)
	}
	os.Setenv("PEGASUS_SOCKET", filepath.Join(dir, "domains", "gpu.sock"))
	return func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}, nil
}

func clock() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// lines is a log that goes to the test's.
type lines struct{ t testing.TB }

func (l lines) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}

func shared(t testing.TB) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	return mem
}

// openDevice opens the device; change may change its configuration.
func openDevice(t testing.TB, change func(*Config)) *Device {
	t.Helper()
	c := Config{Library: library, Clock: clock}
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(lines{t}, nil))
	}
	if os.Getenv(realDriver)+os.Getenv(capable) != "" {
		c.DeviceBase, c.DeviceBytes, c.Reserved = 0x5800_0000_0000, 128<<20, true
		if os.Getenv(fewAddresses) != "" {
			c.DeviceBytes = 32 << 20
		}
		reserve(t, c.DeviceBase, c.DeviceBytes)
	}
	if change != nil {
		change(&c)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan error, 1)
		go func() { closed <- d.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the device does not close")
		}
	})
	return d
}

func opener(t testing.TB, o acceltest.Options) accel.Device {
	return openDevice(t, func(c *Config) {
		c.Shared, c.Quota, c.KernelTimeout, c.OnTimeout = o.Shared, o.Quota, o.KernelTimeout.Nanoseconds(), o.OnTimeout
	})
}

func TestConformance(t *testing.T) {
	acceltest.Run(t, opener, shared(t), traits())
}

// traits describes the driver's differences from our library.
func traits() acceltest.Traits {
	real := os.Getenv(realDriver) != ""
	return acceltest.Traits{Whole: real, Fatal: real}
}

// reserve keeps addresses free, as workers do.
func reserve(t testing.TB, base, n uint64) {
	t.Helper()
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(base), uintptr(n), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	if errno != 0 && errno != unix.EEXIST { // a device before that took no memory
		t.Fatal(errno)
	}
}

// again runs these tests in a process of their own, with a variable that selects the driver.
func again(t *testing.T, variable, value string) {
	tryAgain(t, variable+"="+value, "-test.run", "^(TestConformance|TestPlaces.*|TestSwapping.*|TestStuck.*)$")
}

func tryAgain(t *testing.T, setting string, args ...string) {
	args = append([]string{"-test.v"}, args...)
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), setting, "PEGASUS_TEST_FAULTS="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGPU runs the tests with NVIDIA's driver, if there is one.
func TestGPU(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		t.Skip("NOT TRIED ON A GPU: there is no /dev/nvidiactl")
	}
	again(t, realDriver, "1")
}

// TestCapable runs them with one that registers host memory, as NVIDIA's does, and checks strictly that memory is mapped.
func TestCapable(t *testing.T) { again(t, capable, driverOf(t, "capable")) }

// TestIncapable runs them with one that can't map memory or wait for words: neither is required.
func TestIncapable(t *testing.T) { again(t, incapable, driverOf(t, "incapable")) }

// TestCapableInHaste runs one with hardly any addresses: an allocation that comes before the cleanup of earlier memory
// waits for it.
func TestCapableInHaste(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	t.Setenv(fewAddresses, "1")
	tryAgain(t, capable+"="+driverOf(t, "capable"), "-test.run", "^TestSwappingConformance$/^HastySegments$", "-test.count", "10")
}

// driverOf builds a driver that wraps the project's library.
func driverOf(t *testing.T, name string) string {
	so := filepath.Join(t.TempDir(), name+".so")
	dir := filepath.Dir(library)
	cmd := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-pthread", "-I../../guest/include", "testdata/"+name+".c",
		"-o", so, "-L"+dir, "-Wl,--no-as-needed", "-lcuda", "-ldl", "-Wl,-rpath,"+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return so
}

// TestPlaces checks where the driver's abilities put memory.
func TestPlaces(t *testing.T) {
	mem := shared(t)
	d := openDevice(t, func(c *Config) { c.Shared = mem })
	x, r := d.NewContext(0)
	if r != cuda.Success {
		t.Fatal(r)
	}
	c := x.(*Context)
	able := os.Getenv(realDriver)+os.Getenv(capable) != ""
	if byDevice := os.Getenv(incapable) == ""; d.byDevice != byDevice || (d.pinner == c) != able {
		t.Errorf("streams are held by the device: %v; the arena is pinned: %v", d.byDevice, d.pinner == c)
	}
	m, mapping := d.store.(*mapped)
	if mapping != able {
		t.Fatalf("memory comes from %T", d.store)
	}
	if !able {
		return
	}
	const mib = 1 << 20
	if m.size(c, 1); os.Getenv(realDriver) != "" && m.base != d.config.DeviceBase {
		t.Errorf("the driver gave addresses from %#x on, not from %#x, which were kept free", m.base, d.config.DeviceBase)
	}
	var all []uint64
	for _, n := range []uint64{1, 600, 5 * mib, 900 << 10, 900 << 10, 900 << 10, mib - 1, 512} {
		at, r := c.Alloc(n)
		if r != cuda.Success {
			t.Fatalf("%d bytes: %v", n, r)
		}
		if at < m.base || at+n > m.base+m.bytes {
			t.Errorf("%d bytes are at %#x, outside of [%#x, +%d)", n, at, m.base, m.bytes)
		}
		all = append(all, at)
	}
	if len(m.blocks) != 4 { // two pages of small ones, and two that are one's own
		t.Errorf("%d blocks are mapped", len(m.blocks))
	}
	for _, i := range []int{3, 0, 7, 5, 1, 2, 4, 6} {
		if r := c.Free(all[i], nil); r != cuda.Success {
			t.Errorf("free: %v", r)
		}
	}
	if len(m.blocks) != 0 || len(m.free) != 1 || m.free[0] != (hole{m.base, m.bytes}) {
		t.Errorf("after all was freed there are %d blocks, and free is %v", len(m.blocks), m.free)
	}
}

// A smaller range is requested of a driver that lacks the requested addresses.
func TestFewerAddresses(t *testing.T) {
	if os.Getenv(realDriver) != "" {
		t.Skip("a GPU's driver may have as many")
	}
	d := openDevice(t, func(c *Config) { c.DeviceBase, c.DeviceBytes = 0x5900_0000_0000, 4<<40 })
	if m := d.Capabilities().Mapping; m == nil || m.MapGranule() != guestGranule {
		t.Fatalf("memory is mapped by %v", m)
	}
	at, r := d.ReserveRange(16<<30, 0, 0)
	if r != cuda.Success || d.FreeRange(at) != cuda.Success {
		t.Errorf("16 GiB of addresses: %v", r)
	}
}

// A context's own memory counts as its guest's, from before the context exists until it is gone.
func TestContextsCount(t *testing.T) {
	const takes = 24 << 20
	used := int64(0)
	d := openDevice(t, func(c *Config) {
		c.Context = takes
		c.Quota = func(delta int64) bool {
			if used+delta > 60<<20 {
				return false
			}
			used += delta
			return true
		}
	})
	a, r := d.NewContext(0)
	if r != cuda.Success || used != takes {
		t.Fatalf("%v: %d bytes count", r, used)
	}
	b, r := d.NewContext(0)
	if r != cuda.Success || used != 2*takes {
		t.Fatalf("%v: %d bytes count", r, used)
	}
	if _, r := d.NewContext(0); r != cuda.ErrorOutOfMemory || used != 2*takes {
		t.Errorf("a third: %v, %d bytes count", r, used)
	}
	for _, c := range []accel.Context{b, a} {
		gone := make(chan struct{})
		c.Destroy(func() { close(gone) })
		<-gone
	}
	if used != 0 {
		t.Errorf("after all are gone %d bytes count", used)
	}
}

// Heaps, and the memory of kernels' threads, are the device's too: a guest's changes of them count.
func TestLimitsCount(t *testing.T) {
	const most = 200 << 20
	used := int64(0)
	d := openDevice(t, func(c *Config) {
		c.Quota = func(delta int64) bool {
			if used+delta > most {
				return false
			}
			used += delta
			return true
		}
	})
	x, r := d.NewContext(0)
	if r != cuda.Success {
		t.Fatal(r)
	}
	if _, r := x.SetLimit(limitHeap, 72<<20); r != cuda.Success || used != 64<<20 {
		t.Errorf("a heap of 72 MiB, where there are 8: %v, %d bytes count", r, used)
	}
	if _, r := x.SetLimit(limitHeap, 32<<20); r != cuda.Success || used != 64<<20 {
		t.Errorf("a smaller one: %v, %d bytes count", r, used)
	}
	if _, r := x.SetLimit(limitHeap, 1<<30); r != cuda.ErrorOutOfMemory || used != 64<<20 {
		t.Errorf("one of 1 GiB: %v, %d bytes count", r, used)
	}
	if _, r := x.SetLimit(limitStack, 256<<10); r != cuda.ErrorOutOfMemory {
		threads := d.about.Attributes[cuda.AttributeMultiprocessorCount] * d.about.Attributes[cuda.AttributeMaxThreadsPerMultiprocessor]
		t.Errorf("stacks of 256 KiB for %d threads: %v", threads, r)
	}
	gone := make(chan struct{})
	x.Destroy(func() { close(gone) })
	<-gone
	if used != 0 {
		t.Errorf("after the context is gone %d bytes count", used)
	}
}
