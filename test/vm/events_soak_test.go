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
)

// Four machines, two of which have their region as a PCI device, and things happen to them by chance, as many as PEGASUS_TEST_EVENTS says: those of
// testdata, to any machine, and now and then while the daemon or libvirtd is away. The seed
// is printed, and can be given as PEGASUS_TEST_SEED. What had happened up to a failure is printed as
// a script, which TestEvents plays again.
func TestSoakEvents(t *testing.T) {
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("PEGASUS_TEST_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv("PEGASUS_TEST_EVENTS"), "200"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("PEGASUS_TEST_SEED=%d", seed)
	sc := script{machines: []credited{{"one", 256, ""}, {"two", 512, "ivshmem"}, {"three", 768, ""}, {"four", 1024, "ivshmem"}}}
	sc.events = draw(append(readScript(t, theScript).events, readScript(t, "testdata/rare.txt").events...), sc.names(), n, rand.New(rand.NewPCG(seed, 0)))
	set(t, sc).playAll()
}

// draw makes events of what can happen, each kind as often as any.
func draw(from []event, names []string, n int, r *rand.Rand) (all []event) {
	var kinds []event
	known := map[string]bool{}
	for _, e := range from {
		e.what, _ = away(e.what)
		e.what, _, _ = strings.Cut(e.what, " in ")
		if !known[e.what] {
			known[e.what] = true
			kinds = append(kinds, e)
		}
	}
	for i := range n {
		e := kinds[r.IntN(len(kinds))]
		e.line = i + 1 + len(names)
		d := deeds[e.what]
		if strings.HasSuffix(e.what, " twice") {
			e.what += " in " + time.Duration(r.ExpFloat64()*float64(2*time.Second)).Round(time.Millisecond).String()
		}
		if !d.onHost {
			e.whom = names[r.IntN(len(names))]
			e = e.without([]string{withoutDaemon, withoutLibvirtd, "", "", "", ""}[r.IntN(6)])
		}
		all = append(all, e)
	}
	return all
}

// without is the event while somebody is away, if it can be.
func (e event) without(who string) event {
	if _, ok := findDeed(e.what + who); ok {
		e.what += who
	}
	return e
}
