package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

const twoAccelerators = oneAccelerator + `
[[accelerator]]
name = "soft1"
type = "soft"
memory = "1GiB"
max_domains = 8
`

// of returns the domain of a container with devices, and whether the daemon has it.
func (n *node) of(c *allocated) (d control.Domain, ok bool) {
	n.t.Helper()
	name := c.answer.Envs["PEGASUS_DOMAIN"]
	if _, ok = n.domains()[name]; ok {
		n.call(func(c *client.Client) (err error) { d, err = c.Domain(n.t.Context(), name); return err })
	}
	return d, ok
}

// settings returns the settings of a domain.
func settings(d control.Domain) map[string]string {
	all := map[string]string{}
	for _, s := range d.Settings {
		all[s.Key] = s.Value
	}
	return all
}

// The devices of a container are a domain on one accelerator, with credits and memory by their number. Containers compute
// in it, also when they start again, and when the pod has ended nothing is left of it.
func TestDevices(t *testing.T) {
	n, k := newDeviceNode(t, twoAccelerators)
	if k.resource != "pegasus.dev/credits-64" || !k.options.PreStartRequired || !k.options.GetPreferredAllocationAvailable || k.health()[deviceplugin.Healthy] != 32 {
		t.Fatalf("registered: %s, %v, %v", k.resource, k.options, k.health())
	}
	c := &allocated{want: 4}
	pod := k.mustAdmit("web", c)
	if all := n.domains(); len(all) != 0 {
		t.Errorf("domains before a container has started: %v", all)
	}
	k.mustCompute(c)
	d, _ := n.of(c)
	for key, want := range map[string]string{"credits": "256", "memory": `"256MiB"`, "memory_guarantee": `"256MiB"`, "accelerator": `"soft0"`, "socket_mode": `"0666"`} {
		if got := settings(d)[key]; got != want {
			t.Errorf("%s = %s, want %s", key, got, want)
		}
	}
	out, err := k.container(c, "/bin/vectoradd", "--size", "33554432", "--iterations", "1").CombinedOutput() // three vectors of 128 MiB
	if err == nil || !strings.Contains(string(out), "OUT_OF_MEMORY") {
		t.Errorf("384 MiB of 256 MiB: %v\n%s", err, out)
	}
	k.mustCompute(c)

	// The next pods fill an accelerator, and none lies on two.
	fill, alone := &allocated{want: 12}, &allocated{want: 5}
	pods := []*workload{pod, k.mustAdmit("fill", fill), k.mustAdmit("alone", alone)}
	k.mustCompute(fill)
	k.mustCompute(alone)
	for c, want := range map[*allocated]string{fill: `"soft0"`, alone: `"soft1"`} {
		if d, _ := n.of(c); settings(d)["accelerator"] != want || settings(d)["credits"] != fmt.Sprint(64*c.want) {
			t.Errorf("%d devices are a domain with %v; want accelerator %s", c.want, settings(d), want)
		}
	}
	if _, err := k.admit("large", &allocated{want: 12}); err == nil || !strings.Contains(err.Error(), "12 devices requested: a domain has one accelerator, and none has more than 11 available") {
		t.Errorf("a request beyond an accelerator: %v", err)
	}
	for _, p := range pods {
		k.finish(p)
	}
	n.mustBeEmpty()
}

