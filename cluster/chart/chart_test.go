// Package chart has the Helm chart, and its tests.
package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"pegasus/cluster/claims"
	"pegasus/cluster/internal/render"
	"pegasus/cluster/parameters"
)

// image are the values without a default.
func image() map[string]any {
	return map[string]any{"image": map[string]any{"repository": "registry.example.com/pegasus", "tag": "1"}}
}

// decoded renders the chart and returns its objects, decoded strictly, by kind.
func decoded(t *testing.T, values map[string]any) (map[string]runtime.Object, error) {
	t.Helper()
	all, err := decodedAll(t, values)
	objects := map[string]runtime.Object{}
	for _, o := range all {
		objects[o.GetObjectKind().GroupVersionKind().Kind] = o
	}
	return objects, err
}

// decodedAll renders the chart and returns its objects, decoded strictly.
func decodedAll(t *testing.T, values map[string]any) (objects []runtime.Object, err error) {
	t.Helper()
	texts, err := render.Chart(".", values)
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, text := range texts {
		o, kind, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		o.GetObjectKind().SetGroupVersionKind(*kind)
		objects = append(objects, o)
	}
	return objects, nil
}

func TestLint(t *testing.T) {
	version, err := common.ParseKubeVersion("v1.37.2")
	if err != nil {
		t.Fatal(err)
	}
	l := lint.RunAll(".", image(), "pegasus-system", lint.WithKubeVersion(version))
	for _, m := range l.Messages {
		if m.Severity >= support.WarningSev {
			t.Error(m)
		}
	}
}

func TestObjects(t *testing.T) {
	objects, err := decoded(t, image())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "DeviceClass", "ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	class := objects["DeviceClass"].(*resourceapi.DeviceClass)
	if n := class.Spec.ExtendedResourceName; n == nil || *n != "pegasus.dev/accelerator" || len(class.Spec.Config) > 0 {
		t.Errorf("class: %v", class.Spec)
	}
	pod := objects["DaemonSet"].(*apps.DaemonSet).Spec.Template.Spec
	for _, c := range append(pod.Containers, pod.InitContainers...) {
		privileged := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		if privileged != (c.Name == "daemon") || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("container %s: %v", c.Name, c.SecurityContext)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("container %s: there is no volume %s", c.Name, m.Name)
			}
		}
	}
}

// With a daemon of the host, the pods have the driver alone.
func TestDriverAlone(t *testing.T) {
	values := image()
	values["daemon"] = map[string]any{"enabled": false}
	objects, err := decoded(t, values)
	if err != nil {
		t.Fatal(err)
	}
	pod := objects["DaemonSet"].(*apps.DaemonSet).Spec.Template.Spec
	if len(pod.Containers) != 1 || pod.Containers[0].Name != "driver" || len(pod.InitContainers) > 0 || len(pod.Volumes) != 4 || objects["ConfigMap"] != nil {
		t.Errorf("pod: %v", pod)
	}
}

// A cluster before 1.34 needs the device plugin, with which the chart has neither objects of resource.k8s.io nor rights.
func TestDevicePlugin(t *testing.T) {
	if _, err := render.ChartFor(".", "v1.33.0", image()); err == nil || !strings.Contains(err.Error(), "set devicePlugin.enabled=true") {
		t.Errorf("a driver for Kubernetes 1.33: %v", err)
	}
	values := image()
	values["devicePlugin"] = map[string]any{"enabled": true, "credits": 128}
	if _, err := render.ChartFor(".", "v1.33.0", values); err != nil {
		t.Error(err)
	}
	objects, err := decoded(t, values)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(objects)), []string{"ConfigMap", "DaemonSet", "ServiceAccount"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if token := objects["ServiceAccount"].(*core.ServiceAccount).AutomountServiceAccountToken; token == nil || *token {
		t.Error("the plugin has a token")
	}
	pod := objects["DaemonSet"].(*apps.DaemonSet).Spec.Template.Spec
	driver := pod.Containers[len(pod.Containers)-1]
	if !slices.Contains(driver.Command, "--device-plugin=128") || !slices.ContainsFunc(driver.Env, func(e core.EnvVar) bool { return e.Name == "POD" && e.Value == "pegasus-system/$(POD_NAME)" }) {
		t.Errorf("driver: %v, %v", driver.Command, driver.Env)
	}
	for _, dir := range []string{"plugins", "device-plugins", "pod-resources"} {
		i := slices.IndexFunc(driver.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == "/var/lib/kubelet/"+dir })
		if i < 0 || !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
			return v.Name == driver.VolumeMounts[i].Name && v.HostPath.Path == driver.VolumeMounts[i].MountPath
		}) {
			t.Errorf("the kubelet's directory %s is not mounted: %v", dir, driver.VolumeMounts)
		}
	}
	values["daemon"] = map[string]any{"enabled": false} // machines would miss its regions first
	for _, part := range []string{"machines", "usage", "fleet"} {
		values[part], values["metrics"] = map[string]any{"enabled": true}, map[string]any{"enabled": true}
		if _, err := render.Chart(".", values); err == nil || !strings.Contains(err.Error(), "need claims") {
			t.Errorf("%s without claims: %v", part, err)
		}
		delete(values, part)
	}
}

