package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// owned returns a placed pod of a controller, which may be evicted.
func owned(name string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: uid, Annotations: map[string]string{MovableAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "r", Controller: ptr.To(true)}}}, Spec: corev1.PodSpec{NodeName: "node1"}}
}

// controller is an API server whose evictions are answered by refuse and, without an error, by a new pod.
func controller(t *testing.T, refuse error, pods ...runtime.Object) (api *fake.Clientset, log *[]string) {
	api, log = fake.NewClientset(pods...), new([]string)
	api.PrependReactor("*", "*", func(a core.Action) (bool, runtime.Object, error) {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			*log = append(*log, strings.TrimSuffix(a.GetVerb()+" "+a.GetResource().Resource+"/"+a.GetSubresource(), "/"))
		}
		return false, nil, nil
	})
	api.PrependReactor("create", "pods", func(a core.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		*log = append(*log, "evicted")
		if refuse != nil {
			return true, nil, refuse
		}
		e := a.(core.CreateAction).GetObject().(*policyv1.Eviction)
		gvr := corev1.SchemeGroupVersion.WithResource("pods")
		if err := api.Tracker().Delete(gvr, "team", e.Name); err != nil {
			t.Error(err)
		}
		p := owned(e.Name+"-new", types.UID(e.Name+"-new"))
		p.Spec.NodeName = "node2"
		return true, nil, api.Tracker().Create(gvr, p, "team")
	})
	return api, log
}

func apply(t *testing.T, api *fake.Clientset, pods ...string) (done int, text string, err error) {
	t.Helper()
	var lines []string
	m := Mover{Client: api, Patience: 200 * time.Millisecond, Every: time.Millisecond, Log: func(f string, a ...any) { lines = append(lines, fmt.Sprintf(f, a...)) }}
	done, err = m.Apply(t.Context(), &Advice{Moves: []Move{{Why: "not permitted"},
		{Namespace: "team", Claim: "gpu", Pods: pods, From: Place{"node1", "soft0"}, To: Place{"node2", "soft0"}}}})
	rules, listErr := api.ResourceV1().DeviceTaintRules().List(context.Background(), metav1.ListOptions{})
	if listErr != nil || len(rules.Items) > 0 {
		t.Errorf("taints are left: %v, %v", rules.Items, listErr)
	}
	return done, strings.Join(lines, "\n"), err
}

// A move taints the place, evicts the pods, waits for their successors, and ends the taint.
func TestMove(t *testing.T) {
	api, log := controller(t, nil, owned("a", "1"), owned("b", "2"), owned("unrelated", "3"))
	var rule *resourceapi.DeviceTaintRule
	api.PrependReactor("create", "devicetaintrules", func(a core.Action) (bool, runtime.Object, error) {
		rule = a.(core.CreateAction).GetObject().(*resourceapi.DeviceTaintRule)
		return false, nil, nil
	})
	done, text, err := apply(t, api, "a", "b")
	if err != nil || done != 1 {
		t.Fatal(done, err, text)
	}
	if s := rule.Spec; *s.DeviceSelector.Driver != "pegasus.dev" || *s.DeviceSelector.Pool != "node1" || *s.DeviceSelector.Device != "soft0" || s.Taint.Effect != resourceapi.DeviceTaintEffectNoSchedule {
		t.Errorf("rule: %+v", s)
	}
	if got := strings.Join(*log, ", "); got != "create devicetaintrules, evicted, evicted, delete devicetaintrules" {
		t.Errorf("requests: %s", got)
	}
	if !strings.Contains(text, "evicted pod team/a\nevicted pod team/b") {
		t.Errorf("log: %s", text)
	}
}

// A pod that permits no eviction any more, and one that its disruption budget keeps, stay.
func TestMoveRefused(t *testing.T) {
	plain := owned("a", "1")
	plain.Annotations = nil
	api, log := controller(t, nil, plain)
	if done, _, err := apply(t, api, "a"); done != 0 || err == nil || !strings.Contains(err.Error(), "move team/gpu: pod a: it does not have the annotation") || len(*log) > 0 {
		t.Errorf("%d, %v, requests %q", done, err, *log)
	}
	api, log = controller(t, apierrors.NewTooManyRequests("budget", 0), owned("a", "1"))
	if done, _, err := apply(t, api, "a"); done != 0 || err == nil || !strings.Contains(err.Error(), "its disruption budget permits no eviction now") || (*log)[len(*log)-1] != "delete devicetaintrules" {
		t.Errorf("%d, %v, requests %q", done, err, *log)
	}
}

// Without successors the move fails in the end, and its taint ends.
func TestMoveUnplaced(t *testing.T) {
	api, _ := controller(t, nil, owned("a", "1"))
	api.PrependReactor("list", "pods", func(core.Action) (bool, runtime.Object, error) { return true, &corev1.PodList{}, nil })
	if done, _, err := apply(t, api, "a"); done != 0 || err == nil || !strings.Contains(err.Error(), "not all of their successors were placed within 200ms") {
		t.Errorf("%d, %v", done, err)
	}
}

// A cluster without rules for taints is served with a warning.
func TestMoveWithoutTaints(t *testing.T) {
	api, _ := controller(t, nil, owned("a", "1"))
	api.PrependReactor("create", "devicetaintrules", func(core.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "devicetaintrules"}, "")
	})
	if done, text, err := apply(t, api, "a"); done != 1 || err != nil || !strings.Contains(text, "the scheduler may place the pod at node1/soft0 again") {
		t.Errorf("%d, %v, %s", done, err, text)
	}
}
