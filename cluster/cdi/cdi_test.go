package cdi

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"pegasus/cluster/claims"
	"pegasus/cluster/internal/golden"
)

func domain(uid types.UID) *claims.Domain {
	return &claims.Domain{Namespace: "team", Claim: "quarter", UID: uid, Settings: map[string]string{"credits": "256", "memory": "536870912"}}
}

func TestSpec(t *testing.T) {
	h := Host{Domains: "/run/pegasus/domains", Libraries: "/usr/lib/pegasus"}
	golden.YAML(t, "open.yaml", h.Spec(domain("0a0a0a0a-0000-4000-8000-000000000001")))
	h.Group = 4000
	golden.YAML(t, "group.yaml", h.Spec(domain("0a0a0a0a-0000-4000-8000-000000000001")))
	h.Hook = "/var/lib/kubelet/plugins/pegasus.dev/pegasus-kubevirt"
	d := domain("0a0a0a0a-0000-4000-8000-000000000001")
	d.Region = &claims.Region{Bytes: 512 << 20, Path: "/dev/shm/pegasus/" + d.Name()}
	golden.YAML(t, "machine.yaml", h.Spec(d))
}

// A runtime finds the edits of each claim by the claim's device ID, and no others; files that are written again or
// removed twice do no harm.
func TestDir(t *testing.T) {
	dir := Dir(filepath.Join(t.TempDir(), "cdi"))
	h := Host{Domains: "/run/pegasus/domains", Libraries: "/usr/lib/pegasus", Group: 4000}
	for _, uid := range []types.UID{"aaaa-1", "aaaa-12"} {
		for _, want := range []bool{true, false} {
			if wrote, err := dir.Write(uid, h.Spec(domain(uid))); wrote != want || err != nil {
				t.Errorf("%s: wrote %v, %v; want %v", uid, wrote, err, want)
			}
		}
	}
	other := filepath.Join(string(dir), "other.dev-claim_x.json")
	if err := os.WriteFile(other, []byte(`{"cdiVersion":"0.5.0","kind":"other.dev/claim","devices":[{"name":"x","containerEdits":{"env":["A=B"]}}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(string(dir)), cdi.WithAutoRefresh(false))
	if err != nil || len(cache.GetErrors()) > 0 {
		t.Fatal(err, cache.GetErrors())
	}
	spec := &oci.Spec{Process: &oci.Process{}, Linux: &oci.Linux{}}
	if missing, err := cache.InjectDevices(spec, DeviceID("aaaa-1")); err != nil {
		t.Fatal(missing, err)
	}
	if !slices.Contains(spec.Process.Env, "PEGASUS_DOMAIN=k8s-aaaa-1") || !slices.Contains(spec.Process.User.AdditionalGids, 4000) {
		t.Errorf("environment %q, groups %v", spec.Process.Env, spec.Process.User.AdditionalGids)
	}
	if i := slices.IndexFunc(spec.Mounts, func(m oci.Mount) bool { return m.Destination == DomainDir }); i < 0 || spec.Mounts[i].Source != "/run/pegasus/domains/k8s-aaaa-1" {
		t.Errorf("mounts: %v", spec.Mounts)
	}
	for range 2 {
		if err := dir.Remove("aaaa-1"); err != nil {
			t.Error(err)
		}
	}
	if left, err := dir.Claims(); err != nil || !slices.Equal(left, []types.UID{"aaaa-12"}) {
		t.Errorf("left: %q, %v", left, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}
