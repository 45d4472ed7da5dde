package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A value of an environment variable that has no effect is reported once, with the variable, the value and the accepted
// values; a valid one isn't.
func TestSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	long := "/tmp/" + strings.Repeat("x", 200)
	h := (&host{}).start(t)
	for _, c := range []struct {
		name, value string
		want        string // part of the report; empty: none
		dead        bool   // cuInit fails
	}{
		{"PEGASUS_LOG", "loud", "want off, error, info or debug", false},
		{"PEGASUS_LOG", "2", "want off, error, info or debug", false},
		{"PEGASUS_LOG", "", "", false},
		{"PEGASUS_LOG", "error", "", false},
		{"PEGASUS_CUDA", "twelve", "want a CUDA from 11.0 to 13.0", false},
		{"PEGASUS_CUDA", "14.0", "want a CUDA from 11.0 to 13.0", false},
		{"PEGASUS_CUDA", "12.2", "", false},
		{"PEGASUS_DRIVER", "9", "want a driver from 450 on", false},
		{"PEGASUS_DRIVER", "535.54.03", "", false},
		{"PEGASUS_SOFT_PROFILE", "yes", "want 1, or 0", false},
		{"PEGASUS_SOFT_PROFILE", "0", "", false},
		{"PEGASUS_SOFT_PROFILE", "", "", false},
		{"PEGASUS_SOCKET", file, "want the path of a domain's socket", true},
		{"PEGASUS_SOCKET", filepath.Join(file, "sock"), "want the path of a domain's socket", true},
		{"PEGASUS_SOCKET", filepath.Dir(file), "want the path of a domain's socket", true},
		{"PEGASUS_SOCKET", long, "of at most 107 bytes", true},
	} {
		each(t, func(t *testing.T, b *build) {
			r := run{build: b, program: "start", socket: h.path, env: []string{c.name + "=" + c.value}}
			if c.name == "PEGASUS_SOCKET" {
				r.socket = c.value
			}
			out := runs(t, r)
			n := strings.Count(out, c.name+"="+c.value[:min(len(c.value), 128)]+": ")
			if c.want == "" && strings.Contains(out, "pegasus: ") || c.want != "" && (n != 1 || !strings.Contains(out, c.want)) || c.dead == strings.Contains(out, "cuInit 0\n") {
				t.Errorf("%s=%s: got %q, want one report with %q", c.name, c.value, out, c.want)
			}
		})
	}
}

// A socket without permission for the user is not reported as a missing daemon: the program prints the settings that
// decide.
func TestNotAdmitted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one runs programs as another user")
	}
	h := (&host{}).start(t)
	if err := os.Chmod(h.path, 0o600); err != nil {
		t.Fatal(err)
	}
	b := builds[0]
	dir, err := os.MkdirTemp("/tmp", "pg") // readable for another user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, from := range []string{b.program(t, "start"), filepath.Join(b.libcuda(t), "libcuda.so.1")} {
		if out, err := exec.Command("cp", from, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "start"))
	cmd.Env = []string{"LD_LIBRARY_PATH=" + dir, "PEGASUS_SOCKET=" + h.path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242}}
	out, err := cmd.CombinedOutput()
	if said := string(out); err != nil || !strings.Contains(said, "cuInit 802") || !strings.Contains(said, "Permission denied: socket_owner") || strings.Contains(said, "no Pegasus daemon") {
		t.Errorf("%v, %q", err, said)
	}
}
