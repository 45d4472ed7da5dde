package session

import (
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// GPU libraries have more machine code than any program has PTX text.
func TestMostImages(t *testing.T) {
	of := func(c accel.Capabilities) *modules { return &modules{base: base{core: &core{can: c}}} }
	text, code := of(accel.Capabilities{}), of(accel.Capabilities{Quirks: cuda.TakesMachineCode})
	if text.maxImageBytes() != 128<<20 || code.maxImageBytes() != 4<<30 {
		t.Errorf("%d bytes of text, %d of machine code", text.maxImageBytes(), code.maxImageBytes())
	}
}
