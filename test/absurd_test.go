package test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"testing"

	"pegasus/frontend"
)

const absurdDomains = oneAccelerator + `
kernel_timeout = "1s"
[[domain]]
name = "one"
[[domain]]
name = "other"
`

// absurdStates are the states that programs/absurd.c can set up before the calls.
var absurdStates = []string{"none", "init", "context", "live", "stale", "gone", "thread", "fork"}

// Every symbol gets null pointers, absurd numbers and handles that are alive, stale, of another kind or invalid, and
// returns documented results only. Library, worker, daemon and other domains are unaffected.
func TestAbsurdCalls(t *testing.T) {
	t.Parallel()
	h := startHost(t, absurdDomains)
	h.absurd(program(t, "absurd"), absurdStates, nil, "-r", "2")
}

// As above with the library that checks each of its own accesses.
func TestAbsurdCallsSanitized(t *testing.T) {
	t.Parallel()
	h := startHost(t, absurdDomains)
	h.absurd(sanitized(t, "absurd"), []string{"live", "stale", "fork"}, sanitizedEnv(t), "-r", "1")
}

// absurd runs the program in some states, two at a time, and checks that it leaves nothing behind.
func (h *host) absurd(path string, states, env []string, args ...string) {
	t := h.t.(*testing.T)
	t.Helper()
	seed := seeded(t).Uint64()
	h.serves("one")
	h.serves("other")
	before := h.quiet()
	t.Run("states", func(t *testing.T) {
		for _, state := range states {
			t.Run(state, func(t *testing.T) {
				t.Parallel()
				cmd := h.guest("one", path, append([]string{state, "-s", fmt.Sprint(seed)}, args...)...)
				cmd.Env = append(append(os.Environ(), "PEGASUS_LOG=off"), env...)
				said, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, tail(said, 60))
					return
				}
				t.Logf("%s", tail(bytes.TrimSpace(said), 1))
			})
		}
	})
	h.serves("one")
	h.serves("other")
	h.settled(before)
	h.sound()
	h.workersEndedWell()
}

// serves runs a guest of a domain that connects, works and ends.
func (h *host) serves(domain string) {
	h.t.Helper()
	c, err := frontend.Dial(h.socket(domain))
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	load(h.t, c).works()
}

// workersEndedWell fails the test if the log has a worker that ended for any reason but its guest's end or a kernel
// timeout.
func (h *host) workersEndedWell() {
	h.t.Helper()
	ended := regexp.MustCompile(`(?m)^.*msg="worker \d+ of process \d+ ended: .*$|^.*session dropped.*$`)
	timeout := regexp.MustCompile(`LAUNCH_TIMEOUT|took longer`)
	for _, line := range ended.FindAllString(h.said(), -1) {
		if !timeout.MatchString(line) {
			h.t.Errorf("the daemon's log holds: %s", line)
		}
	}
}
