package vm

import (
	"regexp"
	"strings"
	"testing"
)

// CUDA programs compute in a machine whose region is a PCI device, with pinned memory at one address on
// both sides, whoever runs them; several at once; and nothing is left of them afterwards.
func TestShared(t *testing.T) {
	for _, v := range []Variant{{Machine: "q35"}, {Machine: "pc", Kernel: fullKernel}} {
		t.Run(v.String(), func(t *testing.T) {
			h := startHost(t, twoMachines)
			image, err := Build(buildDir(t), v.kernel())
			if err != nil {
				t.Fatal(err)
			}
			m := h.bootMachine("one", Machine{Image: image, Kind: v, Shared: true, Job: waitForShared + `
set -e
PEGASUS_LOG=info /bench/vectoradd --json
su -s /bin/sh -c '/bench/blackscholes --size 65536 --json' nobody
/bench/srad --quiet --json
for i in 1 2 3; do (/bench/reduction --quiet --json || echo failed) & all="$all $!"; done
wait $all
pegasus-guest doctor
sleep 0.5
echo left: $(left)
`})
			out := m.finish()
			if n := len(regexp.MustCompile(`"result": *"right"`).FindAllString(out, -1)); n != 6 || strings.Contains(out, "failed") {
				t.Errorf("%d of 6 programs computed what is right:\n%s", n, out)
			}
			if strings.Contains(out, "not shared") || !strings.Contains(out, "arena at 0x") {
				t.Errorf("its pinned memory isn't at one address on both sides:\n%s", out)
			}
			if !strings.Contains(out, "left: 0\n") {
				t.Errorf("call buffers are left of programs that ended:\n%s", out)
			}
			if d := h.domain("one"); d.GPU == 0 || d.Calls == 0 || d.Processes != 0 || d.Memory != 0 {
				t.Errorf("the domain used nothing, or something is left: %+v", d)
			}
		})
	}
}

// Such a machine is saved and restored with its region in the stream, as others are.
func TestSaveShared(t *testing.T) { save(t, "ivshmem") }
