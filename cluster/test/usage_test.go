package test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"pegasus/cluster/driver"
	"pegasus/internal/testkit"
)

// The driver writes the usage of a prepared claim to its status, and writes no more while it stays as it is.
func TestUsage(t *testing.T) {
	n := newNode(t, oneAccelerator, "--usage", "10s")
	claim := newScheduler(n).placed(request{})
	usage := func() *driver.Usage {
		n.api.mu.Lock()
		defer n.api.mu.Unlock()
		return driver.UsageIn(n.api.objects["resourceclaims"]["team/"+claim.Name].(*resourceapi.ResourceClaim))
	}
	writes := func() int {
		n.api.mu.Lock()
		defer n.api.mu.Unlock()
		return n.api.requests["PATCH resourceclaims"]
	}
	n.api.put("resourceclaims", claim)
	ids := n.mustPrepare(claim)
	testkit.Eventually(t, "the usage is written", func() bool { return usage() != nil })
	if u := usage(); u.Share != 0 || u.Credits != 256 || u.Domain != "k8s-"+string(claim.UID) {
		t.Errorf("usage: %+v", u)
	}
	n.start(ids, nil, "/bin/busy", "--seconds", "3600", "--queue", "4", "--no-check", "--quiet")
	testkit.Eventually(t, "the measured share is written", func() bool { return usage().Share == 1 && usage().Processes == 1 })
	testkit.Eventually(t, "the daemon has looked for usage", func() bool { return n.domains()["k8s-"+string(claim.UID)].Calls > 50 })
	if w := writes(); w > 4 {
		t.Errorf("%d writes", w)
	}
	n.unprepare(claim)
}
