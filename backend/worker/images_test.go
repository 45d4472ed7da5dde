package worker

import (
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// GPU libraries have more machine code than any program has PTX text.
func TestMostImages(t *testing.T) {
	text, code := &session{}, &session{can: accel.Capabilities{Habits: cuda.TakesMachineCode}}
	if text.mostImages() != 128<<20 || code.mostImages() != 4<<30 {
		t.Errorf("%d bytes of text, %d of machine code", text.mostImages(), code.mostImages())
	}
}
