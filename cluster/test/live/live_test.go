//go:build soak

package live

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// stepsPerMs returns the steps of the program busy that take a millisecond on this machine.
func (c *cluster) stepsPerMs(t testing.TB) int {
	t.Helper()
	p := (&pod{c: c, name: "calibrate", credits: 1024, memory: "64Mi", program: "busy --kernel-ms 5 --iterations 1 --json --quiet"}).begin(t)
	p.reaches(t, corev1.PodSucceeded)
	var report struct {
		Steps float64 `json:"steps"`
	}
	if err := json.Unmarshal([]byte(p.log()), &report); err != nil {
		t.Fatalf("%v: %s", err, p.log())
	}
	p.end(t)
	return max(1, int(report.Steps/5))
}

// busy returns a program that computes for ever, in kernels of 2 ms.
func busy(stepsPerMs int) string {
	return fmt.Sprintf("exec busy --seconds 36000 --queue 100 --steps %d --no-check --quiet", 2*stepsPerMs)
}

// Three pods get the accelerator's time by their claims. A fourth waits, with a reason that a person understands, until
// one of them has ended.
func TestShares(t *testing.T) {
	c := live(t)
	c.install(t, map[string]any{"config": oneAccelerator})
	program := busy(c.stepsPerMs(t))
	credits := map[string]float64{} // by domain
	var pods []*pod
	for _, n := range []int{128, 256, 512} {
		p := (&pod{c: c, name: fmt.Sprintf("share-%d", n), credits: n, memory: "64Mi", program: program}).begin(t)
		p.reaches(t, corev1.PodRunning)
		credits[p.domainOf(t)] = float64(n)
		pods = append(pods, p)
	}
	fourth := (&pod{c: c, name: "fourth", credits: 256, memory: "64Mi", program: "vectoradd --iterations 2 && sleep 600"}).begin(t)
	fourth.event(t, "FailedScheduling", "0/1 nodes are available: .*cannot allocate all claims")

	computed := func() (by map[string]float64, sum float64) {
		by = map[string]float64{}
		all, _ := domains(t)
		for name := range credits {
			by[name] = float64(all[name].Compute)
			sum += by[name]
		}
		return by, sum
	}
	eventually(t, "all pods compute", func() bool {
		by, _ := computed()
		for _, ns := range by {
			if ns < 1e9 {
				return false
			}
		}
		return true
	})
	before, sum := computed()
	eventually(t, "twenty seconds of engine time were used", func() bool { _, now := computed(); return now > sum+20e9 })
	after, now := computed()
	for name, n := range credits {
		got, want := (after[name]-before[name])/(now-sum), n/(128+256+512)
		t.Logf("%v credits: %.2f %%, want %.2f %%", n, 100*got, 100*want)
		if math.Abs(got-want) > 0.01 {
			t.Errorf("%v credits: got %.2f %% of the time, want %.2f %%", n, 100*got, 100*want)
		}
	}
	if phase := fourth.phase(t); phase != corev1.PodPending {
		t.Errorf("the fourth pod is %s", phase)
	}
	pods[2].end(t)
	fourth.reaches(t, corev1.PodRunning)
	eventually(t, "the fourth pod's result is right", func() bool { return strings.Contains(fourth.log(), "right") })
	fourth.end(t)
	for _, p := range pods {
		p.end(t)
	}
	c.nothingIsLeft(t)
}

// A pod that allocates more than its claim gets an error, and no other pod gets one.
func TestMemory(t *testing.T) {
	c := live(t)
	c.install(t, map[string]any{"config": oneAccelerator})
	const large = "vectoradd --size 16777216 --iterations 1 --quiet" // three vectors of 64 MiB
	other := (&pod{c: c, name: "other", credits: 256, memory: "512Mi", program: "for i in 1 2 3 4 5; do " + large + " || exit; done"}).begin(t)
	greedy := (&pod{c: c, name: "greedy", credits: 256, memory: "64Mi", program: large}).begin(t)
	greedy.reaches(t, corev1.PodFailed)
	if out := greedy.log(); !strings.Contains(out, "OUT_OF_MEMORY") {
		t.Errorf("192 MiB of 64 MiB: %s", out)
	}
	other.reaches(t, corev1.PodSucceeded)
	if out := other.log(); strings.Count(out, "right") != 5 {
		t.Errorf("192 MiB of 512 MiB, five times: %s", out)
	}
}

