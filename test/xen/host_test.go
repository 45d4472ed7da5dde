package xen

import (
	"os/exec"
	"strings"
	"testing"
)

// Wherever in a greeting a shell begins to hear, it answers the next one.
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
