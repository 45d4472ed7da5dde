package main

import (
	"io"
	"strings"
	"testing"
)

// Without pegasus-fleet, the error has the remedy.
func TestFleetMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var errs strings.Builder
	if code := run([]string{"fleet"}, &streams{strings.NewReader(""), io.Discard, &errs}); code != exitFailed || !strings.Contains(errs.String(), "pegasus-fleet is neither beside this command nor in PATH: build it with `make cluster`") {
		t.Errorf("%d, %s", code, errs.String())
	}
}
