package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pegasus/backend/control"
	"pegasus/guest/agent"
	"pegasus/guest/setup"
	"pegasus/internal/testkit"
)

// expect checks a finding: its text, and that every fault comes with a remedy.
func expect(t *testing.T, what string, f control.Check, state, says string) {
	t.Helper()
	if f.State != state || !strings.Contains(f.Detail, says) || (f.State != fine) != (f.Fix != "") {
		t.Errorf("%s: %+v; want %s, %q", what, f, state, says)
	}
}

func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "web.sock")
	expect(t, "no socket", checkSocket(path), fail, "doesn't exist")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "listening", checkSocket(path), fine, "answers")
	l.SetUnlinkOnClose(false)
	l.Close()
	expect(t, "nobody listening", checkSocket(path), fail, "refused")
}

func TestLibrary(t *testing.T) {
	// A library that no machine has installed.
	const name = "libpegasustest.so.1"
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	expect(t, "no library", checkLibrary(name, dir), fail, "finds no")
	if err := os.WriteFile(path, []byte("not ELF"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect(t, "no ELF file", checkLibrary(name, dir), fail, "can't be loaded")
	library, err := os.ReadFile(testkit.Built(t, "guest/libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(data string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(string(library))
	expect(t, "ours", checkLibrary(name, "/nowhere:"+dir), fine, path)
	put(strings.ReplaceAll(string(library), "PEGASUS_SOCKET", "ANOTHER_SOCKET"))
	expect(t, "another driver's", checkLibrary(name, dir), fail, "isn't Pegasus'")
	put(strings.ReplaceAll(string(library), "GLIBC_2.34", "GLIBC_9.34"))
	expect(t, "of a newer system", checkLibrary(name, dir), fail, "no GLIBC_9.34")
}

// The doctor reports the part of a program's path that is faulty.
func TestMachine(t *testing.T) {
	root := t.TempDir()
	m := machine{root, filepath.Join(root, "guest.sock")}
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put("proc/sys/kernel/osrelease", "6.1.0-tiny\n")
	all := m.check()
	if len(all) != 4 {
		t.Fatalf("%+v", all)
	}
	expect(t, "no agent", all[0], fail, "doesn't exist")
	expect(t, "no NVDIMM", all[1], fail, "no NVDIMM")
	expect(t, "nothing in the kernel", all[2], fail, "lacks nfit, nd_pmem, ext4")
	expect(t, "no e2fsprogs", all[3], fail, "mkfs.ext4")

	put("sys/bus/pci/devices/0000:00:04.0/vendor", "0x1af4\n")
	put("sys/bus/pci/devices/0000:00:04.0/device", "0x1110\n")
	expect(t, "a PCI device", m.checkRegion(""), fine, "a PCI device")
	if all = m.check(); len(all) != 2 {
		t.Errorf("a PCI device: %+v", all)
	}
	put("sys/bus/pci/devices/0000:00:04.0/device", "0x1000\n")
	put("sys/bus/nd/devices/namespace0.0", "")
	put("sys/fs/ext4/features", "")
	put("lib/modules/6.1.0-tiny/modules.dep", "kernel/drivers/acpi/nfit/nfit.ko.xz: kernel/libnvdimm.ko\nkernel/drivers/nvdimm/nd-pmem.ko:\n")
	put("usr/sbin/mkfs.ext4", "")
	expect(t, "an NVDIMM", m.checkRegion(""), fine, "an NVDIMM")
	expect(t, "one of somebody else", m.checkRegion("the host hasn't marked it"), fail, "hasn't marked")
	expect(t, "a good kernel", m.checkKernel(), fine, "6.1.0-tiny")
	expect(t, "e2fsprogs", m.checkMkfs(), fine, "/usr/sbin/mkfs.ext4")
	put("boot/config-6.1.0-tiny", "CONFIG_EXT4_FS=y\n# CONFIG_FS_DAX is not set\n")
	expect(t, "a kernel without DAX", m.checkKernel(), fail, "CONFIG_FS_DAX")

	put("run/.containerenv", "")
	all = m.check()
	if len(all) != 1 {
		t.Fatalf("in a container: %+v", all)
	}
	expect(t, "a container without the socket", all[0], fail, "container")
}

func TestAgentAndHost(t *testing.T) {
	m := machine{t.TempDir(), "/run/x"}
	here := agent.Status{Release: control.Release()}
	expect(t, "an agent", m.checkAgent(here, nil), fine, control.Release())
	expect(t, "another version's", m.checkAgent(agent.Status{Release: "v0"}, nil), warn, "v0")
	expect(t, "not for this user", m.checkAgent(agent.Status{}, fs.ErrPermission), fail, "this user")
	expect(t, "nobody", m.checkAgent(agent.Status{}, syscall.ECONNREFUSED), fail, "nobody listens")
	expect(t, "nonsense", m.checkAgent(agent.Status{}, errors.New("no sensible answer")), fail, "no sensible answer")
	expect(t, "a host", checkHost(agent.Status{Host: true, HostRelease: "v7", Generation: 3}), fine, "v7 answers, generation 3")
	expect(t, "an NVDIMM", m.checkDevice(agent.Status{Device: "/dev/pmem0", Bytes: 64 << 20}), fine, "/dev/pmem0, of 64 MiB")
	expect(t, "a PCI device", m.checkDevice(agent.Status{Device: "/sys/x", Shared: true}), warn, "others' programs")
	expect(t, "no host", checkHost(agent.Status{Why: "the host doesn't answer"}), fail, "doesn't answer")
}

func TestDoctorAsJSON(t *testing.T) {
	t.Setenv("PEGASUS_SOCKET", "/nowhere.sock")
	var out, errs strings.Builder
	if code := run([]string{"doctor", "--json"}, &out, &errs); code != 1 {
		t.Errorf("status %d, %s", code, errs.String())
	}
	var all []control.Check
	if err := json.Unmarshal([]byte(out.String()), &all); err != nil || len(all) != 2+len(setup.Companions()) || all[0].Name != "socket" || all[0].State != fail {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// A library that only some programs need is a note, and no failure.
func TestDoctorNamesCompanions(t *testing.T) {
	root := t.TempDir()
	for _, c := range checkCompanions(root, "") {
		if c.State != warn || c.Fix == "" {
			t.Errorf("%+v", c)
		}
	}
	dir := filepath.Join(root, "lib")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "libnvrtc.so.11.2"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range checkCompanions(root, "/lib") {
		if (c.State == fine) != (c.Name == "compiler") {
			t.Errorf("%+v", c)
		}
	}
}

func TestUsage(t *testing.T) {
	var out, errs strings.Builder
	if code := run(nil, &out, &errs); code != 2 || !strings.Contains(errs.String(), "usage:") {
		t.Errorf("no arguments: %d, %q", code, errs.String())
	}
	if code := run([]string{"dance"}, &out, &errs); code != 2 || !strings.Contains(errs.String(), `"dance"`) {
		t.Errorf("unknown: %d, %q", code, errs.String())
	}
	for _, args := range [][]string{{"doctor", "web"}, {"install", "--roof", "/"}, {"install", "web"}, {"agent", "web"}} {
		if code := run(args, &out, &errs); code != 2 {
			t.Errorf("%q: status %d", args, code)
		}
	}
}

// A port is useful, but a missing one is no failure.
func TestPort(t *testing.T) {
	expect(t, "there", checkPort("/dev/vport1p1", nil), fine, "/dev/vport1p1")
	expect(t, "not there", checkPort("", errors.New("none")), warn, "none")
}
