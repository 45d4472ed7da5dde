//go:build soak

package live

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/cluster/internal/render"
	"pegasus/internal/testkit"
)

const oneAccelerator = `[daemon]
libvirt = []
undeclared_domains = false
[default_domain]
arena = "16MiB"
[[accelerator]]
name = "soft0"
type = "soft"
cores = 1
memory = "1GiB"
`

const runtimeDir = "/run/pegasus"

// install installs the chart, or changes its values, and waits for the node's slice with the devices of the
// configuration. more has values beside the daemon's.
func (c *cluster) install(t testing.TB, daemon map[string]any, more ...map[string]any) {
	t.Helper()
	config, _ := daemon["config"].(string)
	devices := max(1, strings.Count(config, "[[accelerator]]"))
	c.apply(t, daemon, more...)
	eventually(t, "the driver publishes a slice", func() bool {
		var slices resourceapi.ResourceSliceList
		c.get(t, &slices, "resourceslices")
		return len(slices.Items) == 1 && len(slices.Items[0].Spec.Devices) == devices && len(slices.Items[0].Spec.Devices[0].Taints) == 0
	})
}

// apply installs the chart, or changes its values, and waits for its pods.
func (c *cluster) apply(t testing.TB, daemon map[string]any, more ...map[string]any) {
	t.Helper()
	values := map[string]any{"image": map[string]any{"repository": "pegasus.local/pegasus", "tag": "1"}, "daemon": daemon}
	if daemon["enabled"] == false {
		values["paths"] = map[string]any{"libraries": built("guest")}
	}
	for _, m := range more {
		maps.Copy(values, m)
	}
	objects, err := render.Chart("../../chart", values)
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl("", "create", "namespace", "pegasus-system")
	c.must(t, "", "label", "--overwrite", "namespace", "pegasus-system", "pod-security.kubernetes.io/enforce=privileged")
	c.must(t, strings.Join(objects, "\n---\n"), "apply", "--prune", "-l", "app.kubernetes.io/instance=pegasus", "-f", "-")
	c.must(t, "", "-n", "pegasus-system", "rollout", "status", "daemonset/pegasus", "--timeout=3m")
}

// pod is a pod of one container that has a claim.
type pod struct {
	c               *cluster
	namespace, name string
	program         string // shell command
	credits         int
	memory          string
	parameters      string // of the claim's DomainConfig, in YAML's flow form
}

func (p *pod) String() string { return p.namespace + "/" + p.name }

// begin creates the pod with its claim, by the restricted pod security standard, and deletes them with the test.
func (p *pod) begin(t testing.TB) *pod {
	t.Helper()
	if p.namespace == "" {
		p.namespace = "team"
	}
	config := ""
	if p.parameters != "" {
		config = "\n      config: [{requests: [gpu], opaque: {driver: pegasus.dev, parameters: " + p.parameters + "}}]"
	}
	p.c.kubectl("", "create", "namespace", p.namespace)
	p.c.must(t, "", "label", "--overwrite", "namespace", p.namespace, "pod-security.kubernetes.io/enforce=restricted")
	p.c.must(t, fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: pegasus.dev, capacity: {requests: {credits: "%[3]d", memory: %[4]s}}}%[5]s
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: %[1]s}]
  containers:
  - name: program
    image: %[6]s
    command: [/bin/sh, -c, %[7]q]
    resources: {claims: [{name: gpu}]}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`, p.name, p.namespace, p.credits, p.memory, config, programImage, p.program), "apply", "-f", "-")
	t.Cleanup(func() { p.end(t) })
	return p
}

// end deletes the pod, and waits until it is gone.
func (p *pod) end(t testing.TB) {
	t.Helper()
	if out, err := p.c.kubectl("", "-n", p.namespace, "delete", "--ignore-not-found", "--timeout=3m", "pod/"+p.name, "resourceclaimtemplate/"+p.name); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func (p *pod) phase(t testing.TB) corev1.PodPhase {
	t.Helper()
	var got corev1.Pod
	p.c.get(t, &got, "-n", p.namespace, "pod", p.name)
	return got.Status.Phase
}

// log returns what the pod has printed; nothing before its container runs.
func (p *pod) log() string {
	out, _ := p.c.kubectl("", "-n", p.namespace, "logs", p.name)
	return out
}

// reaches waits for a phase.
func (p *pod) reaches(t testing.TB, phase corev1.PodPhase) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %v is %s", p, phase), func() bool {
		now := p.phase(t)
		if now != phase && (now == corev1.PodFailed || now == corev1.PodSucceeded) {
			t.Fatalf("pod %v is %s, want %s; it printed:\n%s", p, now, phase, p.log())
		}
		return now == phase
	})
}

// event waits for an event of the pod whose message matches.
func (p *pod) event(t testing.TB, reason, pattern string) {
	t.Helper()
	messages := map[string]bool{}
	defer func() {
		if t.Failed() {
			t.Logf("events of %v: %v", p, messages)
		}
	}()
	eventually(t, fmt.Sprintf("pod %v has an event %s that matches %q", p, reason, pattern), func() bool {
		var events corev1.EventList
		p.c.get(t, &events, "-n", p.namespace, "events", "--field-selector", "involvedObject.name="+p.name)
		for _, e := range events.Items {
			messages[e.Reason+": "+e.Message] = true
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == reason && regexp.MustCompile(pattern).MatchString(e.Message)
		})
	})
}

// domainOf returns the name of the domain of the pod's claim.
func (p *pod) domainOf(t testing.TB) string {
	t.Helper()
	var got corev1.Pod
	p.c.get(t, &got, "-n", p.namespace, "pod", p.name)
	if len(got.Status.ResourceClaimStatuses) != 1 {
		t.Fatalf("pod %v has no claim: %+v", p, got.Status)
	}
	var claim resourceapi.ResourceClaim
	p.c.get(t, &claim, "-n", p.namespace, "resourceclaim", *got.Status.ResourceClaimStatuses[0].ResourceClaimName)
	return "k8s-" + string(claim.UID)
}

// domains returns the daemon's domains by name, and whether a daemon has answered.
func domains(t testing.TB) (map[string]control.Domain, bool) {
	t.Helper()
	d, err := client.Dial(runtimeDir + "/" + control.SocketName)
	if err != nil {
		return nil, false
	}
	defer d.Close()
	all, err := d.Domains(t.Context())
	byName := map[string]control.Domain{}
	for _, d := range all {
		byName[d.Name] = d
	}
	return byName, err == nil
}

// nothingIsLeft waits until domains, sockets, CDI files and records of claims are gone.
func (c *cluster) nothingIsLeft(t testing.TB) {
	t.Helper()
	var left []string
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(testkit.Soon / 100) {
		left = nil
		all, _ := domains(t)
		for name := range all {
			left = append(left, "domain "+name)
		}
		for _, dir := range []string{runtimeDir + "/domains", "/var/run/cdi", "/var/lib/kubelet/plugins/pegasus.dev/claims", "/var/lib/kubelet/plugins/pegasus.dev/devices"} {
			files, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // no claim was prepared yet
				t.Fatal(err)
			}
			for _, f := range files {
				left = append(left, dir+"/"+f.Name())
			}
		}
		mounts, _ := os.ReadFile("/proc/self/mountinfo")
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, "k8s-") {
				left = append(left, line)
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("left of pods that are gone: %q", left)
}
