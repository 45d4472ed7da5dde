package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pegasus/backend/control"
)

// A scheduler loop that wakes up finds one of the runtime's processors, even if all that the other goroutines may use
// are held by threads that the host keeps from running.
func TestProcessorsForLoops(t *testing.T) {
	h := newHost(t, twoDomains)
	api := &caller{t: t, path: filepath.Join(h.dir, control.SocketName)}
	_, _, text := api.send("GET", "/metrics", "")
	var got int
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "go_sched_gomaxprocs_threads %d", &got)
	}
	accelerators := strings.Count(string(text), "\npegasus_accelerator_info{")
	if want := runtime.NumCPU() + 2*accelerators; accelerators == 0 || got < want {
		t.Errorf("the daemon has %d processors for goroutines with %d accelerators, want at least %d", got, accelerators, want)
	}
}
