package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"pegasus/configs"
	"pegasus/hypervisor/libvirt"
)

func TestJudgeMachine(t *testing.T) {
	config := configs.Default()
	strict := configs.Default()
	strict.Daemon.UndeclaredDomains = false
	for _, c := range []struct {
		m      libvirt.Listed
		there  uint64
		config *configs.Config
		state  string
		want   string
	}{
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Next: 64 << 20, Now: 64 << 20}, 64 << 20, config, fine, "64 MiB"},
		{libvirt.Listed{Name: "a", Of: "a", Next: 64 << 20}, 0, config, fine, "off"},
		{libvirt.Listed{Name: "a", Of: "a", Next: 64 << 20}, 64 << 20, config, warn, "is left"},
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Next: 64 << 20}, 0, config, warn, "attached while it ran"},
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Now: 64 << 20}, 64 << 20, config, warn, "detached while it ran"},
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Next: 32 << 20, Now: 64 << 20}, 64 << 20, config, warn, "until its next start"},
		{libvirt.Listed{Name: "a", Runs: true, Of: "a", Next: 64 << 20, Now: 64 << 20}, 0, config, fail, "no hook made it"},
		{libvirt.Listed{Name: "a", Of: "b", Next: 64 << 20}, 0, config, fail, "region of another, b"},
		{libvirt.Listed{Name: "a", Of: "a", Next: 64 << 20}, 0, strict, warn, "isn't declared"},
		{libvirt.Listed{Name: "a", Of: "a", Next: 64 << 20, Memory: 512 << 20, Counted: 320 << 20}, 0, config, warn, "edited to 512 MiB beside its NUMA cells, which with its memory devices have 320 MiB"},
	} {
		all := judgeMachine(c.m, c.there, c.config)
		if len(all) != 1 || all[0].State != c.state || !strings.Contains(all[0].Detail, c.want) || (all[0].Fix == "") != (c.state == fine) {
			t.Errorf("%+v with %d bytes: %+v, want %s %q", c.m, c.there, all, c.state, c.want)
		}
	}
}

// Regions in a file system without room for another are a finding.
func TestJudgeRoom(t *testing.T) {
	for bytes, state := range map[uint64]string{0: warn, 15 << 20: warn, 16 << 20: fine, 1 << 40: fine} {
		if got := judgeRoom("/dev/shm/pegasus", bytes)[0]; got.State != state || (got.Fix == "") != (state == fine) {
			t.Errorf("%d bytes: %+v, want %s", bytes, got, state)
		}
	}
}

// A user of libvirt other than root can attach if the hook is in place, of this installation or another, and
// otherwise gets the remedy.
func TestHookOfRoot(t *testing.T) {
	hooks := filepath.Join(t.TempDir(), "qemu.d")
	a := &attachment{hooks: hooks, regions: "/dev/shm/pegasus"}
	if _, err := a.installHook(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := hooks; dir != os.TempDir(); dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	asOther := func(regions, program, want string) {
		t.Helper()
		path := filepath.Join(hooks, "pegasus")
		text := fmt.Sprintf(hookText, quoted(program), quoted(a.regions), quoted(a.regions+"/"))
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		err := as(t, 65534, func() error {
			_, err := (&attachment{hooks: hooks, regions: regions}).installHook()
			return err
		})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s, %s: %v, want %q", regions, program, err, want)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	asOther(a.regions, self, "")
	asOther(a.regions, "/bin/true", "")
	asOther("/dev/shm/other", self, "attach one machine as root")
	asOther(a.regions, "/gone/pegasus", "attach one machine as root")
}

// as calls do as another user, in a thread of its own, which ends with it.
func as(t *testing.T, uid int, do func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("only root can be another user: run the tests as root")
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			result <- e
			return
		}
		result <- do()
	}()
	return <-result
}

func TestSetIn(t *testing.T) {
	conf := []byte("# user = \"x\"\n user = \"qemu\"\ngroup=\"kvm\"\n#group = \"z\"\n")
	if u, g, n := setIn(conf, "user"), setIn(conf, "group"), setIn(conf, "nothing"); u != "qemu" || g != "kvm" || n != "" {
		t.Errorf("%q, %q, %q", u, g, n)
	}
}

// Faults of the hook are reported in the order in which they keep machines from starting.
func TestCheckHook(t *testing.T) {
	a := &attachment{hooks: t.TempDir(), regions: "/dev/shm/pegasus"}
	path := filepath.Join(a.hooks, "pegasus")
	check := func(regions, want string) {
		t.Helper()
		if got := checkHook(path, regions)[0]; !strings.Contains(got.Detail, want) || (got.State == fine) != (want == path) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	check(a.regions, "isn't there")
	if _, err := a.installHook(); err != nil {
		t.Fatal(err)
	}
	if pid, _ := libvirtd(); pid == 0 {
		check(a.regions, path)
	}
	check("/dev/shm/other", "is for another directory")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gone := hookProgram.ReplaceAll(text, []byte("program='/gone/pegasus'"))
	if err := os.WriteFile(path, gone, 0o755); err != nil {
		t.Fatal(err)
	}
	check(a.regions, "runs /gone/pegasus, which is gone")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	check(a.regions, "can't be executed")
}
