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

// instance returns a VirtualMachineInstance with annotations.
func instance(t *testing.T, eviction any, annotations map[string]string) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"kind": "VirtualMachineInstance",
		"metadata": map[string]any{"namespace": "default", "name": "web", "annotations": annotations},
		"spec":     map[string]any{"evictionStrategy": eviction, "domain": map[string]any{"cpu": map[string]int{"cores": 2}}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDefine(t *testing.T) {
	for _, c := range []struct {
		file        string
		annotations map[string]string
		want        kvm.Attachment
	}{
		{"nvdimm.xml", map[string]string{MemoryAnnotation: "512Mi"}, kvm.Attachment{Region: Region, Bytes: 512 << 20, Device: kvm.NVDIMM}},
		{"ivshmem.xml", map[string]string{MemoryAnnotation: "256Mi", DeviceAnnotation: "ivshmem"}, kvm.Attachment{Region: Region, Bytes: 256 << 20, Device: kvm.IVSHMEM}},
	} {
		got, err := Define(instance(t, "None", c.annotations), definition(t))
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
		if a, ok := d.Attached(filepath.Dir(Region)); !ok || a != c.want {
			t.Errorf("%s: attached %v, %v; want %v", c.file, a, ok, c.want)
		}
		again, err := Define(instance(t, "None", c.annotations), got)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: a second call changes the definition: %v\n%s", c.file, err, again)
		}
		before, err := d.WithoutRegion(filepath.Dir(Region))
		if err != nil || !bytes.Equal(before, definition(t)) {
			t.Errorf("%s: without the region: %v\n%s", c.file, err, before)
		}
	}
	same, err := Define(instance(t, nil, nil), definition(t))
	if err != nil || !bytes.Equal(same, definition(t)) {
		t.Errorf("a machine without annotations: %v\n%s", err, same)
	}
}

func TestRefused(t *testing.T) {
	size := func(s string) map[string]string { return map[string]string{MemoryAnnotation: s} }
	for _, c := range []struct {
		eviction    any
		annotations map[string]string
		want        string
	}{
		{"None", size("lots"), `machine default/web: annotation pegasus.dev/region: "lots": must be a size`},
		{"None", size("-1Mi"), `"-1Mi": must be a size`},
		{"None", size("1Mi"), "want a multiple of 2 MiB, from 16 MiB on"},
		{"None", map[string]string{MemoryAnnotation: "64Mi", DeviceAnnotation: "virtiofs"}, `device "virtiofs": want nvdimm or ivshmem`},
		{"None", map[string]string{MemoryAnnotation: "96Mi", DeviceAnnotation: "ivshmem"}, "power of two"},
		{"LiveMigrate", size("64Mi"), "spec.evictionStrategy: must be None"},
		{nil, size("64Mi"), "spec.evictionStrategy: must be None"},
	} {
		if text, err := Define(instance(t, c.eviction, c.annotations), definition(t)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %s, %v; want an error with %q", c.annotations, text, err, c.want)
		}
	}
	for _, text := range []string{"", "<domain>", "<network/>"} {
		if got, err := Define(instance(t, "None", size("64Mi")), []byte(text)); err == nil {
			t.Errorf("definition %q: got %s", text, got)
		}
	}
	if _, err := Define([]byte("no JSON"), definition(t)); err == nil {
		t.Error("an instance that is no JSON was accepted")
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
	go func() { done <- Serve(t.Context(), socket, slog.New(slog.DiscardHandler)) }()
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
	want, _ := Define(vmi, definition(t))
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
