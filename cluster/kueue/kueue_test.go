// Package kueue has an example of quotas by Kueue, and its test by Kueue's own code. It is a module of its own, so that
// the programs of the cluster depend on none of Kueue's modules.
package kueue

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/dra"
	"sigs.k8s.io/kueue/pkg/webhooks"
)

// decode decodes the objects of a file strictly.
func decode(t *testing.T, s *runtime.Scheme, file string) (objects []runtime.Object) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
	for r := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text))); ; {
		part := make([]byte, len(text))
		n, err := r.Read(part)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		o, _, err := decoder.Decode(part[:n], nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, part[:n])
		}
		objects = append(objects, o)
	}
}

// Kueue decodes its configuration, validates the queues, counts a pod of the job as a device of the mapped class, and
// has a quota of that resource in the job's queue.
func TestQuota(t *testing.T) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, configapi.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	configuration := decode(t, s, "configuration.yaml")[0].(*configapi.Configuration)
	if err := dra.CreateMapperFromConfiguration(configuration.Resources.DeviceClassMappings); err != nil {
		t.Fatal(err)
	}
	quota := map[string]core.ResourceList{} // by cluster queue
	queues := map[string]string{}           // cluster queue by local queue
	for _, o := range decode(t, s, "queues.yaml") {
		switch o := o.(type) {
		case *kueue.ResourceFlavor:
			if errs := webhooks.ValidateResourceFlavor(o); len(errs) > 0 {
				t.Error(errs)
			}
		case *kueue.ClusterQueue:
			if errs := webhooks.ValidateClusterQueue(o); len(errs) > 0 {
				t.Error(errs)
			}
			quota[o.Name] = core.ResourceList{}
			for _, r := range o.Spec.ResourceGroups[0].Flavors[0].Resources {
				quota[o.Name][r.Name] = r.NominalQuota
			}
		case *kueue.LocalQueue:
			queues[o.Namespace+"/"+o.Name] = string(o.Spec.ClusterQueue)
		}
	}
	objects := decode(t, s, "job.yaml")
	template, job := objects[0].(*resourceapi.ResourceClaimTemplate), objects[1].(*batch.Job)
	work := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: *job.Spec.Parallelism, Template: job.Spec.Template}}}}
	requests, errs := dra.GetResourceRequestsForResourceClaimTemplates(t.Context(), fake.NewClientBuilder().WithScheme(s).WithObjects(template).Build(), work)
	if len(errs) > 0 || len(requests["main"]) != 1 {
		t.Fatalf("the job requests %v, %v", requests, errs)
	}
	for name, each := range requests["main"] {
		has := quota[queues[job.Namespace+"/"+job.Labels["kueue.x-k8s.io/queue-name"]]][name]
		if name != "small-accelerators" || each.Value() != 1 || has.Value() != 4 {
			t.Errorf("a pod requests %s of %s; the quota is %s", each.String(), name, has.String())
		}
	}
}
