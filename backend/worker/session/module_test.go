package session

import (
	"testing"

	"pegasus/accel"
	"pegasus/backend/worker/workertest"
	"pegasus/cuda"
)

// machine is a device that takes machine code.
type machine struct{ *workertest.Device }

func (machine) Habits() int32 { return cuda.TakesMachineCode }

// GPU libraries have more machine code than any program has PTX text.
func TestMostImages(t *testing.T) {
	of := func(d accel.Device) *modules { return &modules{base: base{core: &core{device: d}}} }
	text, code := of(&workertest.Device{}), of(machine{&workertest.Device{}})
	if text.maxImageBytes() != 128<<20 || code.maxImageBytes() != 4<<30 {
		t.Errorf("%d bytes of text, %d of machine code", text.maxImageBytes(), code.maxImageBytes())
	}
}
