//go:build soak

package live

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pegasus/internal/testkit"
)

const (
	nodeName = "node1"
	home     = "/var/lib/live" // of the cluster's own files
)

// A cluster is a Kubernetes of one node.
type cluster struct {
	parts map[string]*part
}

// part is one of the cluster's programs.
type part struct {
	name string
	args []string
	cmd  *exec.Cmd
	done chan struct{}
}

// users are the cluster's parts and the administrator, whose tokens are their names.
var users = []struct{ token, user, group string }{
	{"admin", "admin", "system:masters"},
	{"kubelet", "system:node:" + nodeName, "system:nodes"},
	{"controllers", "system:kube-controller-manager", ""},
	{"scheduler", "system:kube-scheduler", ""},
}

//go:embed testdata/kubelet.yaml
var kubeletConfig string

//go:embed testdata/scheduler.yaml
var schedulerConfig string

//go:embed testdata/containerd.toml
var containerdConfig string

//go:embed testdata/network.json
var networkConfig string

func kubeconfig(token string) string { return filepath.Join(home, "kubeconfig-"+token) }

var theCluster = sync.OnceValues(startCluster)

// live returns the cluster, which the first test starts and all share.
func live(t testing.TB) *cluster {
	t.Helper()
	c, err := theCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.logs(t)
		}
	})
	return c
}

// logs shows what the tests' reader needs when a test fails.
func (c *cluster) logs(t testing.TB) {
	for _, args := range []string{"get pods -A -o wide", "get resourceclaims -A", "get events -A --sort-by=.lastTimestamp", "-n pegasus-system logs daemonset/pegasus --all-containers --tail 40"} {
		out, _ := c.kubectl("", strings.Fields(args)...)
		t.Logf("kubectl %s:\n%s", args, tail(out, 6000))
	}
	for name := range c.parts {
		text, _ := os.ReadFile(filepath.Join(home, name+".log"))
		t.Logf("%s:\n%s", name, tail(string(text), 1500))
	}
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }

func built(name string) string {
	dir := os.Getenv("PEGASUS_BUILD")
	if dir == "" {
		dir = "../../../build" // this module is below the one that is built there
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		panic(err)
	}
	return path
}

