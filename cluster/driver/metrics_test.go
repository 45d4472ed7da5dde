package driver

import (
	"strings"
	"testing"

	"pegasus/cluster/claims"
)

const daemonText = `# HELP pegasus_domain_calls_total Calls that passed the gate
# TYPE pegasus_domain_calls_total counter
pegasus_domain_calls_total{domain="k8s-7",accelerator="soft0"} 3
pegasus_domain_calls_total{domain="k8s-8",accelerator="soft0"} 4
pegasus_domain_calls_total{domain="web",accelerator="soft0"} 5
# HELP pegasus_workers Workers
# TYPE pegasus_workers gauge
pegasus_workers 2
`

// Series of claims' domains get the labels of their claims, and all others stay as they are.
func TestLabel(t *testing.T) {
	all := []*claims.Domain{{Namespace: "team", Claim: "gpu", UID: "7", Pods: []string{"web-0"}}, {Namespace: "team", Claim: "shared", UID: "8", Pods: []string{"a", "b"}}}
	var out strings.Builder
	if err := label(strings.NewReader(daemonText), &out, all); err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`{domain="k8s-7",accelerator="soft0"}`, `{domain="k8s-7",accelerator="soft0",namespace="team",claim="gpu",pod="web-0"}`,
		`{domain="k8s-8",accelerator="soft0"}`, `{domain="k8s-8",accelerator="soft0",namespace="team",claim="shared",pod=""}`).Replace(daemonText)
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	if err := label(strings.NewReader("no { metrics"), &out, all); err == nil {
		t.Error("text that has no metrics is accepted")
	}
}
