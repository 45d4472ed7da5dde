package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/accel/nvidia/listing"
	"pegasus/backend/control"
	"pegasus/cuda"
)

// Pegasus's own library is a CUDA driver: connected to a daemon with a software accelerator, it is the GPU of these
// tests.

// startNVIDIA starts a daemon with a configuration in which all accelerators become NVIDIA's.
func startNVIDIA(t testing.TB, config string) *host {
	t.Helper()
	return startDriver(t, config, built(t, "guest/libcuda.so.1"))
}

// startDriver is startNVIDIA with a driver that wraps Pegasus's library.
func startDriver(t testing.TB, config, driver string, env ...string) *host {
	t.Helper()
	gpu := startHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"1GiB\"\npolicy = \"none\"\nkernel_timeout = \"1h\"\n[[domain]]\nname = \"gpu\"\n")
	config = strings.ReplaceAll(config, `type = "soft"`, "")
	config = strings.ReplaceAll(config, "[[accelerator]]", fmt.Sprintf("[[accelerator]]\ntype = \"nvidia\"\nlibrary = %q", driver))
	h := newHost(t, config)
	h.env = append(env, "PEGASUS_SOCKET="+filepath.Join(gpu.dir, "domains", "gpu.sock"))
	h.private = true
	h.start()
	return h
}

func TestProgramsOnNVIDIA(t *testing.T) {
	t.Parallel()
	h := startNVIDIA(t, oneDomain)
	if a := h.accelerators()[0]; a.Type != "nvidia" || !strings.Contains(a.Device, "Software Accelerator") {
		t.Errorf("the accelerator is %+v", a)
	}
	for _, name := range []string{"vectoradd", "matmul", "reduction", "histogram", "walsh", "blackscholes", "nbody"} {
		t.Run(name, func(t *testing.T) { succeed(t, h.bench("one", name, "--iterations", "3", "--queue", "2")) })
	}
	var d control.Domain
	eventually(t, soon, "no memory is left", func() bool { d = h.domains()["one"]; return d.Memory == 0 })
	if d.Compute == 0 || d.Copy == 0 {
		t.Errorf("after all the domain has %+v", d)
	}
	// Modules linked from many objects.
	for source, model := range map[string]string{"gradient.c": "-fopenacc", "teams.c": "-fopenmp"} {
		t.Run(source, func(t *testing.T) {
			device := h.guest("one", offloaded(t, source, model))
			device.Env = append(device.Environ(), "ACC_DEVICE_TYPE=nvidia", "OMP_TARGET_OFFLOAD=mandatory")
			succeed(t, device)
		})
	}
}

// A kernel that doesn't end is killed with its worker, and charged for all of its time; other processes are unaffected.
func TestEndlessKernelOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, twoDomains)
	c, other := h.dial("one"), load(t, h.dial("other"))
	x := load(t, c)
	at, err := x.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.launch("endless", at); err != nil {
		t.Fatal(err)
	}
	wantResult(t, x.Synchronize(), cuda.ErrorLaunchTimeout)
	eventually(t, soon, "the worker ends", func() bool { return !running(c.WorkerPID()) })
	if gpu := h.domains()["one"].GPU; gpu < int64(900*time.Millisecond) {
		t.Errorf("the domain was charged %v for the endless kernel, want about 1 s", time.Duration(gpu))
	}
	other.works()
	load(t, h.dial("one")).works()
}

// A domain's guaranteed memory is available to it.
func TestGuaranteeOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, "[[accelerator]]\nname = \"gpu0\"\nmemory = \"64MiB\"\n"+guaranteed)
	kept, other := load(t, h.dial("kept")), load(t, h.dial("d0"))
	if free, _, err := other.MemInfo(); err != nil || free > 40<<20 {
		t.Errorf("%d bytes are free for others, %v", free, err)
	}
	if _, err := other.Alloc(36 << 20); err != nil {
		t.Fatal(err)
	}
	_, err := other.Alloc(8 << 20)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	if _, err := kept.Alloc(16 << 20); err != nil {
		t.Fatal(err)
	}
}

// Workers outlive the daemon, and the next one finds them.
func TestNVIDIAWorkersAreAdopted(t *testing.T) {
	h := startNVIDIA(t, oneDomain)
	h.stop()
	h.private = false
	h.start()
	x := load(t, h.dial("one"))
	x.works()
	h.kill()
	x.works()
	h.start()
	eventually(t, soon, "the new daemon knows the guest", func() bool { return h.domains()["one"].Processes == 1 })
	x.works()
	load(t, h.dial("one")).works()
}

