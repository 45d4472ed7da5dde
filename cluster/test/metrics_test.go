package test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"pegasus/internal/testkit"
)

// The driver serves the daemon's metrics with the labels of claims.
func TestMetrics(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	n := newNode(t, oneAccelerator, "--metrics", address)
	claim := newScheduler(n).placed(request{})
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "web-0", UID: "1"}}
	n.api.put("resourceclaims", claim)
	n.start(n.mustPrepare(claim), nil, "/bin/busy", "--seconds", "600") // a domain without processes is on no accelerator
	testkit.Eventually(t, "the container computes", func() bool { d := n.domains()["k8s-"+string(claim.UID)]; return d.Calls > 0 && d.Processes == 1 })
	get := func() (int, string) {
		a, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return 0, err.Error()
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil {
			t.Error(err)
		}
		return a.StatusCode, string(text)
	}
	want := `pegasus_domain_calls_total{accelerator="soft0",domain="k8s-` + string(claim.UID) + `",namespace="` + claim.Namespace + `",claim="` + claim.Name + `",pod="web-0"}`
	if code, text := get(); code != http.StatusOK || !strings.Contains(text, want) {
		t.Errorf("%d: want a line %s, got\n%s", code, want, text)
	}
	n.stopDaemon(9)
	testkit.Eventually(t, "without a daemon there are no metrics", func() bool { code, _ := get(); return code == http.StatusBadGateway })
}
