package vm

import (
	"cmp"
	"os"
	"testing"
)

// theScript is what is played always.
const theScript = "testdata/events.txt"

// Machines compute while one thing after another happens to them, to what serves them, and to
// libvirt: each event hits what it hits and nothing else, and leaves nothing behind. What happens
// is in testdata/events.txt, or in a file that PEGASUS_TEST_SCRIPT names.
func TestEvents(t *testing.T) {
	set(t, readScript(t, cmp.Or(os.Getenv("PEGASUS_TEST_SCRIPT"), theScript))).playAll()
}