// An accelerator without its driver is an error that names the missing part.
func TestNVIDIAWithoutDriver(t *testing.T) {
	h := newHost(t, `
[[accelerator]]
name = "gpu0"
type = "nvidia"
library = "/nowhere/libcuda.so.1"
`)
	said := h.refuseToStart()
	for _, want := range []string{`accelerator "gpu0": type = "nvidia": load NVIDIA's driver library /nowhere/libcuda.so.1`, "install NVIDIA's driver"} {
		if !strings.Contains(said, want) || strings.Count(said, "\n") > 1 {
			t.Errorf("the daemon says %q, want one line with %q", said, want)
		}
	}
}

// The cost of switching between processes is measured before a process uses the device.
func TestSwitchingOnNVIDIA(t *testing.T) {
	gpu := startHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\n[[domain]]\nname = \"gpu\"")
	t.Setenv("PEGASUS_SOCKET", filepath.Join(gpu.dir, "domains", "gpu.sock"))
	s, err := listing.AskSwitching(built(t, "bin/pegasus-nvidia"), built(t, "guest/libcuda.so.1"), "0")
	if err != nil || s.Cost < 0 || s.Cost > time.Second {
		t.Errorf("%v %v", s.Cost, err)
	}
	if _, err := listing.AskSwitching(built(t, "bin/pegasus-nvidia"), "/nowhere/libcuda.so.1", ""); err == nil || !strings.Contains(err.Error(), "/nowhere/libcuda.so.1") {
		t.Errorf("without a driver: %v", err)
	}
}

func TestListNVIDIA(t *testing.T) {
	gpu := startHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\n[[domain]]\nname = \"gpu\"")
	cmd := exec.Command(built(t, "bin/pegasus-nvidia"), "list", "--library", built(t, "guest/libcuda.so.1"))
	cmd.Env = append(cmd.Environ(), "PEGASUS_SOCKET="+filepath.Join(gpu.dir, "domains", "gpu.sock"))
	var all []listing.Device
	if err := json.Unmarshal(succeed(t, cmd), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Memory != 256<<20 || all[0].Capability != "7.5" || all[0].Version != 12040 || !strings.HasPrefix(all[0].UUID, "GPU-") {
		t.Errorf("%+v", all)
	}
	for _, which := range []string{"", "0", all[0].UUID} {
		if d, err := listing.Choose(all, which); err != nil || d.Index != 0 {
			t.Errorf("device %q: %+v %v", which, d, err)
		}
	}
	if _, err := listing.Choose(all, "7"); err == nil || !bytes.Contains([]byte(err.Error()), []byte(all[0].UUID)) {
		t.Errorf("device 7: %v", err)
	}
}

// hungry is a driver with properties of GPUs that the library hasn't (testdata/hungry.c), and the variable for it in
// the daemon's environment.
func hungry(t testing.TB) (driver, env string) {
	t.Helper()
	so, contexts := driverOf(t, "hungry"), filepath.Join(t.TempDir(), "contexts")
	if err := os.WriteFile(contexts, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return so, "PEGASUS_TEST_CONTEXTS=" + contexts
}

// driverOf builds a driver that wraps Pegasus's library (accel/nvidia/testdata).
func driverOf(t testing.TB, name string) string {
	t.Helper()
	so, lib := filepath.Join(t.TempDir(), name+".so"), filepath.Dir(built(t, "guest/libcuda.so.1"))
	cmd := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-pthread", "-I../guest/include", "../accel/nvidia/testdata/"+name+".c",
		"-o", so, "-L"+lib, "-Wl,--no-as-needed", "-lcuda", "-ldl", "-Wl,-rpath,"+lib)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return so
}

// A device's clusters are usable, also from graphs, and so are tensor maps.
func TestHopperOnNVIDIA(t *testing.T) {
	driver, env := hungry(t)
	h := startDriver(t, oneDomain, driver, env)
	corners := program(t, "corners")
	for _, part := range []string{"clustered", "tensors"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", corners, part)) })
	}
}

// The memory of a driver's contexts is measured before a process uses the device, counts as its owner's memory, and is
// shown.
func TestContextsCountOnNVIDIA(t *testing.T) {
	const takes = 24 << 20 // as in testdata/hungry.c
	driver, env := hungry(t)
	h := startDriver(t, "[[accelerator]]\nname = \"gpu0\"\nmemory = \"256MiB\"\n[[domain]]\nname = \"one\"\nmemory = \"60MiB\"\n", driver, env)
	shows := func(bytes uint64) {
		t.Helper()
		eventually(t, soon, fmt.Sprintf("%d bytes are shown", bytes), func() bool { return h.domains()["one"].Memory == bytes })
	}
	first, second := load(t, h.dial("one")), load(t, h.dial("one"))
	shows(2 * takes)
	if free, total, err := first.MemInfo(); err != nil || free != total-2*takes {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
	_, err := h.dial("one").NewContext(0, 0)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	if err := second.Destroy(); err != nil {
		t.Fatal(err)
	}
	shows(takes)
	first.works()
}
