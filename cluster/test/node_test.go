// Package test runs the kubelet plugin without a cluster: the driver as a process on its real sockets, called as the
// kubelet calls it; the scheduler's own allocator; a real daemon; and containers of runc with the edits of the CDI
// files. Only the API server is the tests' own. The tests need `make build cluster`, root and runc.
package test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv("PEGASUS_BUILD") == "" { // this module is below the one that is built there
		os.Setenv("PEGASUS_BUILD", "../../build")
	}
	os.Exit(m.Run())
}

const nodeName = "node1"

const oneAccelerator = `
[daemon]
libvirt = []
worker_pool = 1
[default_domain]
arena = "16MiB"
[[accelerator]]
name = "soft0"
type = "soft"
memory = "1GiB"
max_domains = 8
`

// node is a node with a daemon, a driver, and a kubelet of a few calls.
type node struct {
	t      testing.TB
	dir    string
	api    *apiServer
	daemon *exec.Cmd
	driver *exec.Cmd
	flags  []string // of the driver, in addition

	regions string // directory of regions; empty: none
}

// newNode starts a node, and ends it with the test.
func newNode(t testing.TB, config string, flags ...string) *node {
	t.Helper()
	n := bareNode(t, config)
	n.flags = flags
	n.startDaemon()
	n.startDriver()
	return n
}

// bareNode returns a node without a daemon and a driver, which the test removes at its end.
func bareNode(t testing.TB, config string) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the kubelet plugin and runc need root: run the test as root")
	}
	dir, err := os.MkdirTemp("", "pc") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // containers have other users
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, api: serveAPI(t)}
	n.api.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	n.write("pegasus.toml", config)
	n.write("kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`, n.api.URL))
	t.Cleanup(func() {
		n.stopDriver(syscall.SIGTERM)
		n.stopDaemon(syscall.SIGTERM)
		if n.regions != "" { // after the driver, which makes missing regions; their hubs end then
			os.RemoveAll(n.regions)
		}
		if t.Failed() {
			for _, log := range []string{"daemon.log", "driver.log", "launcher.log"} {
				text, _ := os.ReadFile(n.path(log))
				t.Logf("%s:\n%s", log, text[max(0, len(text)-8000):])
			}
		}
		os.RemoveAll(dir)
	})
	return n
}

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

