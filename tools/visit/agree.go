package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// agree are the steps that compare programs under Pegasus with the same programs without it.
var agree = []step{
	{"conformance", "the contract of all accelerators, on this one", 3 * time.Minute, conformance},
	{"swapping", "devices that share a memory move it out of each other's way", 3 * time.Minute, swapping},
	{"cases", "cases of PTX, with the values that the software accelerator gives", 2 * time.Minute, casesOfPTX},
	{"programs", "programs that check themselves, both ways", 2 * time.Minute, selfChecking},
	{"semantics", "behaviour of the API in corner cases that programs rely on, both ways", 2 * time.Minute, parts("semantics", "primary", "elsewhere", "neighbours", "permission", "farewell", "across",
		"crowded", "empty-extra", "bereft-of-streams", "few-files", "early", "reborn", "stopwatch", "in-order", "ready", "many-parameters")},
	{"corners", "further calls of the CUDA runtime, both ways", 2 * time.Minute, parts("corners", "attributes", "questions", "advice", "complete", "clusters", "mipmaps", "hostly")},
	{"offload", "programs of GCC's OpenACC and OpenMP, both ways", 2 * time.Minute, offload},
	{"runtime", "a program of the CUDA runtime, compiled there by nvcc", 2 * time.Minute, ofRuntime},
	{"bindings", "cuda-bindings: kernels compiled by NVRTC", time.Minute, python("bindings.py")},
	{"numba", "numba-cuda", 90 * time.Second, python("numba_kernels.py")},
	{"cupy", "CuPy: elementwise, reductions, a matrix product", 90 * time.Second, python("cupy_arrays.py")},
	{"triton", "a kernel of Triton's", 90 * time.Second, python("triton_kernel.py")},
	{"torch", "PyTorch: a training step", 2 * time.Minute, python("torch_train.py")},
	{"decoder", "PyTorch: a decoder of random weights, with and without CUDA graphs", 2 * time.Minute, python("torch_decode.py")},
}

// tests runs a binary of Go tests, and returns the names of the failed ones.
func (v *visit) tests(ctx context.Context, env []string, dir, binary string, args ...string) (any, error) {
	cmd := v.program(ctx, env, v.in("tests", binary), append(args, "-test.v", "-test.timeout=10m")...)
	cmd.Dir = v.in(dir)
	out, err := v.output(ctx, cmd)
	var found struct {
		Passed  int      `json:"passed"`
		Failed  []string `json:"failed,omitempty"`
		Skipped []string `json:"skipped,omitempty"`
	}
	for l := range bytes.Lines(out) {
		result, name, ok := strings.Cut(strings.TrimSpace(string(l)), ": ")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, " (")
		switch result {
		case "--- PASS":
			found.Passed++
		case "--- FAIL":
			found.Failed = append(found.Failed, name)
		case "--- SKIP":
			found.Skipped = append(found.Skipped, name)
		}
	}
	if len(found.Failed) > 0 {
		err = fmt.Errorf("%d failed: %s", len(found.Failed), strings.Join(found.Failed, " "))
	} else if err == nil && found.Passed == 0 {
		err = skip("no test ran: %s", strings.Join(found.Skipped, " "))
	}
	return found, err
}

// conformance runs the tests of accel/acceltest: in a rehearsal with the software accelerator that they
// start themselves.
func conformance(ctx context.Context, v *visit) (any, error) {
	return contract(ctx, v, "^(TestConformance|TestPlaces.*|TestTimeoutIsCharged|TestAbortIsCharged)$")
}

// swapping runs the conformance tests of devices with memory that moves: not in a rehearsal, since its
// driver can't do that.
func swapping(ctx context.Context, v *visit) (any, error) {
	return contract(ctx, v, "^TestSwapping.*$")
}

func contract(ctx context.Context, v *visit, which string) (any, error) {
	env := v.environment("PEGASUS_BUILD=" + v.folder)
	args := []string{"-test.run", which}
	if !v.rehearsal {
		env = append(env, "PEGASUS_TEST_REAL_DRIVER=1")
	} else {
		args = append(args, "-test.short")
	}
	return v.tests(ctx, env, ".", "nvidia.test", args...)
}

