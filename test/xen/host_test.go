package xen

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A shell that begins to read anywhere in a greeting answers the next one.
func TestGreeting(t *testing.T) {
	for i := range greeting {
		shell := exec.Command("/bin/busybox", "sh")
		shell.Stdin = strings.NewReader(greeting[i:] + greeting + greeting)
		out, _ := shell.Output()
		if n := strings.Count(string(out), greeted+"\n"); n < 2 {
			t.Errorf("of %q it answers %d times to the two that follow: %q", greeting[i:], n, out)
		}
	}
}

// A process of another user that inherits an image's descriptor can open the image, though only root may read its path.
func TestOpenForAll(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: this one opens a file as another user")
	}
	path := filepath.Join(t.TempDir(), "image") // no other user can enter the directory
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openForAll(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cat := exec.Command("/bin/busybox", "cat", "/proc/self/fd/3")
	cat.ExtraFiles = []*os.File{f}
	cat.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cat.CombinedOutput(); err != nil || string(out) != "text" {
		t.Errorf("%q, %v", out, err)
	}
}