func write(name, text string) error {
	path := filepath.Join(home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func startCluster() (*cluster, error) {
	c := &cluster{parts: map[string]*part{}}
	begin := time.Now()
	if err := c.configure(); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		part  string
		args  []string
		check func() error
	}{
		{"etcd", []string{"--data-dir", home + "/etcd", "--unsafe-no-fsync", "--listen-client-urls", "http://127.0.0.1:2379",
			"--advertise-client-urls", "http://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "error"}, nil},
		{"kube-apiserver", []string{"--etcd-servers", "http://127.0.0.1:2379", "--bind-address", "0.0.0.0", "--secure-port", "443", "--advertise-address", nodeAddress,
			"--cert-dir", home + "/pki", "--service-account-key-file", home + "/service.key", "--service-account-signing-key-file", home + "/service.key",
			"--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.96.0.0/24", "--token-auth-file", home + "/tokens.csv",
			"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--endpoint-reconciler-type", "none",
			"--kubelet-preferred-address-types", "InternalIP", "--allow-privileged"}, func() error { _, err := c.kubectl("", "get", "--raw", "/readyz"); return err }},
		{"kube-controller-manager", []string{"--kubeconfig", kubeconfig("controllers"), "--authentication-kubeconfig", kubeconfig("controllers"), "--authorization-kubeconfig", kubeconfig("controllers"),
			"--root-ca-file", home + "/pki/apiserver.crt", "--service-account-private-key-file", home + "/service.key", "--leader-elect=false", "--kube-api-qps", "1000", "--kube-api-burst", "2000"}, func() error {
			_, err := c.kubectl("", "create", "clusterrolebinding", "controllers", "--clusterrole", "cluster-admin", "--user", "system:kube-controller-manager")
			return err
		}},
		{"kube-scheduler", []string{"--config", home + "/scheduler.yaml", "--authentication-kubeconfig", kubeconfig("scheduler"), "--authorization-kubeconfig", kubeconfig("scheduler")}, nil},
		{"containerd", []string{"--config", home + "/containerd.toml"}, func() error { return exec.Command(built("kubernetes/ctr"), "-n", "k8s.io", "version").Run() }},
	} {
		if err := c.start(step.part, step.args...); err != nil {
			return nil, err
		}
		if step.check != nil {
			if err := await(step.part, step.check); err != nil {
				return nil, err
			}
		}
	}
	if err := importImages(); err != nil {
		return nil, err
	}
	err := c.start("kubelet", "--config", home+"/kubelet.yaml", "--kubeconfig", kubeconfig("kubelet"), "--hostname-override", nodeName, "--node-ip", nodeAddress, "--cert-dir", home+"/kubelet-pki")
	if err == nil {
		err = await("node", func() error {
			_, err := c.kubectl("", "wait", "--for=condition=Ready", "--timeout=1s", "node/"+nodeName)
			return err
		})
	}
	if err == nil {
		err = await("default service account", func() error { _, err := c.kubectl("", "get", "serviceaccount", "default"); return err })
	}
	if err == nil {
		fmt.Printf("The cluster is ready after %.1f s.\n", time.Since(begin).Seconds())
	}
	return c, err
}

// await repeats a check until it succeeds.
func await(what string, check func() error) error {
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s not ready after two minutes: %w", what, err)
}

// configure writes the files of the cluster's programs.
func (c *cluster) configure() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	files := map[string]string{
		"service.key":       string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"kubelet.yaml":      kubeletConfig,
		"scheduler.yaml":    schedulerConfig,
		"containerd.toml":   containerdConfig,
		"cni/pods.conflist": networkConfig,
	}
	for _, u := range users {
		files["tokens.csv"] += fmt.Sprintf("%s,%s,%s,%s\n", u.token, u.user, u.token, u.group)
		files["kubeconfig-"+u.token] = fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: live, cluster: {server: "https://127.0.0.1", insecure-skip-tls-verify: true}}]
users: [{name: user, user: {token: %s}}]
contexts: [{name: live, context: {cluster: live, user: user}}]
current-context: live
`, u.token)
	}
	for name, text := range files {
		if err := write(name, text); err != nil {
			return err
		}
	}
	return nil
}

// start starts a part, or starts it again. All parts of Kubernetes are one program.
func (c *cluster) start(name string, args ...string) error {
	p := &part{name: name, args: args, done: make(chan struct{})}
	program := built("kubernetes/kubernetes")
	if name == "containerd" || name == "kwok" {
		program = built("kubernetes/" + name)
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Args[0] = name
	p.cmd.Env = append(os.Environ(), "PATH="+built("kubernetes")+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	log, err := os.OpenFile(filepath.Join(home, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%w; run `make kubernetes` first", err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	c.parts[name] = p
	return nil
}

// restart kills a part and starts it again.
func (c *cluster) restart(t testing.TB, name string) {
	t.Helper()
	p := c.parts[name]
	p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
	if err := c.start(name, p.args...); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl as the administrator, with some standard input.
func (c *cluster) kubectl(input string, args ...string) (string, error) {
	cmd := exec.Command(built("kubernetes/kubernetes"), args...)
	cmd.Args[0] = "kubectl"
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig("admin"))
	cmd.Stdin = strings.NewReader(input)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), err
}

func (c *cluster) must(t testing.TB, input string, args ...string) string {
	t.Helper()
	out, err := c.kubectl(input, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// get decodes objects of the API server.
func (c *cluster) get(t testing.TB, into any, args ...string) {
	t.Helper()
	text := c.must(t, "", append(append([]string{"get"}, args...), "-o", "json")...)
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("kubectl get %q: %v", args, err)
	}
}

// eventually waits for what a busy node may need minutes for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testkit.Within(t, 3*time.Minute, what, ok)
}
