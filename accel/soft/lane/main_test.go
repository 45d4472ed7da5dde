package lane

import (
	"fmt"
	"os"
	"testing"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/exec"
	"pegasus/accel/soft/lane/gen"
	"pegasus/accel/soft/lane/internal/lanetest"
)

// PEGASUS_SOFT_ENGINE selects the engine, as in a worker. The compiler also compiles short runs.
func TestMain(m *testing.M) {
	gen.MinWork = 1
	if err := UseEngine(os.Getenv(EngineVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lanetest.Main(m, &arith.VectorLevel)
}

// eachEngine runs a test with the interpreter at each level of vector instructions, and with the compiler where the
// processor has its instructions.
func eachEngine(t *testing.T, f func(t *testing.T)) {
	defer exec.Compiler.Store(exec.Compiler.Load())
	exec.Compiler.Store(false)
	lanetest.EachLevel(t, &arith.VectorLevel, f)
	if exec.CanCompile() == nil {
		needCompiler(t)
		t.Run("compiler", f)
	}
}

// needCompiler selects the compiler. It skips a test on a processor without its instructions.
func needCompiler(t testing.TB) {
	t.Helper()
	if err := exec.CanCompile(); err != nil {
		t.Skipf("THE COMPILER IS NOT TESTED: %v", err)
	}
	if err := UseEngine("compiler"); err != nil {
		t.Fatal(err)
	}
}
