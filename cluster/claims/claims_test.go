package claims

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"pegasus/cluster/internal/golden"
)

// read returns a claim of testdata, changed by edits: pairs of a text and its replacement.
func read(t *testing.T, name string, edits ...string) *resourceapi.ResourceClaim {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(string(text), edits[i]) {
			t.Fatalf("%s has no %q", name, edits[i])
		}
		text = []byte(strings.Replace(string(text), edits[i], edits[i+1], 1))
	}
	claim := new(resourceapi.ResourceClaim)
	if err := yaml.UnmarshalStrict(text, claim); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return claim
}

var sockets = map[string]string{"socket_mode": "0666"}

func TestPlan(t *testing.T) {
	for _, name := range []string{"plain", "configured", "subrequest", "beside"} {
		d, err := Plan(read(t, name+".claim.yaml"), sockets)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		golden.YAML(t, name+".domain.yaml", d)
	}
}

// A claim that the driver does not prepare is refused with the reason, the field and the remedy.
func TestRefused(t *testing.T) {
	const result = "      - request: gpu\n        driver: pegasus.dev\n        pool: node1\n        device: soft0\n"
	for _, c := range []struct {
		about, file string
		edits       []string
		want        string
	}{
		{"two devices", "plain", []string{result, strings.Replace(result, "soft0", "soft1", 1) + "        consumedCapacity: {credits: \"1\", memory: 2Mi}\n" + result},
			"it has 2 devices (gpu → soft1, gpu → soft0), and a domain has one accelerator; request one"},
		{"admin access", "plain", []string{"        device: soft0\n", "        device: soft0\n        adminAccess: true\n"}, "adminAccess: pegasus.dev has no such access"},
		{"another driver's", "plain", []string{"driver: pegasus.dev", "driver: other.dev"}, "it has no device of pegasus.dev"},
		{"no consumed capacity", "plain", []string{"          credits: \"256\"\n", ""}, `no consumed capacity "credits": the cluster needs the feature DRAConsumableCapacity`},
		{"no memory", "plain", []string{"memory: 512Mi", "memory: \"0\""}, "capacity memory = 0: must be a whole number above 0"},
		{"part of a credit", "plain", []string{`credits: "256"`, `credits: 500m`}, "capacity credits = 500m: must be a whole number above 0"},
		{"too large a guarantee", "configured", []string{"memoryGuarantee: 64Mi", "memoryGuarantee: 1Gi"}, "field memoryGuarantee: 1073741824 bytes: must be at most the claim's capacity memory, 536870912 bytes"},
		{"too small a quota", "configured", []string{"memoryQuota: 1Gi", "memoryQuota: 16Mi"}, "field memoryQuota: 16777216 bytes: must be at least"},
		{"a wrong field", "configured", []string{"slo: 250", "slo: 2500"}, "DomainConfig of the claim: field slo: 2500: must be"},
		{"an administrator's field", "configured", []string{"slo: 250", "cpu: 50%"}, "DomainConfig of the claim: field cpu: only a DeviceClass may give it"},
		{"an unknown field of the class", "configured", []string{"processes: 8", "proceses: 8"}, "DomainConfig of the class: field proceses: unknown"},
	} {
		t.Run(c.about, func(t *testing.T) {
			d, err := Plan(read(t, c.file+".claim.yaml", c.edits...), sockets)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "claim team/quarter: ") {
				t.Errorf("got %v, %v; want an error with %q", d, err, c.want)
			}
		})
	}
	claim := read(t, "plain.claim.yaml")
	claim.Status.Allocation = nil
	if _, err := Plan(claim, sockets); err == nil || !strings.Contains(err.Error(), "not allocated") {
		t.Errorf("without an allocation: got %v", err)
	}
}
