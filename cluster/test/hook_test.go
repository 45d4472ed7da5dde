package test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"pegasus/internal/testkit"
)

// The hook as a program, as KubeVirt's sidecar-shim calls it.
func TestOnDefineDomain(t *testing.T) {
	program := t.TempDir() + "/onDefineDomain"
	if err := os.Symlink(testkit.Built(t, "cluster/pegasus-kubevirt"), program); err != nil {
		t.Fatal(err)
	}
	definition, err := os.ReadFile("../kubevirt/testdata/domain.xml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../kubevirt/testdata/nvdimm.xml")
	if err != nil {
		t.Fatal(err)
	}
	const vmi = `{"metadata":{"namespace":"default","name":"web","annotations":{"pegasus.dev/region":"512Mi"}},
		"spec":{"evictionStrategy":"None","resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"quarter"}]}}`
	region := t.TempDir() + "/machine"
	if err := os.WriteFile(region, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(region, 512<<20); err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command(program, "--region", region, "--vmi", vmi, "--domain", string(definition)).Output()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: got:\n%s\nwant:\n%s", err, got, want)
	}
	out, err := exec.Command(program, "--region", region, "--vmi", strings.Replace(vmi, "512Mi", "5", 1), "--domain", string(definition)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "machine default/web: annotation pegasus.dev/region: 5 bytes") {
		t.Errorf("a wrong annotation: %v: %s", err, out)
	}
}
