//go:build soak

package vm

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/test/events"
	"pegasus/test/seeds"
)

// Four machines, two of which have their region as a PCI device, take PEGASUS_TEST_EVENTS random events: those of
// testdata, in any machine, and now and then while the daemon or libvirtd is away. The seed
// is printed, and can be given as PEGASUS_TEST_SEED. The events up to a failure are printed as
// a script, which TestEvents plays again.
func TestSoakEvents(t *testing.T) {
	seed := seeds.Fresh(t)
	n, err := strconv.Atoi(cmp.Or(os.Getenv("PEGASUS_TEST_EVENTS"), "200"))
	if err != nil {
		t.Fatal(err)
	}
	sc := events.Script{Machines: []events.Machine{
		{Name: "one", Credits: 256}, {Name: "two", Credits: 512, More: "ivshmem"}, {Name: "three", Credits: 768}, {Name: "four", Credits: 1024, More: "ivshmem"},
	}}
	sc.Events = draw(append(readScript(t, theScript).Events, readScript(t, "testdata/rare.txt").Events...), sc.Names(), n, rand.New(rand.NewPCG(seed, 0)))
	set(t, sc).playAll()
}

// draw returns n random events of the kinds in from, each kind with the same probability.
func draw(from []events.Event, names []string, n int, r *rand.Rand) (all []events.Event) {
	var kinds []events.Event
	seen := map[string]bool{}
	for _, e := range from {
		e.What, _ = away(e.What)
		e.What, _, _ = strings.Cut(e.What, " in ")
		if !seen[e.What] {
			seen[e.What] = true
			kinds = append(kinds, e)
		}
	}
	for i := range n {
		e := kinds[r.IntN(len(kinds))]
		e.Line = i + 1 + len(names)
		d := scriptEvents[e.What]
		if strings.HasSuffix(e.What, " twice") {
			e.What += " in " + time.Duration(r.ExpFloat64()*float64(2*time.Second)).Round(time.Millisecond).String()
		}
		if !d.onHost {
			e.Whom = names[r.IntN(len(names))]
			e = without(e, []string{withoutDaemon, withoutLibvirtd, "", "", "", ""}[r.IntN(6)])
		}
		all = append(all, e)
	}
	return all
}

// without returns the event with a component away meanwhile, if there is such an event.
func without(e events.Event, who string) events.Event {
	if _, ok := findScriptEvent(e.What + who); ok {
		e.What += who
	}
	return e
}
