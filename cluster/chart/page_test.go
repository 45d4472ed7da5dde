package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"pegasus/cluster/kubevirt"
	"pegasus/cluster/parameters"
)

// checkMachine checks that the hook accepts a VirtualMachineInstance of the page, and that its list of sidecars is JSON.
func checkMachine(t *testing.T, manifest string) {
	t.Helper()
	vmi, err := yaml.YAMLToJSONStrict([]byte(manifest))
	if err != nil {
		t.Fatalf("%v:\n%s", err, manifest)
	}
	definition, err := os.ReadFile("../kubevirt/testdata/domain.xml")
	if err != nil {
		t.Fatal(err)
	}
	h := kubevirt.Hook{Region: filepath.Join(t.TempDir(), "machine")}
	if err := os.WriteFile(h.Region, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(h.Region, 512<<20); err != nil {
		t.Fatal(err)
	}
	if changed, err := h.Define(vmi, definition); err != nil || string(changed) == string(definition) {
		t.Errorf("the hook: %v:\n%s", err, manifest)
	}
	var m struct {
		Metadata struct{ Annotations map[string]string }
	}
	var sidecars []struct {
		ConfigMap struct{ Name, Key, HookPath string }
	}
	if err := json.Unmarshal(vmi, &m); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(m.Metadata.Annotations["hooks.kubevirt.io/hookSidecars"]), &sidecars); err != nil || len(sidecars) != 1 || sidecars[0].ConfigMap.HookPath != "/usr/bin/onDefineDomain" {
		t.Errorf("sidecars: %v, %v", sidecars, err)
	}
}

// The manifests and the fields on the page are those that the API and the driver have.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	configurations, machines := 0, 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for object := range strings.SplitSeq(block[1], "\n---\n") {
			if strings.Contains(object, "\nkind: VirtualMachineInstance\n") {
				machines++
				checkMachine(t, object)
				continue
			}
			o, _, err := decoder.Decode([]byte(object), nil, nil)
			if err != nil {
				t.Errorf("%v:\n%s", err, object)
				continue
			}
			template, ok := o.(*resourceapi.ResourceClaimTemplate)
			if !ok {
				continue
			}
			for _, c := range template.Spec.Spec.Devices.Config {
				configurations++
				if _, err := parameters.Read(c.Opaque.Parameters.Raw, parameters.Claim); err != nil {
					t.Errorf("%v:\n%s", err, object)
				}
			}
		}
	}
	if configurations == 0 || machines == 0 {
		t.Errorf("the page has %d configurations and %d machines", configurations, machines)
	}
	for _, field := range parameters.Fields(parameters.Class) {
		if !strings.Contains(string(text), "`"+field+"`") {
			t.Errorf("the page does not have the field %s", field)
		}
	}
}
