//go:build soak

package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"pegasus/cluster/driver"
	"pegasus/cluster/fleet"
)

// fleet runs pegasus fleet as the administrator.
func (c *cluster) fleet(args ...string) (out, errs string, err error) {
	var a, b bytes.Buffer
	cmd := exec.Command(built("bin/pegasus"), append([]string{"fleet", "--kubeconfig", kubeconfig("admin")}, args...)...)
	cmd.Stdout, cmd.Stderr = &a, &b
	err = cmd.Run()
	return a.String(), b.String(), err
}

// view returns the view of the cluster.
func (c *cluster) view(t testing.TB, args ...string) (f fleet.Fleet) {
	t.Helper()
	out, errs, err := c.fleet(append(args, "--json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &f)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	return f
}

// observed are the values by which the drivers serve metrics and write usage, and the page of the fleet runs.
var observed = map[string]any{
	"metrics": map[string]any{"enabled": true},
	"fleet":   map[string]any{"enabled": true},
	"usage":   map[string]any{"enabled": true, "interval": "10s"},
}

// A pod's measured share is in the view, which the API server's proxy and the page's pod give, and in its claim.
func TestView(t *testing.T) {
	c := live(t)
	c.install(t, map[string]any{"config": oneAccelerator}, observed)
	p := (&pod{c: c, name: "viewed", credits: 512, memory: "64Mi", program: "exec busy --seconds 36000 --queue 4 --quiet --no-check"}).begin(t)
	p.reaches(t, corev1.PodRunning)
	var f fleet.Fleet
	eventually(t, "the pod's share is in the view", func() bool {
		f = c.view(t)
		return len(f.Domains) == 1 && f.Domains[0].Share != nil && *f.Domains[0].Share > 0.9
	})
	if d := f.Domains[0]; d.Namespace != "team" || len(d.Pods) != 1 || d.Pods[0] != "viewed" || d.Credits != 512 || d.Floor != 0.5 {
		t.Errorf("domain: %+v", d)
	}
	if len(f.Hosts) != 1 || f.Hosts[0].Kept != fleet.Yes {
		t.Errorf("hosts: %+v", f.Hosts)
	}
	var claim resourceapi.ResourceClaim
	eventually(t, "the claim has the usage", func() bool {
		c.get(t, &claim, "-n", "team", "resourceclaim", f.Domains[0].Claim)
		u := driver.UsageIn(&claim)
		return u != nil && u.Share > 0.9 && u.Processes == 1
	})
	c.must(t, "", "-n", "pegasus-system", "rollout", "status", "deployment/pegasus-fleet", "--timeout=3m")
	forward := exec.Command(built("kubernetes/kubernetes"), "-n", "pegasus-system", "port-forward", "deployment/pegasus-fleet", "18080:8080")
	forward.Args[0] = "kubectl"
	forward.Env = append(forward.Environ(), "KUBECONFIG="+kubeconfig("admin"))
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		forward.Process.Signal(syscall.SIGKILL)
		forward.Wait()
	}()
	var text string
	eventually(t, "the page's pod has the view", func() bool {
		a, err := http.Get("http://localhost:18080/fleet")
		if err != nil {
			return false
		}
		defer a.Body.Close()
		all, err := io.ReadAll(a.Body)
		text = string(all)
		return err == nil && a.StatusCode == http.StatusOK && strings.Contains(text, `"claim":"`+claim.Name+`"`) && strings.Contains(text, `"shares_kept":"yes"`)
	})
	p.end(t)
	c.nothingIsLeft(t)
}

// A namespace's quota counts the devices of a class, and a class bounds the credits of a claim.
func TestQuota(t *testing.T) {
	c := live(t)
	c.install(t, map[string]any{"config": oneAccelerator}, map[string]any{"classes": []any{map[string]any{"name": "small.pegasus.dev", "maxCredits": 128, "maxMemory": "128Mi"}}})
	c.kubectl("", "create", "namespace", "limited")
	defer c.kubectl("", "delete", "namespace", "limited", "--wait=false")
	c.must(t, `apiVersion: v1
kind: ResourceQuota
metadata: {name: accelerators, namespace: limited}
spec: {hard: {small.pegasus.dev.deviceclass.resource.k8s.io/devices: "1", pegasus.dev.deviceclass.resource.k8s.io/devices: "0"}}
`, "apply", "-f", "-")
	claim := func(name, class, credits, memory string) string {
		return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s, namespace: limited}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %s, capacity: {requests: {credits: %s, memory: %s}}}}]}}
