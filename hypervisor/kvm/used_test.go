package kvm

import (
	"os"
	"path/filepath"
	"testing"

	"pegasus/callbuf"
)

// A region is used while a QEMU has it mapped, and not for being left behind, or a hub's.
func TestUsedBy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web")
	if pid := UsedBy(path); pid != 0 {
		t.Errorf("process %d uses what isn't there", pid)
	}
	if err := MakeRegion(path, minRegion, -1); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := callbuf.Map(f, minRegion)
	if err != nil {
		t.Fatal(err)
	}
	if pid := UsedBy(path); pid != 0 {
		t.Errorf("process %d, which is no QEMU, uses it", pid)
	}
	was, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/self/comm", []byte("qemu-system-x86"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile("/proc/self/comm", was, 0)
	if pid := UsedBy(path); pid != os.Getpid() {
		t.Errorf("process %d uses it, not %d", pid, os.Getpid())
	}
	callbuf.Unmap(mem)
	if pid := UsedBy(path); pid != 0 {
		t.Errorf("process %d uses what it has let go", pid)
	}
}
