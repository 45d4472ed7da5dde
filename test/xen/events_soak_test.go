//go:build soak

package xen

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"pegasus/test/events"
	"pegasus/test/seeds"
)

func readScript(t *testing.T, path string) events.Script {
	t.Helper()
	s, err := events.Read(path, func(what string) (onHost, ok bool) {
		d, ok := findScriptEvent(what)
		return d.onHost, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const theScript = "testdata/events.txt"

// DomUs compute while one thing after another happens to them, to what serves them, and to XenStore: each
// event affects its target and nothing else, and leaves nothing behind, neither in Dom0 nor for Xen. The script
// is testdata/events.txt, or the file that PEGASUS_TEST_SCRIPT names.
func TestSoakXenEvents(t *testing.T) {
	set(t, readScript(t, cmp.Or(os.Getenv("PEGASUS_TEST_SCRIPT"), theScript))).playAll()
}

// The same with random events: PEGASUS_TEST_EVENTS of them, drawn from the script, to any domU that can
// take them so. The seed is printed, and can be given as PEGASUS_TEST_SEED.
func TestSoakXenChance(t *testing.T) {
	seed := seeds.Fresh(t)
	n, err := strconv.Atoi(cmp.Or(os.Getenv("PEGASUS_TEST_EVENTS"), "60"))
	if err != nil {
		t.Fatal(err)
	}
	sc := readScript(t, theScript)
	from, r := sc.Events, rand.New(rand.NewPCG(seed, 0))
	sc.Events = nil
	for i := range n {
		e := from[r.IntN(len(from))]
		if m := sc.Machines[r.IntN(len(sc.Machines))]; e.Whom != events.ToHost && m.More == "" && !strings.Contains(e.What, "agent") {
			e.Whom = m.Name
		}
		e.Line = i + 1
		sc.Events = append(sc.Events, e)
	}
	set(t, sc).playAll()
}
