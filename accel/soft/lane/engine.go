package lane

import (
	"fmt"

	"pegasus/accel/soft/lane/code"
	"pegasus/accel/soft/lane/exec"
)

// EngineVariable is the environment variable with the name of the engine.
const EngineVariable = "PEGASUS_SOFT_ENGINE"

// UseEngine selects the engine that executes kernels: "interpreter", which "" stands for, or "compiler", which compiles
// parts of kernels to machine code and interprets the rest. It is called before the first kernel is compiled, and before
// the process is confined: the compiler needs executable memory. Where there is none, or the processor lacks AVX-512, an
// error is returned and kernels are interpreted.
func UseEngine(name string) error {
	if name == "" || name == "interpreter" {
		exec.Compiler.Store(false)
		return nil
	}
	if name != "compiler" {
		return fmt.Errorf("%s=%s: no such engine; there are interpreter and compiler", EngineVariable, name)
	}
	if err := exec.CanCompile(); err != nil {
		return fmt.Errorf("%s=compiler: %w", EngineVariable, err)
	}
	if err := code.Prepare(); err != nil {
		return fmt.Errorf("%s=compiler: %w; kernels are interpreted", EngineVariable, err)
	}
	exec.Compiler.Store(true)
	return nil
}
