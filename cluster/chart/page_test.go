package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"pegasus/cluster/parameters"
)

// The manifests and the fields on the page are those that the API and the driver have.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	configurations := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for object := range strings.SplitSeq(block[1], "\n---\n") {
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
	if configurations == 0 {
		t.Error("the page has no configuration")
	}
	for _, field := range parameters.Fields(parameters.Class) {
		if !strings.Contains(string(text), "`"+field+"`") {
			t.Errorf("the page does not have the field %s", field)
		}
	}
}
