//go:build soak

package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"pegasus/backend/control"
	"pegasus/cluster/slices"
)

// number returns an environment variable's number, or its default.
func number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// each calls f for 0 to n-1, sixteen at a time.
func each(t testing.TB, n int, f func(i int) error) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !t.Failed(); i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// A thousand nodes of kwok with four accelerators each: the stock scheduler places a claim for each pod, and no object of
// the driver's grows with the claims. The log has the rates with and without claims.
func TestFleet(t *testing.T) {
	c := live(t)
	nodes, pods := number(t, "FLEET_NODES", 1000), number(t, "FLEET_PODS", 20000)
	c.must(t, "", "cordon", nodeName)
	defer c.must(t, "", "uncordon", nodeName)
	if err := c.start("kwok", "--kubeconfig", kubeconfig("admin"), "--config", built("kubernetes/kwok-stages.yaml"), "--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake", "--v", "ERROR"); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 2000, 4000
	config.ContentType = runtime.ContentTypeProtobuf // the test's own part of the processors' time is small with it
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	var accelerators []control.Accelerator
	for i := range 4 {
		accelerators = append(accelerators, control.Accelerator{Name: fmt.Sprintf("gpu%d", i), Type: "soft", Policy: "accc", Mode: "production", Memory: 16 << 30, MaxDomains: 64})
	}
	devices, _ := slices.Devices(accelerators, slices.Node{Release: "test", CUDA: "12.4", Credits: 1024})
	each(t, nodes, func(i int) error {
		name := fmt.Sprintf("kwok-%04d", i)
		room := corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110")}
		_, err := api.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}, Labels: map[string]string{"kubernetes.io/hostname": name, "fleet": "kwok"}},
			Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
		}, metav1.CreateOptions{})
		if err == nil {
			_, err = api.ResourceV1().ResourceSlices().Create(ctx, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: resourceapi.ResourceSliceSpec{Driver: "pegasus.dev", NodeName: ptr.To(name), Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1}, Devices: devices}}, metav1.CreateOptions{})
		}
		return err
	})
	eventually(t, "kwok's nodes are ready", func() bool { return c.ready(ctx, t, api) == nodes })
	c.must(t, `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: fleet.pegasus.dev}
spec: {selectors: [{cel: {expression: 'device.driver == "pegasus.dev"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: fleet, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: fleet.pegasus.dev, capacity: {requests: {credits: "128", memory: 512Mi}}}}]}}}
`, "apply", "-f", "-")
	plain := place(ctx, t, api, "plain", pods, func() {})
	before := size(ctx, t, api)
	named := place(ctx, t, api, "named", pods, func() { c.seesAll(t, 4*nodes, pods) })
	claimed := place(ctx, t, api, "claimed", pods, func() {})
	after := size(ctx, t, api)
	t.Logf("%d nodes: %.0f plain pods/s; with a claim that exists: %.0f/s (%.0f %%); with a template's claim: %.0f/s (%.0f %%); the slices: %d bytes before, %d after",
		nodes, plain, named, 100*named/plain, claimed, 100*claimed/plain, before, after)
	if after != before {
		t.Errorf("the slices have grown from %d to %d bytes", before, after)
	}
}

// seesAll fails unless the view has all accelerators and all sold credits. kwok runs no drivers, so nothing is
// measured.
func (c *cluster) seesAll(t testing.TB, accelerators, claims int) {
	t.Helper()
	begin := time.Now()
	f := c.view(t)
	took := time.Since(begin)
	var sold int64
	for i := range f.Accelerators {
		sold += f.Accelerators[i].Credits.Sold
	}
	t.Logf("the view of %d accelerators and %d claims took %v", len(f.Accelerators), claims, took.Round(time.Millisecond))
	if len(f.Accelerators) != accelerators || sold != 128*int64(claims) {
		t.Errorf("%d accelerators have sold %d credits; want %d and %d", len(f.Accelerators), sold, accelerators, 128*claims)
	}
}

func (c *cluster) ready(ctx context.Context, t testing.TB, api kubernetes.Interface) (n int) {
	t.Helper()
	all, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "fleet=kwok"})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range all.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				n++
			}
		}
	}
	return n
}

// size returns the size of all slices.
func size(ctx context.Context, t testing.TB, api kubernetes.Interface) (bytes int) {
	t.Helper()
	all, err := api.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{LabelSelector: ""})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		bytes += all.Items[i].Size()
	}
	return bytes
}

// place creates pods, and returns how many the scheduler placed per second. Then it deletes them. The pods are plain, or
// each has a claim: one of its own that exists before (named), or one that the cluster makes by a template (claimed).
// It calls placed before it deletes them.
func place(ctx context.Context, t *testing.T, api kubernetes.Interface, name string, n int, placed func()) float64 {
	t.Helper()
	pod := func(i int) string { return fmt.Sprintf("%s-%05d", name, i) }
	if name == "named" {
		template, err := api.ResourceV1().ResourceClaimTemplates("default").Get(ctx, "fleet", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		each(t, n, func(i int) error {
			c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: pod(i)}, Spec: template.Spec.Spec}
			_, err := api.ResourceV1().ResourceClaims("default").Create(ctx, c, metav1.CreateOptions{})
			return err
		})
	}
	begin := time.Now()
	each(t, n, func(i int) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod(i), Labels: map[string]string{"fleet": name}},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{"fleet": "kwok"}, AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
		if name != "plain" {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("fleet")}}
			p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		}
		if name == "named" {
			p.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: ptr.To(p.Name)}
		}
		_, err := api.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	waiting := func() bool {
		all, err := api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "fleet=" + name, FieldSelector: "spec.nodeName=", Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return len(all.Items) > 0
	}
	for end := begin.Add(40 * time.Minute); waiting(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) || t.Failed() {
			t.Fatalf("not all of %d pods %s were placed in %v", n, name, time.Since(begin).Round(time.Second))
		}
	}
	rate := float64(n) / time.Since(begin).Seconds()
	placed()
	deleted(t, "pods", func() (int, error) {
		err := api.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}, metav1.ListOptions{LabelSelector: "fleet=" + name})
		all, listed := api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "fleet=" + name, Limit: 1})
		return len(all.Items), errors.Join(err, listed)
	})
	deleted(t, "claims", func() (int, error) {
		err := api.ResourceV1().ResourceClaims("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		all, listed := api.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{Limit: 1})
		return len(all.Items), errors.Join(err, listed)
	})
	return rate
}

// deleted repeats f, which deletes objects, until none is left. Thousands take the API server longer than its time limit
// of a request.
func deleted(t testing.TB, objects string, f func() (left int, err error)) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Second) {
		left, err := f()
		if err == nil && left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not all %s are deleted: %v", objects, err)
		}
	}
}