`, name, class, credits, memory)
	}
	eventually(t, "the class's bound is in force", func() bool {
		_, err := c.kubectl(claim("large", "small.pegasus.dev", `"129"`, "64Mi"), "create", "--dry-run=server", "-f", "-")
		return err != nil && strings.Contains(err.Error(), "a claim requests more than its class permits: small.pegasus.dev: credits = 129, at most 128")
	})
	eventually(t, "the quota is in force", func() bool {
		var q corev1.ResourceQuota
		c.get(t, &q, "-n", "limited", "resourcequota", "accelerators")
		return len(q.Status.Hard) == 2
	})
	if _, err := c.kubectl(claim("other", "pegasus.dev", "128", "64Mi"), "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), "exceeded quota: accelerators") {
		t.Errorf("a class with a quota of 0: %v", err)
	}
	c.must(t, claim("first", "small.pegasus.dev", "128", "128Mi"), "create", "-f", "-")
	if _, err := c.kubectl(claim("second", "small.pegasus.dev", "1", "2Mi"), "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), "exceeded quota: accelerators") {
		t.Errorf("a second device of a quota of 1: %v", err)
	}
	template := strings.NewReplacer("kind: ResourceClaim\n", "kind: ResourceClaimTemplate\n", "spec: {devices", "spec: {spec: {devices", "]}}\n", "]}}}\n").Replace(claim("template", "small.pegasus.dev", "128", "129Mi"))
	if _, err := c.kubectl(template, "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), "small.pegasus.dev: memory = 129Mi, at most 128Mi") {
		t.Errorf("a template beyond the class: %v", err)
	}
}

// An accelerator with max_credits sells these, less the credits of the host's own domain.
func TestMaxCredits(t *testing.T) {
	c := live(t)
	c.install(t, map[string]any{"config": oneAccelerator + "max_credits = 300\n[[domain]]\nname = \"machine\"\ncredits = 100\naccelerator = \"soft0\"\n"})
	eventually(t, "200 credits are sold", func() bool {
		var slices resourceapi.ResourceSliceList
		c.get(t, &slices, "resourceslices")
		q := slices.Items[0].Spec.Devices[0].Capacity["credits"].Value
		return q.Value() == 200
	})
}

const twoAccelerators = oneAccelerator + "[[accelerator]]\nname = \"soft1\"\ntype = \"soft\"\ncores = 1\nmemory = \"1GiB\"\n"

// Pods of a Deployment that crowd one accelerator are moved to the other one, which is idle.
func TestAdvice(t *testing.T) {
	c := live(t)
	c.install(t, map[string]any{"config": twoAccelerators}, observed)
	program := busy(c.stepsPerMs(t))
	c.kubectl("", "create", "namespace", "crowd")
	defer c.kubectl("", "delete", "namespace", "crowd", "--timeout=3m")
	c.must(t, fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: crowd, namespace: crowd}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: pegasus.dev, capacity: {requests: {credits: "256", memory: 64Mi}}}}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd, namespace: crowd}
spec:
  replicas: 2
  selector: {matchLabels: {app: crowd}}
  template:
    metadata: {labels: {app: crowd}, annotations: {pegasus.dev/movable: "true"}}
    spec:
      terminationGracePeriodSeconds: 0
      resourceClaims: [{name: gpu, resourceClaimTemplateName: crowd}]
      containers:
      - {name: program, image: %s, command: [/bin/sh, -c, %q], resources: {claims: [{name: gpu}]}}
`, programImage, program), "apply", "-f", "-")
	on := func() map[string]int {
		all := map[string]int{}
		f := c.view(t)
		for _, d := range f.Domains {
			if d.Share != nil && *d.Share > 0.3 {
				all[d.On]++
			}
		}
		return all
	}
	eventually(t, "both pods compute", func() bool { all := on(); return all["soft0"]+all["soft1"] == 2 })
	if all := on(); len(all) != 1 {
		t.Fatalf("the scheduler, which takes the first accelerator with room, has spread the pods: %v", all)
	}
	out, errs, err := c.fleet("--advise", "--window", "6s", "--apply", "--yes")
	t.Logf("%s%s", out, errs)
	if err != nil || !strings.Contains(errs, "claims moved: 1") {
		t.Fatal(err)
	}
	eventually(t, "each accelerator has one of the pods", func() bool { all := on(); return all["soft0"] == 1 && all["soft1"] == 1 })
	if rules := c.must(t, "", "get", "devicetaintrules", "-o", "name"); rules != "" {
		t.Errorf("taints are left: %s", rules)
	}
}
