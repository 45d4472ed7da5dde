package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pegasus/cluster/fleet"
	"pegasus/internal/testkit"
)

// driverPod returns the pod in which the node's driver would be, with its metrics at a port of this host.
func driverPod(address string) *corev1.Pod {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pegasus-system", Name: "pegasus-7", Labels: map[string]string{"app.kubernetes.io/name": "pegasus"}},
		Spec:   corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "daemon"}, {Name: "driver", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: int32(n)}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1"}}
}

// freeAddress returns an address of the loopback interface that is free now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// fleet runs pegasus fleet.
func (n *node) fleet(args ...string) (out string, err error) {
	cmd := exec.Command(testkit.Built(n.t, "bin/pegasus"), append([]string{"fleet", "--kubeconfig", n.path("kubeconfig")}, args...)...)
	testkit.Built(n.t, "cluster/pegasus-fleet") // which pegasus becomes
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	return string(text) + errs.String(), err
}

// view returns the view of the cluster.
func (n *node) view(args ...string) (f fleet.Fleet) {
	n.t.Helper()
	out, err := n.fleet(append(args, "--json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &f)
	}
	if err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	return f
}

// pegasus fleet shows the node with the claim's measured share, a domain that no claim has as the reason for which the
// floor is not kept, and a daemon that is away. It reads and does not write.
func TestFleet(t *testing.T) {
	address := freeAddress(t)
	n := newNode(t, oneAccelerator, "--metrics", address)
	n.api.put("pods", driverPod(address))
	n.api.put("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pegasus-system", Name: "other"}})
	s := newScheduler(n)
	claim := s.placed(capacity("1024", "512Mi"))
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "web-0", UID: "1"}}
	n.api.put("resourceclaims", claim)
	ids := n.mustPrepare(claim)
	n.start(ids, nil, "/bin/busy", "--seconds", "3600", "--queue", "4", "--no-check", "--quiet")
	writes := func() (all []string) {
		n.api.mu.Lock()
		defer n.api.mu.Unlock()
		for request, count := range n.api.requests {
			if !strings.HasPrefix(request, "GET ") {
				all = append(all, request+" "+strconv.Itoa(count))
			}
		}
		slices.Sort(all)
		return all
	}
	before := writes()
	var f fleet.Fleet
	t.Cleanup(func() {
		if out, _ := json.Marshal(f); t.Failed() {
			t.Logf("the last view: %s", out)
		}
	})
	testkit.Eventually(t, "the share is measured", func() bool {
		f = n.view()
		return len(f.Domains) == 1 && f.Domains[0].Share != nil && *f.Domains[0].Share > 0.9
	})
	d, a := f.Domains[0], f.Accelerators[0]
	if d.Claim != claim.Name || d.Namespace != "team" || !slices.Equal(d.Pods, []string{"web-0"}) || d.State != fleet.Present || *d.Entitled != 1 || d.Floor != 1 {
		t.Errorf("domain: %+v", d)
	}
	if a.Node != nodeName || a.Name != "soft0" || a.Credits != (fleet.Capacity{All: 1024, Sold: 1024}) || a.Memory.Sold != 512<<20 || a.Busy == nil || a.Policy != "accc" {
		t.Errorf("accelerator: %+v", a)
	}
	if len(f.Hosts) != 1 || f.Hosts[0].Kept != fleet.Yes || f.Hosts[0].Driver != "pegasus-7" {
		t.Errorf("hosts: %+v", f.Hosts)
	}
	if f := n.view("--direct"); len(f.Domains) != 1 || f.Domains[0].Share == nil {
		t.Errorf("direct: %+v", f)
	}
	n.outside("laptop")
	testkit.Eventually(t, "the host's own domain is the reason", func() bool {
		f = n.view()
		return f.Hosts[0].Kept == fleet.No && strings.Contains(strings.Join(f.Hosts[0].Reasons, "\n"), "domains without a claim (laptop) have 256 credits, so that team/"+claim.Name+" is entitled to 80.0 %, below its floor of 100.0 %")
	})
	n.page()
	if after := writes(); !slices.Equal(after, before) {
		t.Errorf("writes before: %q, after: %q", before, after)
	}
	n.stopDaemon(syscall.SIGKILL)
	if f = n.view(); f.Hosts[0].Kept != fleet.Unknown || !strings.Contains(f.Hosts[0].Reasons[0], "driver pegasus-7 does not answer") || f.Domains[0].State != fleet.Unmeasured {
		t.Errorf("without the daemon: %+v", f)
	}
	n.stopDriver(syscall.SIGKILL)
	if f = n.view(); f.Hosts[0].Kept != fleet.Unknown || !strings.Contains(f.Hosts[0].Reasons[0], "driver pegasus-7 does not answer: ") {
		t.Errorf("without the driver: %+v", f)
	}
	out, err := n.fleet()
	if err != nil || !strings.Contains(out, "shares are kept on 0 of 1 host\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// outside runs a program of a domain that no claim has, until the test ends.
func (n *node) outside(domain string) {
	n.t.Helper()
	cmd := n.begin("outside.log", exec.Command(testkit.Built(n.t, "bin/pegasus"), "run", "--runtime-dir", n.path("run"), "--domain", domain, "--",
		testkit.Built(n.t, "bench/busy"), "--seconds", "3600", "--queue", "4", "--no-check", "--quiet"))
	n.t.Cleanup(func() { stop(cmd, syscall.SIGKILL) })
}

// page serves the page, and reads it.
func (n *node) page() {
	n.t.Helper()
	cmd := exec.Command(testkit.Built(n.t, "cluster/pegasus-fleet"), "--kubeconfig", n.path("kubeconfig"), "--listen", "127.0.0.1:0")
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	defer stop(cmd, syscall.SIGTERM)
	line, err := bufio.NewReader(errs).ReadString('\n')
	m := regexp.MustCompile(`^the page is at (http://\S+/)\n$`).FindStringSubmatch(line)
	if m == nil {
		n.t.Fatalf("%q, %v", line, err)
	}
	for path, part := range map[string]string{"": "/page/fleet.js", "fleet": `"domain":"laptop"`, "page/dom.js": "export"} {
		a, err := http.Get(m[1] + path)
		if err != nil {
			n.t.Fatal(err)
		}
		text, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err != nil || a.StatusCode != http.StatusOK || !strings.Contains(string(text), part) {
			n.t.Errorf("%s: %v, %s, %.300s", path, err, a.Status, text)
		}
	}
}

// The advice runs over the recorded demand of a real daemon, and finds nothing to move on a single accelerator.
func TestFleetAdvice(t *testing.T) {
	address := freeAddress(t)
	n := newNode(t, oneAccelerator, "--metrics", address)
	n.api.put("pods", driverPod(address))
	s := newScheduler(n)
	for range 2 {
		n.start(n.mustPrepare(s.placed(capacity("256", "64Mi"))), nil, "/bin/busy", "--seconds", "3600", "--queue", "4", "--no-check", "--quiet")
	}
	var a *fleet.Advice
	testkit.Eventually(t, "the demand of both domains is recorded", func() bool {
		if a = n.view("--advise", "--window", "0s").Advice; a == nil {
			t.Fatal("no advice")
		}
		return strings.Contains(strings.Join(a.Notes, "\n"), "1 accelerator with more demand than time, and no free place")
	})
	if len(a.Moves) > 0 {
		t.Errorf("moves: %+v", a.Moves)
	}
	if out, err := n.fleet("--advise", "--window", "0s", "--apply"); err != nil || !strings.Contains(out, "there is no pod to evict") {
		t.Errorf("%v: %s", err, out)
	}
}

// Mistakes name the flag; a cluster that does not answer is an error.
func TestFleetErrors(t *testing.T) {
	n := bareNode(t, oneAccelerator)
	for args, want := range map[string]string{
		"--moves 3":                    "--moves goes with --advise",
		"--listen 0.0.0.0:80":          "must be an address of the loopback interface",
		"--runtime-dir /run":           "the command reads the cluster",
		"--kubeconfig /does/not/exist": "/does/not/exist",
		"surplus":                      "unexpected argument",
		"--context other":              `context "other" does not exist`,
	} {
		if out, err := n.fleet(strings.Fields(args)...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s", args, err, out)
		}
	}
	n.api.CloseClientConnections()
	n.api.Close()
	if out, err := n.fleet(); err == nil || !strings.Contains(out, "list slices: ") {
		t.Errorf("%v: %s", err, out)
	}
}

// As a plugin of kubectl, the program may be called with and without the command's name.
func TestFleetPlugin(t *testing.T) {
	n := bareNode(t, oneAccelerator)
	for _, args := range [][]string{{}, {"fleet"}} {
		cmd := exec.Command(testkit.Built(t, "cluster/kubectl-pegasus"), append(args, "--kubeconfig", n.path("kubeconfig"))...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "0 accelerators on 0 hosts") {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}
