package test

import (
	"bufio"
	"sync"
	"testing"
	"time"
)

// Work queued behind a host function waits for it, however long it takes and however much work that is.
func TestSlowHostFunctions(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	hosts := program(t, "hosts")
	var all sync.WaitGroup
	for _, part := range []string{"slow", "late", "deep", "many", "crowd", "words", "brim", "cancelled"} {
		cmd := h.guest("one", hosts, part)
		all.Go(func() {
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", part, err, tail(said, 30))
			}
		})
	}
	all.Wait()
}

// A host function that never returns blocks its own process only, which leaves nothing behind when it is killed. Limits
// change while it hangs.
func TestHungHostFunction(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoDomains)
	hung := h.guest("one", program(t, "hosts"), "hung")
	out, err := hung.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	background(t, hung)
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "waiting\n" {
		t.Fatalf("%q, %v", said, err)
	}
	order := program(t, "order")
	for _, domain := range []string{"other", "one"} {
		start := time.Now()
		succeed(t, h.guest(domain, order, "500"))
		t.Logf("a program in domain %q took %v", domain, time.Since(start))
	}
	eventually(t, soon, "it alone is left in its domain", func() bool { return h.domains()["one"].Processes == 1 })
	h.pegasus("set", "one", "credits=300")
	hung.Process.Kill()
	eventually(t, soon, "the worker goes with its guest", func() bool { return h.domains()["one"].Processes == 0 })
}
