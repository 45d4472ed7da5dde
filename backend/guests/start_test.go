package guests

import (
	"testing"

	"pegasus/callbuf"
)

// Whichever slice a worker has, its window is between the others, at least one of which is far from it.
func TestWindows(t *testing.T) {
	if n := windowBytes("nvidia"); n < 1<<40 {
		t.Errorf("a GPU's worker has %d bytes of addresses, which is no room for what programs reserve", n)
	}
	for _, slice := range []int{0, callbuf.MaxDeviceSlices - 1} {
		free := 0
		for _, base := range callbuf.DeviceBases(slice) {
			end := base + windowBytes("nvidia")
			if end > 1<<47 {
				t.Errorf("slice %d: a window ends at %#x", slice, end)
			}
			clear := true
			for _, arena := range callbuf.ArenaBases {
				clear = clear && (arena < base || arena >= end)
			}
			if clear {
				free++
			}
		}
		if free < 2 {
			t.Errorf("slice %d: %d windows have no arena in them", slice, free)
		}
	}
}
