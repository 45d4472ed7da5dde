package test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
)

// offloaded compiles a program of the offload folder for the host and its offloaded parts for NVIDIA's devices.
func offloaded(t *testing.T, source, model string) string {
	t.Helper()
	compiler := map[string]string{".c": "gcc-12", ".cpp": "g++-12", ".f90": "gfortran-12"}[filepath.Ext(source)]
	out := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command(compiler, "-O2", "-ffp-contract=off", model, "-foffload=nvptx-none", "-foffload-options=-lm -latomic",
		filepath.Join("offload", source), "-o", out, "-lm")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, said)
	}
	return out
}

// Programs of a stock compiler print the same on the device as on the host.
func TestOffload(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	for _, c := range []struct {
		model, here, there string
		sources            []string
	}{
		{"-fopenacc", "ACC_DEVICE_TYPE=host", "ACC_DEVICE_TYPE=nvidia",
			[]string{"loops.c", "histogram.c", "gradient.c", "leaving.c", "nbody.cpp", "stencil.f90"}},
		{"-fopenmp", "OMP_TARGET_OFFLOAD=disabled", "OMP_TARGET_OFFLOAD=mandatory",
			[]string{"teams.c", "bodies.cpp", "plate.f90", "printing.c"}},
	} {
		for _, source := range c.sources {
			t.Run(source, func(t *testing.T) {
				program := offloaded(t, source, c.model)
				host := exec.Command(program)
				host.Env = append(host.Environ(), c.here)
				want := succeed(t, host)
				device := h.guest("one", program)
				device.Env = append(device.Environ(), c.there)
				got := succeed(t, device)
				if string(got) != string(want) || len(want) == 0 {
					t.Errorf("on the device:\n%s\non the host:\n%s", got, want)
				}
			})
		}
	}
}

// nvptx-none-run runs a program that has no host part.
func TestStandalone(t *testing.T) {
	h := startHost(t, oneDomain)
	err := h.guest("one", "nvptx-none-run", "offload/exit.ptx", "abc", "Z").Run()
	var end *exec.ExitError
	if !errors.As(err, &end) || end.ExitCode() != 'a'+'Z' {
		t.Errorf("%v, want exit status %d", err, 'a'+'Z')
	}
}
