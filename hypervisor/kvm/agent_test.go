package kvm

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHadAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web")
	if HadAgent(path) {
		t.Error("in a region that isn't there")
	}
	if err := MakeRegion(path, minRegion, -1); err != nil {
		t.Fatal(err)
	}
	if HadAgent(path) {
		t.Error("in a new region")
	}
	m, err := openMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	m.setUsed(true)
	m.close()
	if !HadAgent(path) {
		t.Error("it isn't seen")
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if HadAgent(path) {
		t.Error("in a region that was cut off")
	}
}
