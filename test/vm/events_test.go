package vm

import (
	"cmp"
	"os"
	"testing"
)

// theScript is the default script.
const theScript = "testdata/events.txt"

// Machines compute while one thing after another happens to them, to what serves them, and to
// libvirt: each event affects its target and nothing else, and leaves nothing behind. The script
// is testdata/events.txt, or the file that PEGASUS_TEST_SCRIPT names.
func TestEvents(t *testing.T) {
	t.Parallel()
	set(t, readScript(t, cmp.Or(os.Getenv("PEGASUS_TEST_SCRIPT"), theScript))).playAll()
}
