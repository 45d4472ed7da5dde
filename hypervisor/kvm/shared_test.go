package kvm

import (
	"os"
	"path/filepath"
	"testing"
)

// A region that is a PCI device has both paths, and loses both; another file of such a name is only replaced when its
// machine starts.
func TestShare(t *testing.T) {
	regions, err := os.MkdirTemp(sharedDir, "pegasus-test-share")
	if err != nil {
		t.Fatal(err)
	}
	a := Attachment{Region: filepath.Join(regions, "web"), Bytes: minRegion, Device: IVSHMEM}
	other := sharedPath(a.Region)
	t.Cleanup(func() {
		os.RemoveAll(regions)
		os.Remove(other)
	})
	there := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	if err := os.WriteFile(other, []byte("squatter"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := a.Make(-1); err != nil {
		t.Fatal(err)
	}
	one, err := os.Lstat(a.Region)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := os.Lstat(other); err != nil || !os.SameFile(one, two) || two.Mode() != 0o660 {
		t.Errorf("%v, %v", two, err)
	}
	m, err := Open(a.Region)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.deserted() {
		t.Error("it is taken for gone")
	}
	if err := a.Make(-1); err != nil { // the machine starts again
		t.Fatal(err)
	}
	if !m.deserted() {
		t.Error("another is taken for it")
	}
	if err := RemoveRegion(a.Region); err != nil || there(a.Region) || there(other) {
		t.Errorf("it is left, %v", err)
	}
	if err := os.WriteFile(other, []byte("another's"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := MakeRegion(a.Region, minRegion, -1); err != nil {
		t.Fatal(err)
	}
	if err := RemoveRegion(a.Region); err != nil || there(a.Region) || !there(other) {
		t.Errorf("it is left, or what isn't its is gone, %v", err)
	}
	if err := a.Remove(); err != nil || there(other) {
		t.Errorf("it is left, %v", err)
	}
	if left, err := os.ReadDir(regions); err != nil || len(left) != 1 { // ports
		t.Errorf("left: %v, %v", left, err)
	}
}
