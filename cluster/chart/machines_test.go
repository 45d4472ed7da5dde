package chart

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// machines are the values with machines, or without.
func machines(enabled, daemon bool) map[string]any {
	values := image()
	values["machines"] = map[string]any{"enabled": enabled, "memory": "2Gi"}
	values["daemon"] = map[string]any{"enabled": daemon, "config": "[daemon]\nregions = \"/dev/shm/pegasus\"\n"}
	return values
}

// A node for machines has a driver with the directory of regions and the group of QEMU; by default there is neither.
func TestMachines(t *testing.T) {
	for _, c := range []struct {
		daemon, enabled bool
	}{{true, true}, {false, true}, {true, false}, {false, false}} {
		objects, err := decoded(t, machines(c.enabled, c.daemon))
		if err != nil {
			t.Fatal(err)
		}
		pod := objects["DaemonSet"].(*apps.DaemonSet).Spec.Template.Spec
		driver := pod.Containers[len(pod.Containers)-1]
		for what, has := range map[string]bool{
			"the memory":    slices.Contains(driver.Command, "--region-memory=2Gi"),
			"the group":     slices.Contains(driver.Command, "--qemu-group=107") && pod.SecurityContext != nil && slices.Equal(pod.SecurityContext.SupplementalGroups, []int64{107}),
			"the directory": slices.ContainsFunc(driver.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == "/dev/shm" }),
			"the policy":    objects["MutatingAdmissionPolicy"] != nil && objects["MutatingAdmissionPolicyBinding"] != nil,
		} {
			if has != c.enabled {
				t.Errorf("%+v: %s: got %v", c, what, has)
			}
		}
		if volume := slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == "shm" }); volume != (c.daemon || c.enabled) {
			t.Errorf("%+v: volume shm: got %v", c, volume)
		}
	}
}

// The policy gives the claim of a machine to the containers of libvirt and of the hooks, once, and changes no other pod.
func TestMachinesPolicy(t *testing.T) {
	objects, err := decoded(t, machines(true, true))
	if err != nil {
		t.Fatal(err)
	}
	p := objects["MutatingAdmissionPolicy"].(*admission.MutatingAdmissionPolicy)
	type object = map[string]any
	containers := []any{
		object{"name": "compute", "resources": object{"limits": object{"memory": "1Gi"}}},
		object{"name": "guest-console-log", "resources": object{}},
		object{"name": "hook-sidecar-0"},
		object{"name": "hook-sidecar-1", "resources": object{"claims": []any{object{"name": "nic"}}}},
		object{"name": "hook-sidecar-2", "resources": object{"claims": []any{object{"name": "gpu"}}}},
	}
	pod := func(label string, annotations object, claims ...string) object {
		var all []any
		for _, name := range claims {
			all = append(all, object{"name": name, "resourceClaimTemplateName": name})
		}
		return object{"metadata": object{"labels": object{"kubevirt.io": label}, "annotations": annotations}, "spec": object{"containers": containers, "resourceClaims": all}}
	}
	region := object{"pegasus.dev/region": "512Mi"}
	all := map[string]any{
		"/spec/containers/0/resources/claims":   []any{object{"name": "gpu"}},
		"/spec/containers/2/resources":          object{"claims": []any{object{"name": "gpu"}}},
		"/spec/containers/3/resources/claims/-": object{"name": "gpu"},
	}
	for _, c := range []struct {
		about string
		pod   object
		want  map[string]any
	}{
		{"a machine", pod("virt-launcher", region, "gpu"), all},
		{"one of two claims", pod("virt-launcher", object{"pegasus.dev/region": "512Mi", "pegasus.dev/claim": "gpu"}, "nic", "gpu"), all},
		{"two claims, none named", pod("virt-launcher", region, "nic", "gpu"), nil},
		{"a claim that is none of the pod's", pod("virt-launcher", object{"pegasus.dev/region": "512Mi", "pegasus.dev/claim": "gpu"}, "nic"), nil},
		{"no claim", pod("virt-launcher", region), nil},
		{"a machine without a region", pod("virt-launcher", object{}, "gpu"), nil},
		{"another pod", pod("web", region, "gpu"), nil},
		{"a pod without labels and annotations", object{"metadata": object{}, "spec": object{"containers": containers}}, nil},
	} {
		got := patches(t, p, c.pod)
		if len(got) != len(c.want) || len(got) > 0 && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.about, got, c.want)
		}
	}
}

// patches returns the values that a policy adds to a pod, by path.
func patches(t *testing.T, p *admission.MutatingAdmissionPolicy, pod map[string]any) map[string]any {
	t.Helper()
	input := map[string]any{"object": pod, "variables": map[string]any{}}
	for _, m := range p.Spec.MatchConditions {
		if evaluate(t, m.Expression, input) != true {
			return nil
		}
	}
	variables := map[string]any{}
	for _, v := range p.Spec.Variables {
		input["variables"] = maps.Clone(variables)
		variables[v.Name] = evaluate(t, v.Expression, input)
	}
	input["variables"] = variables
	added := map[string]any{}
	all, ok := evaluated(t, p.Spec.Mutations[0].JSONPatch.Expression, input).(traits.Lister)
	if !ok {
		t.Fatal("the expression returns no list")
	}
	for i := all.Iterator(); i.HasNext() == types.True; {
		op := i.Next()
		patch, ok := op.(*mutation.JSONPatchVal)
		if !ok || patch.Op != "add" {
			t.Fatalf("patch: %v", op)
		}
		value, err := patch.Val.ConvertToNative(types.JSONValueType)
		if err != nil {
			t.Fatal(err)
		}
		added[patch.Path] = value.(*structpb.Value).AsInterface()
	}
	return added
}