// Metrics are off by default. With a PodMonitor, Prometheus keeps the namespace and the pod of the claim.
func TestMetrics(t *testing.T) {
	values := image()
	values["metrics"] = map[string]any{"enabled": true, "podMonitor": true}
	for want, v := range map[bool]map[string]any{false: image(), true: values} {
		texts, err := render.Chart(".", v)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(texts, "\n")
		for _, part := range []string{"--metrics=:9419", "containerPort: 9419", "kind: PodMonitor", "honorLabels: true"} {
			if strings.Contains(all, part) != want {
				t.Errorf("%q: want it: %v\n%s", part, want, all)
			}
		}
	}
}

// The page is off by default. Its account may list, in its own namespace and nothing else but slices and claims, and its
// pod is none that the driver's selector or the monitor selects.
func TestFleet(t *testing.T) {
	values := image()
	values["fleet"] = map[string]any{"enabled": true}
	if _, err := render.Chart(".", values); err == nil || !strings.Contains(err.Error(), "metrics.enabled") {
		t.Errorf("without metrics: %v", err)
	}
	values["metrics"] = map[string]any{"enabled": true}
	objects, err := decodedAll(t, values)
	if err != nil {
		t.Fatal(err)
	}
	var deployment *apps.Deployment
	rights := 0
	for _, o := range objects {
		switch o := o.(type) {
		case *apps.Deployment:
			deployment = o
		case *rbac.ClusterRole:
			if o.Name == "pegasus-fleet" {
				rights++
				if r := o.Rules; len(r) != 1 || !slices.Equal(r[0].Verbs, []string{"list"}) || !slices.Equal(r[0].Resources, []string{"resourceclaims", "resourceslices"}) {
					t.Errorf("cluster role: %v", r)
				}
			}
		case *rbac.Role:
			rights++
			if r := o.Rules; len(r) != 1 || !slices.Equal(r[0].Verbs, []string{"list"}) || !slices.Equal(r[0].Resources, []string{"pods"}) || o.Namespace != "pegasus-system" {
				t.Errorf("role: %v", r)
			}
		}
	}
	if deployment == nil || rights != 2 {
		t.Fatalf("%v, %d roles", deployment, rights)
	}
	pod := deployment.Spec.Template
	if pod.Labels["app.kubernetes.io/name"] == "pegasus" || *pod.Spec.SecurityContext.RunAsNonRoot != true || pod.Spec.HostPID || len(pod.Spec.Volumes) > 0 {
		t.Errorf("pod: %v", pod)
	}
	if args := strings.Join(pod.Spec.Containers[0].Command, " "); !strings.Contains(args, "--listen=127.0.0.1:8080") || !strings.Contains(args, "--direct") {
		t.Errorf("command: %s", args)
	}
}

// The configuration of the class is one that the driver reads.
func TestClassConfiguration(t *testing.T) {
	values := image()
	values["deviceClass"] = map[string]any{"config": map[string]any{"processes": 8, "cpu": "200%"}}
	objects, err := decoded(t, values)
	if err != nil {
		t.Fatal(err)
	}
	config := objects["DeviceClass"].(*resourceapi.DeviceClass).Spec.Config
	if len(config) != 1 || config[0].Opaque.Driver != claims.DriverName {
		t.Fatalf("configuration: %v", config)
	}
	settings, err := parameters.Read(config[0].Opaque.Parameters.Raw, parameters.Class)
	if want := map[string]string{"processes": "8", "cpu": "200%"}; err != nil || !maps.Equal(settings, want) {
		t.Errorf("got %v, %v; want %v", settings, err, want)
	}
}

func TestWrongValues(t *testing.T) {
	for about, change := range map[string]func(map[string]any){
		"no image":                 func(v map[string]any) { delete(v, "image") },
		"too many credits":         func(v map[string]any) { v["driver"] = map[string]any{"credits": 70000} },
		"misspelled":               func(v map[string]any) { v["drivers"] = map[string]any{} },
		"a daemon without regions": func(v map[string]any) { v["machines"] = map[string]any{"enabled": true} },
		"no size of regions":       func(v map[string]any) { v["machines"] = map[string]any{"enabled": true, "memory": "0"} },
		"a wrong time":             func(v map[string]any) { v["usage"] = map[string]any{"interval": "soon"} },
		"devices without credits":  func(v map[string]any) { v["devicePlugin"] = map[string]any{"credits": 0} },
		"a relative path":          func(v map[string]any) { v["paths"] = map[string]any{"cdi": "run/cdi"} },
	} {
		values := image()
		change(values)
		if _, err := decoded(t, values); err == nil {
			t.Errorf("%s: the chart was rendered", about)
		}
	}
}

// policy returns an admission policy of the chart.
func policy(t *testing.T, values map[string]any, name string) *admission.ValidatingAdmissionPolicy {
	t.Helper()
	objects, err := decodedAll(t, values)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if p, ok := o.(*admission.ValidatingAdmissionPolicy); ok && p.Name == name {
			return p
		}
	}
	t.Fatalf("the chart has no policy %s", name)
	return nil
}

// The usage of claims is off by default. With it, the driver may patch the status of its devices on its node.
func TestUsage(t *testing.T) {
	values := image()
	values["usage"] = map[string]any{"enabled": true, "interval": "30s"}
	for want, v := range map[bool]map[string]any{false: image(), true: values} {
		texts, err := render.Chart(".", v)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(texts, "\n")
		for _, part := range []string{"--usage=30s", "resourceclaims/status", "associated-node:patch", "pegasus-usage"} {
			if strings.Contains(all, part) != want {
				t.Errorf("%q: want it: %v\n%s", part, want, all)
			}
		}
	}
}
