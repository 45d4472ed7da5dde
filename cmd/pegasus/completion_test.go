package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"pegasus/internal/testkit"
)

// Attach completes the machines that libvirt defines, of which the driver for tests has one. Without libvirt there is no
// completion, and no error text disturbs the prompt.
func TestCompleteMachines(t *testing.T) {
	testkit.Built(t, "bin/pegasus-libvirt")
	for uri, want := range map[string]string{"test:///default": "test\n:4\n", "qemu+unix:///system?socket=/nonexistent": ":4\n"} {
		testkit.Eventually(t, fmt.Sprintf("%s: the completions are %q", uri, want), func() bool { // completion itself is bounded by time
			var out, errs bytes.Buffer
			cmd := exec.Command(testkit.Built(t, "bin/pegasus"), "__complete", "attach", "--connect", uri, "")
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil || strings.Count(errs.String(), "\n") != 1 {
				t.Fatalf("%s: errors %q (%v), want cobra's line", uri, errs.String(), err)
			}
			return out.String() == want
		})
	}
}