// A claim with a wrong field is refused by an event of the pod that names the field.
func TestWrongField(t *testing.T) {
	c := live(t)
	c.install(t, map[string]any{"config": oneAccelerator})
	for i, w := range []struct{ parameters, want string }{
		{`{apiVersion: pegasus.dev/v1, kind: DomainConfig, sloo: 200}`, "field sloo: unknown"},
		{`{apiVersion: pegasus.dev/v1, kind: DomainConfig, slo: 2000}`, "field slo: 2000: must be"},
		{`{apiVersion: pegasus.dev/v1, kind: DomainConfig, cpu: "50%"}`, "field cpu: only a DeviceClass may give it"},
		{`{apiVersion: pegasus.dev/v2, kind: DomainConfig}`, "apiVersion"},
		{`{apiVersion: pegasus.dev/v1, kind: DomainConfig, deadline: soon}`, "field deadline: .*soon"},
	} {
		p := (&pod{c: c, name: fmt.Sprintf("wrong-%d", i), credits: 64, memory: "64Mi", program: "true", parameters: w.parameters}).begin(t)
		p.event(t, "FailedPrepareDynamicResources", w.want)
		p.end(t)
	}
	c.nothingIsLeft(t)
}

// reach is what a pod tries in order to get beyond its domain. Each line that it prints is a success.
const reach = `
ls /run/pegasus 2>/dev/null && echo REACHED runtime directory
ls /proc/1/root/run/pegasus 2>/dev/null && echo REACHED runtime directory by its own root
for d in /proc/[0-9]*; do ls $d/root/run/pegasus 2>/dev/null && echo REACHED runtime directory of $d; done
for d in $(ls /run/pegasus-domain); do [ $d = sock ] || echo REACHED $d; done
touch /run/pegasus-domain/x 2>/dev/null && echo REACHED the domain directory for writing
rm -f /run/pegasus-domain/sock 2>/dev/null && echo REACHED the removal of the socket
mkdir /tmp/m 2>/dev/null && mount -t tmpfs x /tmp/m 2>/dev/null && echo REACHED mount
PEGASUS_SOCKET=/run/pegasus/control.sock vectoradd --iterations 1 2>/dev/null | grep -q right && echo REACHED the control socket
PEGASUS_SOCKET=/run/pegasus-domain/../pegasus/control.sock vectoradd --iterations 1 2>/dev/null | grep -q right && echo REACHED the control socket
for s in $(find / -xdev -name '*.sock' 2>/dev/null); do [ $s = /run/pegasus-domain/sock ] || echo REACHED $s; done
[ "$(ls /dev | grep -c nvidia)" = 0 ] || echo REACHED devices
vectoradd --iterations 1
`

// A pod reaches its own domain only.
func TestIsolation(t *testing.T) {
	c := live(t)
	c.install(t, map[string]any{"config": oneAccelerator})
	(&pod{c: c, name: "victim", credits: 64, memory: "64Mi", program: "exec busy --seconds 36000 --quiet --no-check"}).begin(t).reaches(t, corev1.PodRunning)
	p := (&pod{c: c, name: "curious", credits: 64, memory: "64Mi", program: reach}).begin(t)
	p.reaches(t, corev1.PodSucceeded)
	if out := p.log(); strings.Contains(out, "REACHED") || !strings.Contains(out, "right") {
		t.Errorf("the pod printed:\n%s", out)
	}
}
