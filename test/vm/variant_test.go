package vm

import (
	"strings"
	"testing"
)

// variants are the kinds of machines in which programs are tested: the first two in every run,
// all of them in TestSoakVariants.
var variants = []Variant{
	{Kernel: fullKernel, Machine: "q35"},
	{Kernel: cloudKernel, Machine: "pc"},
	{Kernel: cloudKernel, Machine: "q35"},
	{Kernel: fullKernel, Machine: "pc"},
	{Kernel: cloudKernel, Machine: "q35", Firmware: "uefi"},
	{Kernel: fullKernel, Machine: "pc", Firmware: "uefi"},
}

func TestVariants(t *testing.T) { t.Parallel(); tryVariants(t, variants[:2]) }

// tryVariants runs a program in each.
func tryVariants(t *testing.T, variants []Variant) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			h := startHost(t, twoMachines)
			image, err := Build(buildDir(t), v.kernel())
			if err != nil {
				t.Fatal(err)
			}
			m := h.bootMachine("one", Machine{Image: image, Kind: v, Job: waitForAgent + `
set -e
uname -r
/bench/vectoradd --quiet --json
pegasus-guest doctor
`})
			out := m.finish()
			if !strings.Contains(out, `"right"`) {
				t.Errorf("the program computed nothing right:\n%s", out)
			}
			if cloud := strings.Contains(out, "-cloud-amd64\n"); cloud != (v.kernel() == cloudKernel) {
				t.Errorf("another kernel was booted:\n%s", out)
			}
		})
	}
}
