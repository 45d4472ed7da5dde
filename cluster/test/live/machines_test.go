//go:build soak

package live

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// launcherScript is what a container of the pod finds of its claim.
const launcherScript = `set -e
echo x | dd of=/dev/shm/pegasus/machine conv=notrunc
cmp -n 2 /dev/shm/pegasus/machine /dev/shm/pegasus-machine
until [ -S /dev/shm/pegasus/.ports/machine ]; do sleep 0.1; done
! touch /dev/shm/pegasus/.ports/x
/run/pegasus-hook/onDefineDomain --vmi "$VMI" --domain "$DOMAIN"
`

const (
	launcherVMI = `{"metadata":{"namespace":"team","name":"web","annotations":{"pegasus.dev/region":"32Mi"}},
"spec":{"evictionStrategy":"None","resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"launcher"}]}}`
	launcherDomain = `<domain type="kvm"><name>team_web</name><memory unit="b">1073741824</memory><os><type arch="x86_64" machine="q35">hvm</type></os>
<features><acpi></acpi></features><devices></devices></domain>`
)

// launcher is a pod as KubeVirt's controller makes it: the claim is the pod's, and none of its containers names it.
func launcher(name string) *corev1.Pod {
	const qemu = 107
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", Labels: map[string]string{"kubevirt.io": "virt-launcher"}, Annotations: map[string]string{"pegasus.dev/region": "32Mi"}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](0),
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("launcher")}},
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](qemu), RunAsGroup: ptr.To[int64](qemu), FSGroup: ptr.To[int64](qemu),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}}}
	for _, name := range []string{"compute", "hook-sidecar-0", "guest-console-log"} {
		c := corev1.Container{Name: name, Image: programImage, Command: []string{"/bin/sh", "-c", launcherScript}, Env: []corev1.EnvVar{{Name: "VMI", Value: launcherVMI}, {Name: "DOMAIN", Value: launcherDomain}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}
		switch name {
		case "compute":
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
		case "guest-console-log":
			c.Command[2] = "! test -e /run/pegasus-hook"
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// A pod as KubeVirt makes it for a machine gets the region by the admission policy of the chart, in the containers of
// libvirt and of the hook, where the hook adds it to the definition.
func TestLauncherPod(t *testing.T) {
	c := live(t)
	regions := strings.Replace(oneAccelerator, "[daemon]\n", "[daemon]\nregions = \"/dev/shm/pegasus\"\n", 1)
	c.install(t, map[string]any{"config": regions}, map[string]any{"machines": map[string]any{"enabled": true, "memory": "64Mi"}})
	c.kubectl("", "create", "namespace", "team")
	c.must(t, `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: launcher, namespace: team}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: pegasus.dev, capacity: {requests: {credits: "256", memory: 64Mi, region: 32Mi}}}
`, "apply", "-f", "-")
	t.Cleanup(func() { c.kubectl("", "-n", "team", "delete", "--ignore-not-found", "resourceclaimtemplate/launcher") })
	text, err := json.Marshal(launcher("virt-launcher-web"))
	if err != nil {
		t.Fatal(err)
	}
	claims := func(text string) map[string]int {
		var p corev1.Pod
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, c := range p.Spec.Containers {
			n[c.Name] = len(c.Resources.Claims)
		}
		return n
	}
	want := map[string]int{"compute": 1, "hook-sidecar-0": 1, "guest-console-log": 0}
	eventually(t, "the admission policy is in force", func() bool {
		return maps.Equal(claims(c.must(t, string(text), "create", "--dry-run=server", "-o", "json", "-f", "-")), want)
	})
	p := &pod{c: c, namespace: "team", name: "virt-launcher-web"}
	c.must(t, string(text), "create", "-f", "-")
	t.Cleanup(func() { p.end(t) })
	eventually(t, "the pod has ended", func() bool { now := p.phase(t); return now == corev1.PodSucceeded || now == corev1.PodFailed })
	for _, name := range []string{"compute", "hook-sidecar-0"} {
		out := c.must(t, "", "-n", "team", "logs", p.name, "-c", name)
		if !strings.Contains(out, "<path>/dev/shm/pegasus/machine</path>") {
			t.Errorf("container %s: %s", name, out)
		}
	}
	if now := p.phase(t); now != corev1.PodSucceeded {
		t.Errorf("the pod has %s", now)
	}
	p.end(t)
	eventually(t, "the region is removed", func() bool {
		left, err := filepath.Glob("/dev/shm/pegasus/*k8s-*")
		ports, _ := filepath.Glob("/dev/shm/pegasus/.ports/*")
		return err == nil && len(left)+len(ports) == 0
	})
	c.nothingIsLeft(t)

	var slices resourceapi.ResourceSliceList
	c.get(t, &slices, "resourceslices")
	if q := slices.Items[0].Spec.Devices[0].Capacity["region"].Value; q.Cmp(resource.MustParse("64Mi")) != 0 {
		t.Errorf("capacity region: %s", q.String())
	}
	small := (&pod{c: c, name: "small-region", credits: 64, memory: "64Mi, region: 4Mi", program: "true"}).begin(t)
	small.event(t, "FailedPrepareDynamicResources", "capacity region = 4Mi: want a multiple of 2 MiB, from 16 MiB on")
}
