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
	"pegasus/accel/conformance"
)

// The driver of these tests is our own library, connected to a daemon with a
// software accelerator: to those who call it, it is a driver of CUDA. On a machine
// with a GPU they also run with NVIDIA's, in a process of their own.

// realDriver is set where the tests run with NVIDIA's own driver.
const realDriver = "PEGASUS_TEST_REAL_DRIVER"

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
	defer stop()
	return m.Run()
}

// startGPU starts the daemon that our library is to be connected to.
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

// openDevice opens the device; change may change with what.
func openDevice(t testing.TB, change func(*Config)) *Device {
	t.Helper()
	c := Config{Library: library, Clock: clock}
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(lines{t}, nil))
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

func opener(t testing.TB, o conformance.Options) accel.Device {
	return openDevice(t, func(c *Config) {
		c.Shared, c.Quota, c.KernelTimeout, c.OnTimeout = o.Shared, o.Quota, o.KernelTimeout.Nanoseconds(), o.OnTimeout
	})
}

func TestConformance(t *testing.T) {
	conformance.Run(t, opener, shared(t), conformance.Traits{})
}

// TestGPU runs the tests with NVIDIA's driver, where there is one.
func TestGPU(t *testing.T) {
	if os.Getenv(realDriver) != "" {
		t.Skip("this is that run")
	}
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		t.Skip("NOT TRIED ON A GPU: there is no /dev/nvidiactl")
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^(TestConformance|TestMapped.*)$")
	cmd.Env = append(os.Environ(), realDriver+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
