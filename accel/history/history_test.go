package history

import "testing"

func TestTable(t *testing.T) {
	var h Table
	if h.Find(7) != 0 {
		t.Error("an empty table knows a key")
	}
	h.Learn(7, 1000)
	h.Learn(7, 2000)
	if got := h.Find(7); got != 1250 {
		t.Errorf("after 1000 and 2000 ns the mean is %d, want 1250", got)
	}
	h.Learn(7+1024, 3) // the same place
	if h.Find(7) != 0 || h.Find(7+1024) != 3 {
		t.Errorf("a key that took a place over has %d, the one before %d", h.Find(7+1024), h.Find(7))
	}
	h.Learn(9, 0)
	if h.Find(9) == 0 {
		t.Error("what took no time is not known")
	}
}