func (n *node) write(name, text string) {
	n.t.Helper()
	if err := os.WriteFile(n.path(name), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// begin starts a program whose output goes to a log.
func (n *node) begin(log string, cmd *exec.Cmd) *exec.Cmd {
	n.t.Helper()
	f, err := os.OpenFile(n.path(log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	return cmd
}

func (n *node) startDaemon() {
	n.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(testkit.Built(n.t, "bin/pegasusd"), "--runtime-dir", n.path("run"), "--config", n.path("pegasus.toml"), "--ready-fd", "3")
	cmd.ExtraFiles = []*os.File{w}
	n.daemon = n.begin("daemon.log", cmd)
	w.Close()
	if text, err := bufio.NewReader(r).ReadString('\n'); text != "ready\n" {
		n.t.Fatalf("the daemon did not start: %q, %v", text, err)
	}
}

func (n *node) startDriver() {
	n.t.Helper()
	args := append([]string{"--kubeconfig", n.path("kubeconfig"), "--node", nodeName, "--kubelet", n.path("kubelet"), "--runtime-dir", n.path("run"),
		"--libraries", testkit.Built(n.t, "guest"), "--cdi", n.path("cdi"), "--interval", "100ms"}, n.flags...)
	n.driver = n.begin("driver.log", exec.Command(testkit.Built(n.t, "cluster/pegasus-dra"), args...))
}

func (n *node) stopDaemon(how syscall.Signal) { n.daemon = stop(n.daemon, how) }
func (n *node) stopDriver(how syscall.Signal) { n.driver = stop(n.driver, how) }

func stop(cmd *exec.Cmd, how syscall.Signal) *exec.Cmd {
	if cmd != nil {
		cmd.Process.Signal(how)
		cmd.Wait()
	}
	return nil
}

// call calls the daemon.
func (n *node) call(f func(*client.Client) error) {
	n.t.Helper()
	c, err := client.Dial(n.path("run", control.SocketName))
	if err == nil {
		defer c.Close()
		err = f(c)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// domains returns the daemon's domains by name.
func (n *node) domains() map[string]control.Domain {
	n.t.Helper()
	byName := map[string]control.Domain{}
	n.call(func(c *client.Client) error {
		all, err := c.Domains(n.t.Context())
		for _, d := range all {
			byName[d.Name] = d
		}
		return err
	})
	return byName
}

// slices waits for the node's slices.
func (n *node) slices() []*resourceapi.ResourceSlice {
	n.t.Helper()
	testkit.Eventually(n.t, "the driver publishes a slice", func() bool { return len(n.api.slices()) > 0 })
	return n.api.slices()
}

// dial connects to a socket of the driver's, as soon as there is one.
func (n *node) dial(path string) *grpc.ClientConn {
	n.t.Helper()
	testkit.Eventually(n.t, "the socket "+path+" exists", func() bool { _, err := os.Stat(path); return err == nil })
	c, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	return c
}

// register does the kubelet's part of the registration, and returns the driver's service.
func (n *node) register() dra.DRAPluginClient {
	n.t.Helper()
	r := registration.NewRegistrationClient(n.dial(n.path("kubelet", "plugins_registry", "pegasus.dev-reg.sock")))
	info, err := r.GetInfo(n.t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatal(err)
	}
	if info.Type != registration.DRAPlugin || info.Name != "pegasus.dev" || !slices.Contains(info.SupportedVersions, dra.DRAPluginService) {
		n.t.Fatalf("the driver registers as %v", info)
	}
	if _, err := r.NotifyRegistrationStatus(n.t.Context(), &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		n.t.Fatal(err)
	}
	return dra.NewDRAPluginClient(n.dial(info.Endpoint))
}

// prepare calls the driver for a claim and returns the CDI devices.
func (n *node) prepare(claim *resourceapi.ResourceClaim) ([]string, error) {
	n.t.Helper()
	q := &dra.NodePrepareResourcesRequest{Claims: []*dra.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}}}
	answer, err := n.register().NodePrepareResources(n.t.Context(), q, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	p := answer.Claims[string(claim.UID)]
	if p.GetError() != "" {
		return nil, errors.New(p.GetError())
	}
	var ids []string
	for _, d := range p.GetDevices() {
		ids = append(ids, d.CdiDeviceIds...)
	}
	return ids, nil
}

func (n *node) mustPrepare(claim *resourceapi.ResourceClaim) []string {
	n.t.Helper()
	ids, err := n.prepare(claim)
	if err != nil {
		n.t.Fatal(err)
	}
	return ids
}

func (n *node) unprepare(claim *resourceapi.ResourceClaim) {
	n.t.Helper()
	q := &dra.NodeUnprepareResourcesRequest{Claims: []*dra.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}}}
	answer, err := n.register().NodeUnprepareResources(n.t.Context(), q, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatal(err)
	}
	if p, ok := answer.Claims[string(claim.UID)]; !ok || p.Error != "" {
		n.t.Fatalf("unprepare %s: %v", claim.Name, answer)
	}
}

// leftovers returns all that is left of claims: domains, sockets, files and mounts.
func (n *node) leftovers() (left []string) {
	for name := range n.domains() {
		left = append(left, "domain "+name)
	}
	for _, dir := range []string{"run/domains", "cdi", "kubelet/plugins/pegasus.dev/claims", "kubelet/plugins/pegasus.dev/devices"} {
		files, _ := filepath.Glob(n.path(dir, "*"))
		left = append(left, files...)
	}
	if n.regions != "" {
		for _, pattern := range []string{"*", ".*/*", ".*.new"} {
			files, _ := filepath.Glob(filepath.Join(n.regions, pattern))
			left = append(left, slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == ".ports" || filepath.Base(f) == ".daemon" })...)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range bytes.Lines(mounts) {
		if bytes.Contains(line, []byte(n.dir)) {
			left = append(left, string(line))
		}
	}
	return left
}

// mustBeEmpty waits until nothing is left of claims.
func (n *node) mustBeEmpty() {
	n.t.Helper()
	var left []string
	deadline := time.Now().Add(testkit.Soon)
	for left = n.leftovers(); len(left) > 0 && time.Now().Before(deadline); left = n.leftovers() {
		time.Sleep(20 * time.Millisecond)
	}
	if len(left) > 0 {
		n.t.Errorf("left over: %q", left)
	}
}