func casesOfPTX(ctx context.Context, v *visit) (any, error) {
	return v.tests(ctx, v.environment("PEGASUS_BUILD="+v.folder), "lane", "lane.test", "-test.run", "^TestGPU$")
}

// way is one of the two ways in which a program can run.
type way struct {
	name  string
	start func(ctx context.Context, program string, args ...string) error
}

// ways runs each of several programs in both ways, and returns those that succeeded without Pegasus and
// failed under it.
func (v *visit) ways(names []string, try func(w way, name string) error) (any, error) {
	d, err := v.start(config{})
	if err != nil {
		return nil, err
	}
	defer d.stop()
	all := map[string]map[string]string{}
	var wrong []string
	for _, w := range []way{
		{"without Pegasus", func(ctx context.Context, program string, args ...string) error {
			_, err := v.output(ctx, v.program(ctx, v.environment(), program, args...))
			return err
		}},
		{byPegasus, func(ctx context.Context, program string, args ...string) error {
			_, err := v.output(ctx, d.guest(ctx, "visit", program, args...))
			return err
		}},
	} {
		all[w.name] = map[string]string{}
		for name, err := range each(names, func(name string) error { return try(w, name) }) {
			said := "right"
			if err != nil {
				said = err.Error()
			}
			all[w.name][name] = said
			if w.name == byPegasus && err != nil {
				wrong = append(wrong, name)
			}
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return all[w.name][name] != "right" })
	}
	if len(wrong) > 0 {
		return all, fmt.Errorf("right without Pegasus, and wrong by it: %s", strings.Join(wrong, " "))
	}
	return all, nil
}

// benchmarks are programs that check their results.
var benchmarks = []string{"vectoradd", "matmul", "reduction", "histogram", "walsh", "blackscholes", "nbody", "binomial", "montecarlo", "srad", "lud", "mriq"}

func selfChecking(ctx context.Context, v *visit) (any, error) {
	return v.ways(benchmarks, func(w way, name string) error {
		return w.start(ctx, v.in("bench", name), "--iterations", "3", "--queue", "2", "--quiet")
	})
}

// each runs try for several names, some at once: most of the time is spent starting the driver.
func each(names []string, try func(name string) error) map[string]error {
	var mu sync.Mutex
	var all sync.WaitGroup
	said := map[string]error{}
	places := make(chan struct{}, max(1, runtime.NumCPU()/2))
	for _, name := range names {
		places <- struct{}{}
		all.Go(func() {
			err := try(name)
			mu.Lock()
			said[name] = err
			mu.Unlock()
			<-places
		})
	}
	all.Wait()
	return said
}

// parts returns a step that runs the parts of a test program, each by itself.
func parts(program string, names ...string) func(context.Context, *visit) (any, error) {
	return func(ctx context.Context, v *visit) (any, error) {
		if v.rehearsal { // its kernels use pinned memory, which our library can't register for other libraries
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "neighbours" })
		}
		return v.ways(names, func(w way, name string) error {
			inTime, cancel := context.WithTimeout(ctx, v.patience(30*time.Second))
			defer cancel()
			return w.start(inTime, v.in("programs", program), name)
		})
	}
}

// offload runs programs that were compiled with GCC's offloading, if there are any: the host checks the
// results.
func offload(ctx context.Context, v *visit) (any, error) {
	programs, _ := filepath.Glob(v.in("offload/*"))
	if len(programs) == 0 {
		return nil, skip("they weren't built: there was no compiler that offloads")
	}
	v.libraries = v.in("libgomp")
	defer func() { v.libraries = "" }()
	return v.ways(programs, func(w way, p string) error { return w.start(ctx, p) })
}

// ofRuntime compiles a program of the CUDA runtime, which nvcc links statically, and runs it both ways.
func ofRuntime(ctx context.Context, v *visit) (any, error) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		nvcc = "/usr/local/cuda/bin/nvcc"
	}
	if _, err := os.Stat(nvcc); err != nil {
		return nil, skip("there is no nvcc")
	}
	at := filepath.Join(v.dir, "runtime")
	if _, err := v.output(ctx, v.program(ctx, v.environment(), nvcc, "-O2", "-gencode", "arch=compute_75,code=compute_75", "-o", at, v.in("runtime.cu"))); err != nil {
		return nil, err
	}
	return v.bothWays(ctx, at)
}
