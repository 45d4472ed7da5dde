package tests

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// still is a driver with functions that do nothing; addresses in a recording are not dereferenced.
const still = `
#include <stdlib.h>
#define STILL(name) int name(void) { return 0; }
STILL(cuInit) STILL(cuMemcpyHtoD_v2) STILL(cuMemcpyDtoH_v2) STILL(cuMemcpyDtoHAsync_v2) STILL(cuMemAlloc_v2) STILL(cuMemHostAlloc)
STILL(cuMemHostRegister_v2) STILL(cuLinkComplete) STILL(cuLaunchKernel) STILL(cuStreamQuery) STILL(cuStreamAddCallback) STILL(cuMemcpy2D_v2)
STILL(cuDeviceGetAttribute) STILL(cuCtxSynchronize)
`

// replayer is the replay program, built with the sanitizers, for that driver.
var replayer = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp(scratch, "replay"); err != nil {
		return "", err
	}
	source := filepath.Join(dir, "still.c")
	if err := os.WriteFile(source, []byte(still), 0o644); err != nil {
		return "", err
	}
	if err := gcc("-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"), source); err != nil {
		return "", err
	}
	args := append([]string{"-o", filepath.Join(dir, "replay"), "../record/replay.c"}, builds[1].flags...)
	return dir, gcc(append(append(args, warnings...), "-ldl", "-lm")...)
})

// FuzzReplay replays arbitrary recordings: they are replayed or rejected, without other effects.
func FuzzReplay(f *testing.F) {
	for _, lines := range []string{
		"1 cuInit 0 0\n",
		"data af63dc4c8601ec8c 1 61\n1 cuMemAlloc_v2 0 >[@7f00]:4 4\n1 cuMemcpyHtoD_v2 0 @7f00 #af63dc4c8601ec8c:1 1\n1 cuMemcpyDtoH_v2 0 >#af63dc4c8601ec8c:1 @7f00 1\n",
		"data af63dc4c8601ec8c 1 \"a\"\n1 cuMemHostRegister_v2 0 ~5000:4096 4096 0\nhost #af63dc4c8601ec8c:1@5001\n" +
			"1 cuMemcpyDtoHAsync_v2 0 >?5000:8@5000 @7f00 8 -\n1 cuCtxSynchronize 0\ngot 5000 8 af63dc4c8601ec8c\nseen 5000 1 af63dc4c8601ec8c\n",
		"1 cuMemHostAlloc 0 >[@5000]:8 8 0\n1 cuMemcpyDtoH_v2 0 >#af63dc4c8601ec8c:1@5000 @7f00 1\n",
		"1 cuLaunchKernel 0 @2 1 1 1 1 1 1 0 - &00005f7f00000000,01000000 -\n1 cuLaunchKernel 0 @2 1 1 1 1 1 1 0 - - *0102030405060708\n",
		"1 cuMemcpy2D_v2 0 =00000000000000000000000000000000+8=0102+0>?6000:4\n0 cuInit 0 0\n# nothing\n64 cuStreamQuery 0 @0\n",
		"1 cuLinkComplete 0 @1 >[@9] >0100000000000000\nlinked 9\n1 cuDeviceGetAttribute 0 =01000000>02000000 75 0\n1 cuStreamAddCallback 0 - ! ? [@1,@2]\n",
		"1 cuLinkComplete 0 @1 - -\n",
		"1 cuMemcpy2D_v2 0 =0000000000000000+18446744073709551610=01\n",
		"1 cuDeviceGetAttribute 0 =" + strings.Repeat("00", 70000) + ">#:1\n",
		"1 cuDeviceGetAttribute 0 >" + strings.Repeat("00", 70000) + "\n",
		"1 cuMemHostRegister_v2 0 ~5000:18446744073709551615 1 0\n",
		"1 cuMemcpyDtoH_v2 0 >?5000:18446744073709551615 @1 1\ngot 5000 4096 af63dc4c8601ec8c\n",
		"data af63dc4c8601ec8c 1 61\nhost #af63dc4c8601ec8c:1@123456\n",
		"seen 123456 8 af63dc4c8601ec8c\n",
		"1 system 0 \"true\"\n",
	} {
		f.Add("pegasus-calls 1\n" + lines)
	}
	f.Fuzz(func(t *testing.T, recording string) {
		dir, err := replayer()
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(t.TempDir(), "calls")
		if err := os.WriteFile(at, []byte(recording), 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "replay"), "--within", "1e-6", at)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "ASAN_OPTIONS=detect_leaks=0:exitcode=99:allocator_may_return_null=1:max_allocation_size_mb=64")
		said, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 && exit.ExitCode() != 2) {
			t.Fatalf("%v: %s", err, said)
		}
	})
}
