package kvm

import (
	"os"
	"path/filepath"
	"testing"
)

// The port is found by its name among others, also without udev.
func TestFindPort(t *testing.T) {
	class := t.TempDir()
	if path, err := findPort(class); err == nil {
		t.Errorf("%s in a machine without ports", path)
	}
	for device, name := range map[string]string{"vport1p1": "org.qemu.guest_agent.0\n", "vport2p3": "org.pegasus.0\n", "vport2p4": "org.pegasus.00\n"} {
		if err := os.Mkdir(filepath.Join(class, device), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, device, "name"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(class, "vport0p0"), 0o755); err != nil { // a console has no name
		t.Fatal(err)
	}
	if path, err := findPort(class); err != nil || path != "/dev/vport2p3" {
		t.Errorf("%s, %v", path, err)
	}
}
