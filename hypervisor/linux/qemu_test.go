//go:build soak

package linux

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/internal/testkit"
)

// Boot sectors of guests: one computes for ever, one sleeps except for its timer.
var (
	spins = []byte{0xeb, 0xfe}             // jmp $
	halts = []byte{0xfb, 0xf4, 0xeb, 0xfc} // sti; hlt; jmp
)

// boot starts QEMU without KVM on a boot sector, with its vCPU on one CPU.
func (m *machine) boot(t *testing.T, code []byte) {
	t.Helper()
	sector := make([]byte, 512)
	copy(sector, code)
	copy(sector[510:], []byte{0x55, 0xaa})
	image := filepath.Join(t.TempDir(), "boot.img")
	if err := os.WriteFile(image, sector, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("qemu-system-x86_64", "-accel", "tcg", "-m", "32", "-display", "none", "-serial", "none", "-monitor", "none", "-nic", "none",
		"-name", fmt.Sprintf("guest=%s,debug-threads=on", m.Name), "-drive", "file="+image+",format=raw,if=floppy")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("this test needs qemu-system-x86_64: %v", err)
	}
	m.pid = cmd.Process.Pid
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	tid := 0
	testkit.Eventually(t, "QEMU has a thread for its vCPU", func() bool {
		tid = vcpu0(m.pid)
		return tid != 0
	})
	var set unix.CPUSet
	set.Set(m.CPUs[0])
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // for the firmware
	m.confine(t)
}

// vcpu0 returns the thread of an emulator's first vCPU.
func vcpu0(pid int) int {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, dir := range names {
		tid, _ := strconv.Atoi(filepath.Base(dir))
		if id, ok := (threads{vm: true}).number(dir, tid); ok && id == 0 {
			return tid
		}
	}
	return 0
}
