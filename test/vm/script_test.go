package vm

import (
	"testing"

	"pegasus/test/events"
)

func readScript(t *testing.T, path string) events.Script {
	t.Helper()
	s, err := events.Read(path, known)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func known(what string) (onHost, ok bool) {
	d, ok := findScriptEvent(what)
	return d.onHost, ok
}

// findScriptEvent accepts an event while a component is away, and an event twice, only where that can happen.
func TestScriptEvents(t *testing.T) {
	for what, want := range map[string]bool{
		"reset without daemon":   true,
		"reset without libvirtd": false,
		"reset twice in 1.5s":    true,
		"reset twice":            false,
		"reset in 1s":            false,
	} {
		if _, ok := known(what); ok != want {
			t.Errorf("%q: %v", what, ok)
		}
	}
}
