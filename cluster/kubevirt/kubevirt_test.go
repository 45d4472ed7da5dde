package kubevirt

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"pegasus/cluster/kubevirt/hooks"
	"pegasus/hypervisor/kvm"
	"pegasus/internal/testkit"
)

// definition is a definition as KubeVirt writes it.
func definition(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/domain.xml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// template is the claim of a machine.
var template = []map[string]string{{"name": "gpu", "resourceClaimTemplateName": "quarter"}}

// instance returns a VirtualMachineInstance with annotations.
func instance(t *testing.T, eviction any, annotations map[string]string) []byte {
	t.Helper()
	return claiming(t, template, eviction, annotations)
}

// claiming is instance with any claims.
func claiming(t *testing.T, all []map[string]string, eviction any, annotations map[string]string) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"kind": "VirtualMachineInstance",
		"metadata": map[string]any{"namespace": "default", "name": "web", "annotations": annotations},
		"spec":     map[string]any{"evictionStrategy": eviction, "resourceClaims": all, "domain": map[string]any{"cpu": map[string]int{"cores": 2}}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hook returns a hook whose container has a region of a size.
func hook(t *testing.T, bytes int64) Hook {
	t.Helper()
	h := Hook{Region: filepath.Join(t.TempDir(), "machine")}
	err := os.WriteFile(h.Region, nil, 0o600)
	if err == nil {
		err = os.Truncate(h.Region, bytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDefine(t *testing.T) {
	for _, c := range []struct {
		file        string
		annotations map[string]string
		want        kvm.Attachment
	}{
		{"nvdimm.xml", map[string]string{MemoryAnnotation: "512Mi"}, kvm.Attachment{Region: kvm.ContainerRegion, Bytes: 512 << 20, Device: kvm.NVDIMM, Served: true}},
		{"ivshmem.xml", map[string]string{MemoryAnnotation: "256Mi", DeviceAnnotation: "ivshmem"}, kvm.Attachment{Region: kvm.ContainerRegion, Bytes: 256 << 20, Device: kvm.IVSHMEM, Served: true}},
	} {
		h := hook(t, int64(c.want.Bytes))
		got, err := h.Define(instance(t, "None", c.annotations), definition(t))
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		path := filepath.Join("testdata", c.file)
		if os.Getenv("GOLDEN_UPDATE") != "" {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v; got:\n%s\nwant, as %s has it:\n%s", err, got, path, want)
		}
		d, err := kvm.Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := d.Attached(filepath.Dir(kvm.ContainerRegion)); !ok || a != c.want {
			t.Errorf("%s: attached %v, %v; want %v", c.file, a, ok, c.want)
		}
		again, err := h.Define(instance(t, "None", c.annotations), got)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: a second call changes the definition: %v\n%s", c.file, err, again)
		}
		before, err := d.WithoutRegion(filepath.Dir(kvm.ContainerRegion))
		if err != nil || !bytes.Equal(before, definition(t)) {
			t.Errorf("%s: without the region: %v\n%s", c.file, err, before)
		}
	}
	same, err := Hook{}.Define(instance(t, nil, nil), definition(t))
	if err != nil || !bytes.Equal(same, definition(t)) {
		t.Errorf("a machine without annotations: %v\n%s", err, same)
	}
}

func TestRefused(t *testing.T) {
	h := hook(t, 64<<20)
	size := func(s string) map[string]string { return map[string]string{MemoryAnnotation: s} }
	named := map[string]string{MemoryAnnotation: "64Mi", ClaimAnnotation: "gpu"}
	type claim = map[string]string
	for _, c := range []struct {
		about string
		vmi   []byte
		want  string
	}{
		{"no size", instance(t, "None", size("lots")), `machine default/web: annotation pegasus.dev/region: "lots": must be a size`},
		{"a negative size", instance(t, "None", size("-1Mi")), `"-1Mi": must be a size`},
		{"another size", instance(t, "None", size("32Mi")), "annotation pegasus.dev/region: 33554432 bytes: must be the capacity region of the claim, 67108864 bytes"},
		{"an unknown device", instance(t, "None", map[string]string{MemoryAnnotation: "64Mi", DeviceAnnotation: "virtiofs"}), `device "virtiofs": want nvdimm or ivshmem`},
		{"migration", instance(t, "LiveMigrate", size("64Mi")), "spec.evictionStrategy: must be None"},
		{"migration if possible", instance(t, "LiveMigrateIfPossible", size("64Mi")), "spec.evictionStrategy: must be None"},
		{"the cluster's strategy", instance(t, nil, size("64Mi")), "spec.evictionStrategy: must be None"},
		{"no claim", claiming(t, nil, "None", size("64Mi")), "spec.resourceClaims: has 0 claims, and annotation pegasus.dev/claim names none"},
		{"two claims", claiming(t, []claim{template[0], {"name": "nic", "resourceClaimTemplateName": "nic"}}, "None", size("64Mi")), "has 2 claims, and annotation pegasus.dev/claim names none"},
		{"another claim", claiming(t, []claim{{"name": "nic", "resourceClaimTemplateName": "nic"}}, "None", named), `annotation pegasus.dev/claim: "gpu": spec.resourceClaims has no claim of that name`},
		{"a shared claim", claiming(t, []claim{{"name": "gpu", "resourceClaimName": "shared"}}, "None", size("64Mi")), `claim "gpu": must have a resourceClaimTemplateName`},
	} {
		if text, err := h.Define(c.vmi, definition(t)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %s, %v; want an error with %q", c.about, text, err, c.want)
		}
	}
	if _, err := hook(t, 96<<20).Define(instance(t, "None", map[string]string{MemoryAnnotation: "96Mi", DeviceAnnotation: "ivshmem"}), definition(t)); err == nil || !strings.Contains(err.Error(), "power of two") {
		t.Errorf("96 MiB of ivshmem: got %v", err)
	}
	for _, text := range []string{"", "<domain>", "<network/>"} {
		if got, err := h.Define(instance(t, "None", size("64Mi")), []byte(text)); err == nil {
			t.Errorf("definition %q: got %s", text, got)
		}
	}
	if _, err := h.Define([]byte("no JSON"), definition(t)); err == nil {
		t.Error("an instance that is no JSON was accepted")
	}
	if _, err := h.Define(claiming(t, []claim{{"name": "nic", "resourceClaimName": "nic"}, template[0]}, "None", named), definition(t)); err != nil {
		t.Errorf("one of two claims, by its name: %v", err)
	}
}

// Without the claim's mount there is no region, whatever lies in its place.
func TestMissingMount(t *testing.T) {
	vmi := instance(t, "None", map[string]string{MemoryAnnotation: "64Mi"})
	h := Hook{Region: filepath.Join(t.TempDir(), "machine")}
	if _, err := h.Define(vmi, definition(t)); err == nil || !strings.Contains(err.Error(), "not mounted into the hook's container: its claim must have the capacity region") {
		t.Errorf("no region: got %v", err)
	}
	if err := os.Symlink(hook(t, 64<<20).Region, h.Region); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Define(vmi, definition(t)); err == nil || !strings.Contains(err.Error(), "not a file, but L") {
		t.Errorf("a link: got %v", err)
	}
}

// The hook as virt-launcher calls it.
func TestServe(t *testing.T) {
	dir, err := os.MkdirTemp("", "pk") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "pegasus.sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil { // of a sidecar that was killed
		t.Fatal(err)
	}
	done := make(chan error)
	h := hook(t, 64<<20)
	go func() { done <- h.Serve(t.Context(), socket, slog.New(slog.DiscardHandler)) }()
	testkit.Eventually(t, "the hook serves", func() bool {
		info, err := os.Stat(socket)
		return err == nil && info.Mode().Type() == os.ModeSocket
	})
	c, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	info, err := hooks.NewInfoClient(c).Info(t.Context(), &hooks.InfoParams{})
	if err != nil || info.Name != "pegasus" || len(info.Versions) != 1 || info.Versions[0] != "v1alpha3" || len(info.HookPoints) != 2 || info.HookPoints[0].Name != "OnDefineDomain" {
		t.Fatalf("info: %v, %v", info, err)
	}
	callbacks := hooks.NewCallbacksClient(c)
	vmi := instance(t, "None", map[string]string{MemoryAnnotation: "64Mi"})
	got, err := callbacks.OnDefineDomain(t.Context(), &hooks.OnDefineDomainParams{DomainXML: definition(t), Vmi: vmi})
	want, _ := h.Define(vmi, definition(t))
	if err != nil || !bytes.Equal(got.DomainXML, want) {
		t.Errorf("got %s, %v; want %s", got.GetDomainXML(), err, want)
	}
	if _, err := callbacks.OnDefineDomain(t.Context(), &hooks.OnDefineDomainParams{DomainXML: []byte("<x/>"), Vmi: vmi}); err == nil || !strings.Contains(err.Error(), "machine default/web: definition") {
		t.Errorf("a wrong definition: got %v", err)
	}
	if _, err := callbacks.Shutdown(context.WithoutCancel(t.Context()), &hooks.ShutdownParams{}); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left")
	}
}