// Devices that are given to the next pod at once leave the domain of the pod before: a process of it that is left loses
// the accelerator, and its memory is free.
func TestDevicesGivenOn(t *testing.T) {
	n, k := newDeviceNode(t, oneAccelerator, "--interval", "1h") // no list of pods: the kubelet's calls alone end the domain
	first := &allocated{want: 16}
	pod := k.mustAdmit("first", first)
	large := []string{"/bin/vectoradd", "--size", "67108864", "--quiet", "--iterations"} // three vectors of 256 MiB, of 1 GiB
	cmd := k.container(first, append(large, "1000000")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the first pod has its memory", func() bool { d, _ := n.of(first); return d.Memory >= 768<<20 })
	before, _ := n.of(first)
	k.finish(pod)

	next := &allocated{want: 16}
	pod = k.mustAdmit("next", next)
	if d, _ := n.of(next); d.Name != before.Name || d.Processes != 1 {
		t.Errorf("before the next pod's container: %+v", d)
	}
	k.mustCompute(next, "--size", "67108864")
	testkit.Eventually(t, "the process of the first pod has lost the accelerator", func() bool { d, _ := n.of(next); return d.Processes == 0 })
	k.finish(pod)

	// A pod with some of the devices, while the daemon is away when they are allocated.
	n.stopDaemon(syscall.SIGTERM)
	part := &allocated{want: 3}
	k.mustAdmit("part", part)
	n.startDaemon()
	k.mustCompute(part)
	if d, _ := n.of(part); len(n.domains()) != 1 || settings(d)["credits"] != "192" {
		t.Errorf("domains: %v; of the pod: %v", n.domains(), settings(d))
	}
}

// A container may get devices of an init container of its pod. Each has its own domain while it runs, also when the pod's
// containers begin anew. An init container whose units the kubelet does not list keeps its domain until they are allocated
// anew.
func TestDevicesOfInitContainers(t *testing.T) {
	n, k := newDeviceNode(t, oneAccelerator)
	prepare, same, app, beside := &allocated{init: true, want: 4}, &allocated{init: true, want: 4}, &allocated{want: 2}, &allocated{want: 3}
	pod := k.mustAdmit("staged", prepare, same, app, beside)
	alone := &allocated{init: true, want: 2}
	other := k.mustAdmit("init-alone", alone)
	for range 2 {
		k.mustCompute(prepare)
		k.mustCompute(same)
		if d, ok := n.of(prepare); !ok || settings(d)["credits"] != "256" {
			t.Errorf("domain of the init containers: %v", d)
		}
		k.mustCompute(app)
		k.mustCompute(beside)
		if _, ok := n.of(prepare); ok {
			t.Error("the domain of the init containers is left")
		}
		for c, want := range map[*allocated]string{app: "128", beside: "192"} {
			if d, _ := n.of(c); settings(d)["credits"] != want {
				t.Errorf("a container of the pod: %v; want %s credits", settings(d), want)
			}
		}
	}
	cmd := k.container(alone, "/bin/busy", "--seconds", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the init container computes", func() bool { d, _ := n.of(alone); return d.Processes == 1 })
	kill(t, n, cmd)
	testkit.Eventually(t, "the init container's process has ended", func() bool { d, _ := n.of(alone); return d.Processes == 0 })
	k.waitLists(10)
	k.mustCompute(alone) // the init container starts again
	k.finish(other)
	k.finish(pod)
	next := &allocated{want: 16}
	last := k.mustAdmit("next", next)
	testkit.Eventually(t, "the domain of the init container has ended", func() bool { _, ok := n.of(alone); return !ok })
	k.mustCompute(next)
	k.finish(last)
	n.mustBeEmpty()
}

// Pods go on while plugin, daemon and kubelet are killed, and others begin. A kubelet that has not read its pods yet ends
// no domain. A pod that ends while the plugin is away leaves nothing.
func TestDevicesRestarts(t *testing.T) {
	n, k := newDeviceNode(t, oneAccelerator)
	c := &allocated{want: 4}
	pod := k.mustAdmit("web", c)
	cmd := k.container(c, "/bin/sh", "-c", "while /bin/vectoradd --iterations 1; do :; done")
	out, err := os.Create(n.path("out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	registers := func() int { k.mu.Lock(); defer k.mu.Unlock(); return k.registers }
	calls := func() uint64 { d, _ := n.of(c); return d.Calls }
	for i := range 2 {
		next := &allocated{want: 2}
		from := registers()
		n.stopDriver(syscall.SIGKILL)
		n.startDriver()
		testkit.Eventually(t, "the new plugin registers", func() bool { return registers() == from+1 })
		k.ready()
		p := k.mustAdmit(fmt.Sprint("after-plugin-", i), next)
		k.mustCompute(next)
		k.mustCompute(c)
		k.finish(p)

		n.stopDaemon(syscall.SIGKILL)
		n.startDaemon()
		k.mustCompute(c)

		k.stop()
		k.mu.Lock()
		k.reading = true
		k.mu.Unlock()
		k.start()
		k.ready()
		k.waitLists(2 * 3)
		k.mu.Lock()
		k.reading = false
		k.mu.Unlock()
		before := calls()
		testkit.Eventually(t, "the pod goes on", func() bool { return calls() > before })
		k.mustCompute(c)
	}
	if text, _ := os.ReadFile(out.Name()); cmd.ProcessState != nil || strings.Contains(string(text), "CUDA_ERROR") {
		t.Errorf("the container under restarts: %v\n%s", cmd.ProcessState, text)
	}

	// A restart of the node: nothing is left but the kubelet's directory. The kubelet starts the container again.
	n.container(nil, nil, "/bin/busybox", "true").Run() // runc's state is in /run, too
	kill(t, n, cmd)
	n.stopDriver(syscall.SIGKILL)
	n.stopDaemon(syscall.SIGKILL)
	k.stop()
	testkit.Eventually(t, "the workers have ended", func() bool { return !processes("--runtime-dir\x00" + n.path("run")) })
	os.RemoveAll(n.path("run"))
	k.start()
	n.startDaemon()
	n.startDriver()
	k.ready()
	k.mustCompute(c)

	n.stopDriver(syscall.SIGTERM)
	if left, err := os.ReadDir(n.path("kubelet", "device-plugins")); err != nil || len(left) != 1 {
		t.Errorf("sockets after the plugin's end: %v, %v", left, err)
	}
	k.finish(pod)
	n.startDriver()
	n.mustBeEmpty()
}

// Devices are unhealthy while the daemon is away for long, and healthy when it is back.
func TestDevicesHealth(t *testing.T) {
	n, k := newDeviceNode(t, oneAccelerator)
	n.stopDaemon(syscall.SIGTERM)
	testkit.Within(t, 2*time.Minute, "the devices are unhealthy", func() bool { return k.health()[deviceplugin.Unhealthy] == 16 })
	if _, err := k.admit("web", &allocated{want: 1}); err == nil {
		t.Error("a pod got an unhealthy device")
	}
	n.startDaemon()
	testkit.Eventually(t, "the devices are healthy", func() bool { return k.health()[deviceplugin.Healthy] == 16 })
	c := &allocated{want: 1}
	k.finish(k.mustAdmit("web", c))
	n.mustBeEmpty()
}

// Credits of the daemon's own domains are not offered, and an accelerator that sells fewer than a device has is left out.
func TestDevicesDeclared(t *testing.T) {
	const more = `
[[accelerator]]
name = "soft1"
type = "soft"
memory = "256MiB"
max_credits = 100
[[domain]]
name = "host"
credits = 40
accelerator = "soft1"
`
	n, k := newDeviceNode(t, oneAccelerator+more)
	if all := k.health(); all[deviceplugin.Healthy] != 16 {
		t.Errorf("devices: %v", all)
	}
	testkit.Eventually(t, "the log has the reason", func() bool {
		log, _ := os.ReadFile(n.path("driver.log"))
		return strings.Contains(string(log), "soft1: it has 60 credits to sell, fewer than a device's 64")
	})
}

// A hundred pods that begin and end, four at a time, leave nothing.
func TestNothingIsLeftOfDevices(t *testing.T) {
	n, k := newDeviceNode(t, oneAccelerator)
	for round := range 25 {
		var all sync.WaitGroup
		for i := range 4 {
			c := &allocated{want: 1 + (round+i)%4}
			pod := k.mustAdmit(fmt.Sprintf("pod-%d-%d", round, i), c)
			all.Go(func() {
				if i == 0 {
					k.mustCompute(c)
				} else if err := k.enter(c); err != nil {
					t.Error(err)
				}
				k.finish(pod)
			})
		}
		all.Wait()
	}
	n.mustBeEmpty()
	if left, _ := filepath.Glob(n.path("kubelet/plugins/pegasus.dev/*/*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
