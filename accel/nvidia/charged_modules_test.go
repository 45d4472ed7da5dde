//go:build cgo

package nvidia

import (
	"fmt"
	"testing"

	"pegasus/accel/linked"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// The memory of modules counts in full, also where the driver has several variables of one name, or doesn't report
// them.
func TestModulesOfOneName(t *testing.T) {
	const (
		head     = ".version 6.0\n.target sm_50\n.address_size 64\n"
		variable = ".global .align 16 .b8 x[8388608];\n"
		body     = ".reg .b64 %a, %b;\nmov.u64 %a, x;\nld.param.u64 %b, [p];\nst.global.u64 [%b], %a;\nret;\n}\n"
	)
	var objects []linked.Object
	for i := range 4 {
		text := fmt.Sprintf("%s%s.visible .entry e%d(.param .u64 p)\n{\n%s", head, variable, i, body)
		objects = append(objects, linked.Object{Name: fmt.Sprint(i), Text: []byte(text)})
	}
	within := head
	for i := range 2 {
		within += fmt.Sprintf(".visible .entry f%d(.param .u64 p)\n{\n%s%s", i, variable, body)
	}
	d, used := counted(t, 400<<20)
	c := contextOf(t, d)
	for what, img := range map[string][]byte{"of several objects": linked.Append(nil, linked.ToLoad, objects...), "of functions": []byte(within)} {
		free, _ := driver.Unused(c.ctx)
		before := used.Load()
		m, log, r := c.LoadModule(img)
		if r != cuda.Success {
			t.Fatalf("%s: %v %s", what, r, log)
		}
		now, _ := driver.Unused(c.ctx)
		if taken := int64(free - now); taken == 0 || used.Load()-before < taken {
			t.Errorf("%s: the driver took %d bytes, of which %d count", what, taken, used.Load()-before)
		}
		m.Unload()
		if used.Load() != before {
			t.Errorf("%s: %d bytes count when it is unloaded", what, used.Load()-before)
		}
	}
}
