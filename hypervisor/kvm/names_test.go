package kvm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// names are machine names that libvirt and xl accept, similar to those of files beside regions.
var names = []string{
	"a", "b", "a.new", "a.new.new", "new", "ports", "ports.new", "a.ports", "shared", "pegasus", "pegasus-a", "x-a", "a-b", "A", "a.b", "a_b", "a..b", "a.", "0", "a.sock.new",
	"a.json", "domain-a", "a~", strings.Repeat("n", 63), strings.Repeat("n", 59) + ".new",
	// These are no valid domain names.
	".a.new", ".ports", ".", "..", ".new", "a b", "ä", "-a", "_a", "a\tb", "a'b", `a"b`, "a&b", "a;b", "$a", strings.Repeat("n", 64), "a.sock", "a\\b", "a:b", "a,b",
}

// domains returns the names that are valid for domains, by the rule that matters here: the first character is a
// letter or a digit. Configs has the whole rule.
func domains() []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !canBeDomain(n) })
}

func canBeDomain(name string) bool {
	if name == "" || len(name) > 63 || strings.ContainsRune("._-", rune(name[0])) || strings.HasSuffix(name, ".sock") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	})
}

// pathsOf returns all paths created for a region.
func pathsOf(region string) []string {
	return []string{region, making(region), PortPath(region), sharedPath(region), filepath.Dir(PortPath(region))}
}

// No file of one machine has the name of another machine's, nor of a directory of ours, for any machine names.
func FuzzNames(f *testing.F) {
	for i, a := range names {
		f.Add(a, names[(i+1)%len(names)])
		f.Add(a, a+".new")
		f.Add("."+a, a)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == b || !canBeDomain(a) || !canBeDomain(b) {
			return
		}
		of := func(name string) []string { return pathsOf(filepath.Join(dir, name)) }
		ports := of(a)[4]
		for _, p := range of(a)[:4] {
			if slices.Contains(of(b), p) || p == ports || p == filepath.Clean(dir) {
				t.Errorf("%q and %q: both have %s", a, b, p)
			}
		}
	})
}

// A machine's region is created, found and removed while that of any other exists, which stays unchanged.
func TestNames(t *testing.T) {
	regions, err := os.MkdirTemp(sharedDir, "pegasus-test-names")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, _ := filepath.Glob(regions + "*")
		for _, path := range left {
			os.RemoveAll(path)
		}
	})
	of := func(name string) Attachment {
		return Attachment{Region: filepath.Join(regions, name), Bytes: minRegion, Device: IVSHMEM}
	}
	same := func(a Attachment, was os.FileInfo) bool {
		for _, path := range []string{a.Region, sharedPath(a.Region)} {
			if is, err := os.Lstat(path); err != nil || !os.SameFile(was, is) {
				return false
			}
		}
		return true
	}
	for _, one := range domains() {
		a := of(one)
		if err := a.Make(-1); err != nil {
			t.Fatalf("%q: %v", one, err)
		}
		was, err := os.Lstat(a.Region)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(PortPath(a.Region), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{one + ".new", "ports", "new", strings.TrimSuffix(one, ".new"), "a", one + "-a", one + "."} {
			if other == one || !canBeDomain(other) {
				continue
			}
			b := of(other)
			if err := b.Make(-1); err != nil {
				t.Fatalf("%q beside %q: %v", other, one, err)
			}
			if !same(a, was) {
				t.Errorf("making the region of %q, that of %q is changed", other, one)
			}
			if err := b.Remove(); err != nil {
				t.Errorf("%q beside %q: %v", other, one, err)
			}
			if _, err := os.Lstat(PortPath(a.Region)); err != nil || !same(a, was) {
				t.Errorf("removing the region of %q, that of %q is changed: %v", other, one, err)
			}
		}
		if err := a.Remove(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(regions); err != nil || len(left) != 1 || left[0].Name() != portsDir {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The region of machine a-b in one directory and that of b in another, which ends in -a, have one name as PCI
// devices: the running machine keeps it.
func TestSharedTwice(t *testing.T) {
	regions, err := os.MkdirTemp(sharedDir, "pegasus-test-twice")
	if err != nil {
		t.Fatal(err)
	}
	one := Attachment{Region: filepath.Join(regions, "a-b"), Bytes: minRegion, Device: IVSHMEM}
	two := Attachment{Region: filepath.Join(regions+"-a", "b"), Bytes: minRegion, Device: IVSHMEM}
	t.Cleanup(func() {
		for _, path := range []string{regions, regions + "-a", sharedPath(one.Region)} {
			os.RemoveAll(path)
		}
	})
	if err := one.Make(-1); err != nil || sharedPath(one.Region) != sharedPath(two.Region) {
		t.Fatal(err)
	}
	was, err := os.Lstat(one.Region)
	if err != nil {
		t.Fatal(err)
	}
	becomeQEMU(t)
	unmap := mapIt(t, one.Region)
	if err := two.Make(-1); err == nil || !strings.Contains(err.Error(), "is the memory of a machine that runs") {
		t.Errorf("made: %v", err)
	}
	if err := two.Remove(); err != nil {
		t.Error(err)
	}
	if is, err := os.Lstat(sharedPath(one.Region)); err != nil || !os.SameFile(was, is) {
		t.Errorf("it is lost: %v", err)
	}
	unmap()
	if err := one.Remove(); err != nil {
		t.Error(err)
	}
}

// A machine attached by an earlier release keeps that release's path of its port, until it is attached again.
func TestOldPort(t *testing.T) {
	regions := filepath.Join(t.TempDir(), "regions")
	a := Attachment{Region: filepath.Join(regions, "web"), Bytes: mib64, Device: NVDIMM}
	on := attach(t, bare, a)
	old := strings.ReplaceAll(on, "/.ports/", "/ports/")
	if old == on {
		t.Fatalf("no port:\n%s", on)
	}
	for _, text := range []string{on, old} {
		d := parse(t, text)
		if err := MakeDir(regions); err != nil {
			t.Fatal(err)
		}
		if err := d.MakeOldPorts(regions); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(regions, oldPortsDir)); (err == nil) != (text == old) {
			t.Errorf("%v:\n%s", err, text)
		}
	}
	if again := attach(t, old, a); again != on {
		t.Errorf("attached again:\n%s", again)
	}
	off, err := parse(t, old).WithoutRegion(regions)
	if err != nil || string(off) != bare {
		t.Errorf("detached, %v:\n%s", err, off)
	}
	if err := os.WriteFile(oldPortPath(a.Region), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ports := Attachment{Region: filepath.Join(regions, oldPortsDir), Bytes: minRegion, Device: NVDIMM}
	if err := ports.Make(-1); err == nil || !strings.Contains(err.Error(), "attach those again") {
		t.Errorf("machine %s beside that one: %v", oldPortsDir, err)
	}
	if err := RemoveRegion(a.Region); err != nil {
		t.Error(err)
	}
	if err := ports.Make(-1); err != nil {
		t.Errorf("machine %s when that one has gone: %v", oldPortsDir, err)
	}
	if err := RemoveRegion(a.Region); err != nil {
		t.Errorf("beside machine %s: %v", oldPortsDir, err)
	}
	if err := parse(t, old).MakeOldPorts(regions); err == nil || !strings.Contains(err.Error(), "attach the machine again") {
		t.Errorf("beside machine %s: %v", oldPortsDir, err)
	}
}
