package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/accel/nvidia/listing"
)

// Our own library is a driver of CUDA: connected to a daemon with a software
// accelerator, it is the GPU of these tests.

// startNVIDIA starts a daemon whose accelerator is of type "nvidia", with more in its table.
func startNVIDIA(t testing.TB, more string) *host {
	t.Helper()
	gpu := startHost(t, `
[[accelerator]]
name = "soft0"
memory = "1GiB"
policy = "none"
[[domain]]
name = "gpu"
`)
	h := newHost(t, fmt.Sprintf(`
[[accelerator]]
name = "gpu0"
type = "nvidia"
library = %q
%s
[[domain]]
name = "a"
[[domain]]
name = "b"
`, built(t, "guest/libcuda.so.1"), more))
	h.env = []string{"PEGASUS_SOCKET=" + filepath.Join(gpu.dir, "domains", "gpu.sock")}
	h.private = true
	h.start()
	return h
}

func TestProgramsOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, "")
	if a := h.accelerators()[0]; a.Type != "nvidia" || a.Memory != 1<<30 || !strings.Contains(a.Device, "Software Accelerator") {
		t.Errorf("the accelerator is %+v", a)
	}
	for _, name := range []string{"vectoradd", "matmul", "reduction", "histogram", "walsh", "blackscholes", "nbody"} {
		t.Run(name, func(t *testing.T) { succeed(t, h.bench("a", name, "--iterations", "3", "--queue", "2")) })
	}
	if d := h.domains()["a"]; d.Compute == 0 || d.Copy == 0 || d.Memory != 0 {
		t.Errorf("after all the domain has %+v", d)
	}
}

// An accelerator without its driver is an error that says what is missing.
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
