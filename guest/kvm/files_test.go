package kvm

import (
	"os"
	"testing"
)

// Creating a file that exceeds the region's room is an error, and leaves no file.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	all := &files{&device{}, dir}
	if _, err := all.make("x", 1<<62); err == nil {
		t.Error("a file of 4 EiB")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
