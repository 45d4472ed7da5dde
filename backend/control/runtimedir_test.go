package control

import (
	"os"
	"path/filepath"
	"testing"
)

// The variable XDG_RUNTIME_DIR counts unless it names another user's directory: su and sudo -E keep it.
func TestPrivateDir(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one gives a directory to another user")
	}
	own, others := t.TempDir(), t.TempDir()
	if err := os.Chown(others, 4242, -1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ variable, xdg, want string }{
		{"", own, own + "/pegasus"},
		{"", filepath.Join(own, "later"), own + "/later/pegasus"},
		{"", others, "/tmp/pegasus-0"},
		{"", "relative", "/tmp/pegasus-0"},
		{"", "", "/tmp/pegasus-0"},
		{own, others, own},
	} {
		t.Setenv(RuntimeVariable, c.variable)
		t.Setenv("XDG_RUNTIME_DIR", c.xdg)
		if got, err := PrivateDir(); err != nil || got != c.want {
			t.Errorf("%s=%s, XDG_RUNTIME_DIR=%s: got %s, %v, want %s", RuntimeVariable, c.variable, c.xdg, got, err, c.want)
		}
	}
}
