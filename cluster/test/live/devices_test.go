//go:build soak

package live

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const credits = "pegasus.dev/credits-64"

// devicePod creates a pod whose init container and container have devices, and deletes it with the test.
func (c *cluster) devicePod(t testing.TB, name string, devices int, program string) *pod {
	t.Helper()
	p := &pod{c: c, namespace: "devices", name: name}
	c.kubectl("", "create", "namespace", p.namespace)
	c.must(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  terminationGracePeriodSeconds: 0
  initContainers:
  - name: prepare
    image: %[3]s
    command: [/bin/vectoradd, --iterations, "2"]
    resources: {limits: {%[4]s: %[5]d}}
  containers:
  - name: program
    image: %[3]s
    command: [/bin/sh, -c, %[6]q]
    resources: {limits: {%[4]s: %[5]d}}
`, name, p.namespace, programImage, credits, devices, program), "apply", "-f", "-")
	t.Cleanup(func() { p.end(t) })
	return p
}

// The device plugin serves the real kubelet: pods compute by their devices, go on while plugin and kubelet are killed,
// give their devices to the next pods, and leave nothing.
func TestDevicePlugin(t *testing.T) {
	c := live(t)
	c.apply(t, map[string]any{"config": oneAccelerator}, map[string]any{"devicePlugin": map[string]any{"enabled": true, "credits": 64}})
	eventually(t, "the node has 16 devices", func() bool {
		var node corev1.Node
		c.get(t, &node, "node", nodeName)
		n := node.Status.Allocatable[credits]
		return n.Value() == 16
	})
	const loop = "while vectoradd --iterations 1; do :; done; sleep 36000"
	large := c.devicePod(t, "large", 12, loop)
	small := c.devicePod(t, "small", 4, loop)
	large.reaches(t, corev1.PodRunning)
	small.reaches(t, corev1.PodRunning)
	c.devicePod(t, "next", 12, loop).event(t, "FailedScheduling", "Insufficient "+credits)
	all, _ := domains(t)
	if len(all) != 2 {
		t.Errorf("domains: %v", all)
	}
	for _, d := range all {
		if d.Credits != 768 && d.Credits != 256 {
			t.Errorf("domain %s has %d credits", d.Name, d.Credits)
		}
	}
	for range 3 {
		for _, pid := range drivers() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		c.restart(t, "kubelet")
		before, _ := domains(t)
		eventually(t, "the pods go on", func() bool {
			now, ok := domains(t)
			for name := range before {
				ok = ok && now[name].Calls > before[name].Calls
			}
			return ok && len(now) == 2
		})
	}
	large.end(t)
	next := &pod{c: c, namespace: "devices", name: "next"}
	next.reaches(t, corev1.PodRunning)
	eventually(t, "the next pod's result is right", func() bool { return strings.Contains(next.log(), "right") })
	if out := small.log(); strings.Contains(out, "CUDA_ERROR") {
		t.Errorf("pod %v saw an error: %s", small, out)
	}
	next.end(t)
	small.end(t)
	c.nothingIsLeft(t)
}
