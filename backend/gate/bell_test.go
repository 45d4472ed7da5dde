package gate

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// A file that is no bell is refused, and neither remains mapped nor is closed: its owner still has it.
func TestOpenBellRefusesOthers(t *testing.T) {
	f, err := newFile("pegasus-no-bell", bellBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 3 {
		if b, err := OpenBell(f); !errors.Is(err, ErrPage) {
			t.Fatalf("got %v, %v; want %v", b, err, ErrPage)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(maps, []byte("pegasus-no-bell")); n != 0 {
		t.Errorf("got %d mappings of the refused file, want 0", n)
	}
	if _, err := f.Stat(); err != nil {
		t.Errorf("the refused file: %v", err)
	}
}
