package setup

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// library returns the library built by `make build`.
func library(t *testing.T) []byte {
	t.Helper()
	dir := os.Getenv("PEGASUS_BUILD")
	if dir == "" {
		dir = "../../build"
	}
	data, err := os.ReadFile(filepath.Join(dir, "guest", LibraryName))
	if err != nil {
		t.Fatalf("%v; run `make build` first", err)
	}
	return data
}

// newSetup returns a setup for a root, with a program to install.
func newSetup(t *testing.T, root string, out *strings.Builder) *Setup {
	t.Helper()
	self := filepath.Join(t.TempDir(), "pegasus-guest")
	if err := os.WriteFile(self, []byte("#!/bin/sh\n# "+written+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Setup{Root: root, Self: self, Library: library(t), Monitor: library(t), Out: out}
}

// tree returns type and contents of all files under a root, without the directories.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, root)
		if to, err := os.Readlink(path); err == nil {
			all[name] = "-> " + to
			return nil
		}
		data, err := os.ReadFile(path)
		info, _ := e.Info()
		all[name] = info.Mode().String() + " " + string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInstall(t *testing.T) {
	root := t.TempDir()
	put(t, root, "usr/lib/systemd/systemd", "")
	put(t, root, "etc/cdi/other.yaml", "kind: other.dev/gpu\n")
	before := tree(t, root)
	var out strings.Builder
	s := newSetup(t, root, &out)

	s.DryRun = true
	if err := s.Install(); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, root); len(got) != len(before) || !strings.Contains(out.String(), "would write   "+root+Program) {
		t.Errorf("a dry run did something, or didn't say what: %v\n%s", got, out.String())
	}
	s.DryRun = false
	if err := s.Install(); err != nil {
		t.Fatal(err)
	}
	got := tree(t, root)
	for name, want := range map[string]string{
		Program:                            "-rwxr-xr-x #!/bin/sh",
		Library:                            "-rw-r--r-- \x7fELF",
		LibraryDir + "/libcuda.so":         "-> libcuda.so.1",
		Monitor:                            "-rw-r--r-- \x7fELF",
		loaderFile:                         "-rw-r--r-- # ",
		cdiFile:                            "-rw-r--r-- # ",
		unitDir + "/pegasus-guest.socket":  "-rw-r--r-- # ",
		unitDir + "/pegasus-guest.service": "-rw-r--r-- # ",
		unitDir + "/sockets.target.wants/pegasus-guest.socket":     "-> /etc/systemd/system/pegasus-guest.socket",
		unitDir + "/multi-user.target.wants/pegasus-guest.service": "-> /etc/systemd/system/pegasus-guest.service",
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("%s: %.40q, want %q", name, got[name], want)
		}
	}
	if want := len(before) + 10; len(got) != want {
		t.Errorf("%d files, want %d", len(got), want)
	}

	cdi, err := os.ReadFile(filepath.Join(root, cdiFile))
	if err != nil || strings.Count(string(cdi), "hostPath: "+Monitor) != 2 || strings.Count(string(cdi), "hostPath: ") != 5 {
		t.Errorf("%v, containers are given:\n%s", err, cdi)
	}

	// A second run has nothing to do. A program of another version replaces the previous one.
	out.Reset()
	if err := s.Install(); err != nil || strings.Contains(out.String(), "wrote") {
		t.Errorf("again: %v\n%s", err, out.String())
	}
	put(t, "", s.Self, "#!/bin/sh\n# newer; "+written+"\n")
	out.Reset()
	if err := s.Install(); err != nil || strings.Count(out.String(), "wrote") != 1 {
		t.Errorf("another version: %v\n%s", err, out.String())
	}

	for range 2 {
		if err := s.Uninstall(); err != nil {
			t.Fatal(err)
		}
	}
	after := tree(t, root)
	if len(after) != len(before) || after["/etc/cdi/other.yaml"] != before["/etc/cdi/other.yaml"] {
		t.Errorf("left: %v", after)
	}
	if _, err := os.Stat(filepath.Join(root, LibraryDir)); err == nil {
		t.Error("its directory is left")
	}
}

func TestWithoutSystemd(t *testing.T) {
	root := t.TempDir()
	var out strings.Builder
	if err := newSetup(t, root, &out).Install(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, unitDir)); err == nil || !strings.Contains(out.String(), Program+" agent` is started at boot") {
		t.Errorf("units, or no word of what is to be started:\n%s", out.String())
	}
}

// Files of other origin are neither replaced nor removed nor hidden.
func TestOthers(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"usr/lib/x86_64-linux-gnu/libcuda.so.1", "another driver's", "another driver's libcuda.so.1"},
		{"opt/gpu/libcuda.so.1", "another driver's", "/opt/gpu/libcuda.so.1"},
		{Library, "another driver's", "isn't from pegasus-guest"},
		{Program, "a program of theirs", "isn't from pegasus-guest"},
		{cdiFile, "kind: theirs", "isn't from pegasus-guest"},
		{loaderFile, "/usr/local/lib/pegasus\n/theirs\n", "isn't from pegasus-guest"},
	} {
		root := t.TempDir()
		put(t, root, "etc/ld.so.conf.d/gpu.conf", "# theirs\n/opt/gpu # here\n")
		put(t, root, c.name, c.text)
		var out strings.Builder
		s := newSetup(t, root, &out)
		if err := s.Install(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if got := tree(t, root); len(got) != 2 {
			t.Errorf("%s: something was installed: %d files", c.name, len(got))
		}
		if strings.HasPrefix(c.says, "isn't") {
			if err := s.Uninstall(); err == nil {
				t.Errorf("%s: removed without a word", c.name)
			}
		}
		if text, err := os.ReadFile(filepath.Join(root, c.name)); err != nil || string(text) != c.text {
			t.Errorf("%s: %q, %v", c.name, text, err)
		}
	}
}

func TestBesideADriver(t *testing.T) {
	root := t.TempDir()
	put(t, root, "usr/lib/x86_64-linux-gnu/libcuda.so.1", "another driver's")
	var out strings.Builder
	s := newSetup(t, root, &out)
	s.Beside = true
	if err := s.Install(); err != nil {
		t.Fatal(err)
	}
	got := tree(t, root)
	if _, ok := got[loaderFile]; ok || got[Library] == "" {
		t.Errorf("the loader was told, or there is no library: %d files", len(got))
	}
}

func TestNoLibrary(t *testing.T) {
	var out strings.Builder
	s := newSetup(t, t.TempDir(), &out)
	s.Library = nil
	if err := s.Install(); err == nil || !strings.Contains(err.Error(), "--library") {
		t.Error(err)
	}
	s.Library = []byte("not a library")
	if err := s.Install(); err == nil || !strings.Contains(err.Error(), "isn't Pegasus'") {
		t.Error(err)
	}
}

// systemd-analyze reports no errors in the units.
func TestUnits(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal("no systemd-analyze; install the Debian package systemd, as `make test` does")
	}
	dir := t.TempDir()
	for _, i := range units() {
		if i.target == "" { // the program isn't installed here, which would be systemd's only objection
			put(t, dir, filepath.Base(i.path), strings.Replace(string(i.data), Program, "/bin/true", 1))
		}
	}
	out, err := exec.Command(verify, "verify", "--man=no", filepath.Join(dir, socketUnit), filepath.Join(dir, serviceUnit)).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) || strings.Contains(string(out), "pegasus-guest") {
		t.Errorf("%v: %s", err, out)
	}
}
