package kvm

import (
	"os"
	"path/filepath"
	"testing"

	"pegasus/callbuf"
)

// A region is in use while a QEMU has it mapped, and not because it is left behind, or a hub's.
func TestUsedBy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web")
	if pid := UsedBy(path); pid != 0 {
		t.Errorf("process %d uses what isn't there", pid)
	}
	if err := MakeRegion(path, minRegion, -1); err != nil {
		t.Fatal(err)
	}
	letGo := mapIt(t, path)
	if pid := UsedBy(path); pid != 0 {
		t.Errorf("process %d, which is no QEMU, uses it", pid)
	}
	becomeQEMU(t)
	if pid := UsedBy(path); pid != os.Getpid() {
		t.Errorf("process %d uses it, not %d", pid, os.Getpid())
	}
	letGo()
	if pid := UsedBy(path); pid != 0 {
		t.Errorf("process %d uses what it has let go", pid)
	}
}

// mapIt maps a file, as QEMU does a machine's region.
func mapIt(t *testing.T, path string) (letGo func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := callbuf.Map(f, minRegion)
	if err != nil {
		t.Fatal(err)
	}
	return func() { callbuf.Unmap(mem) }
}

// becomeQEMU renames this process to QEMU's name until the test's end.
func becomeQEMU(t *testing.T) {
	t.Helper()
	const name = "/proc/self/comm"
	was, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, []byte("qemu-system-x86"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(name, was, 0) })
}
