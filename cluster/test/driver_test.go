package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

// setting returns a setting of a claim's domain.
func (n *node) setting(claim *resourceapi.ResourceClaim, key string) (value string) {
	n.t.Helper()
	n.call(func(c *client.Client) error {
		d, err := c.Domain(n.t.Context(), "k8s-"+string(claim.UID))
		for _, s := range d.Settings {
			if s.Key == key {
				value = s.Value
			}
		}
		return err
	})
	return value
}

// A claim becomes a domain with the settings of the claim, in which containers compute: as root, and hardened. What the
// claim has taken is gone after it.
func TestClaim(t *testing.T) {
	n := newNode(t, oneAccelerator)
	s := newScheduler(n)
	w := capacity("256", "512Mi")
	w.parameters = `{"apiVersion":"pegasus.dev/v1","kind":"DomainConfig","slo":250,"priority":3,"deadline":"20ms","memoryGuarantee":"64Mi"}`
	claim := s.placed(w)
	ids := n.mustPrepare(claim)
	if again := n.mustPrepare(claim); !slices.Equal(ids, again) || len(ids) != 1 {
		t.Errorf("prepared twice: %q, then %q; want the same device", ids, again)
	}
	for key, want := range map[string]string{"credits": "256", "memory": `"512MiB"`, "memory_guarantee": `"64MiB"`, "slo": "250", "priority": "3",
		"deadline": `"20ms"`, "accelerator": `"soft0"`, "socket_mode": `"0666"`} {
		if got := n.setting(claim, key); got != want {
			t.Errorf("%s = %s, want %s", key, got, want)
		}
	}
	n.mustCompute(ids, nil)
	n.mustCompute(ids, hardened)
	n.unprepare(claim)
	n.unprepare(claim)
	n.mustBeEmpty()
}

// With a group, containers with a claim are members, and other users of the host can't connect.
func TestSocketGroup(t *testing.T) {
	n := newNode(t, oneAccelerator, "--socket-group", "4711")
	claim := newScheduler(n).placed(request{})
	ids := n.mustPrepare(claim)
	n.mustCompute(ids, hardened)
	out, err := n.run(ids, func(s *oci.Spec) { hardened(s); s.Process.User.AdditionalGids = nil }, "/bin/busybox", "id", "-G")
	if err != nil || strings.TrimSpace(out) != "1000 4711" {
		t.Errorf("groups in the container: %q, %v", out, err)
	}
	info, err := os.Stat(n.path("run/domains", "k8s-"+string(claim.UID), "sock"))
	if err != nil || info.Mode().Perm() != 0o660 || info.Sys().(*syscall.Stat_t).Gid != 4711 {
		t.Errorf("socket: %v, %v", info, err)
	}
}

// Several pods of one claim are one domain, which they share.
func TestSharedClaim(t *testing.T) {
	n := newNode(t, oneAccelerator)
	claim := newScheduler(n).placed(request{})
	ids := n.mustPrepare(claim)
	name := "k8s-" + string(claim.UID)
	n.start(ids, nil, "/bin/busy", "--seconds", "600")
	n.start(n.mustPrepare(claim), nil, "/bin/busy", "--seconds", "600")
	testkit.Eventually(t, "both containers' programs are processes of the domain", func() bool { return n.domains()[name].Processes == 2 })
	if all := n.domains(); len(all) != 1 {
		t.Errorf("domains: %v", all)
	}
}

// A claim that can't be prepared is refused by name, and leaves nothing.
func TestRefused(t *testing.T) {
	n := newNode(t, oneAccelerator+"\n[[accelerator]]\nname = \"soft1\"\ntype = \"soft\"\nmemory = \"256MiB\"\n")
	s := newScheduler(n)
	for _, c := range []struct {
		w    request
		want string
	}{
		{request{count: 2}, "it has 2 devices (gpu → soft"},
		{request{parameters: `{"apiVersion":"pegasus.dev/v1","kind":"DomainConfig","slo":2000}`}, "claim team/claim-2: DomainConfig of the claim: field slo: 2000: must be"},
		{request{parameters: `{"apiVersion":"pegasus.dev/v1","kind":"DomainConfig","sloo":200}`}, "field sloo: unknown"},
		{request{parameters: `{"apiVersion":"pegasus.dev/v1","kind":"DomainConfig","cpu":"50%"}`}, "field cpu: only a DeviceClass may give it"},
	} {
		claim := s.placed(c.w)
		if ids, err := n.prepare(claim); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %q, %v; want an error with %q", c.w, ids, err, c.want)
		}
		n.unprepare(claim) // as the kubelet does for a pod that never started
		s.free(claim)
	}
	n.mustBeEmpty()
}

// Claims survive restarts of driver and daemon, and the loss of CDI files, records of deleted claims and the daemon's
// state. Containers go on, and others begin.
func TestRestarts(t *testing.T) {
	n := newNode(t, oneAccelerator)
	s := newScheduler(n)
	claim := s.placed(request{})
	ids := n.mustPrepare(claim)
	name := "k8s-" + string(claim.UID)
	file := n.path("cdi", "pegasus.dev-claim_"+string(claim.UID)+".json")
	exists := func(path string) func() bool { return func() bool { _, err := os.Stat(path); return err == nil } }
	cmd, out := n.start(ids, nil, "/bin/sh", "-c", "while /bin/vectoradd --iterations 1; do :; done")
	testkit.Eventually(t, "the container computes", func() bool { return n.domains()[name].Calls > 0 })

	for range 3 {
		n.stopDriver(syscall.SIGKILL)
		n.startDriver()
		n.mustCompute(n.mustPrepare(claim), hardened)
		n.stopDaemon(syscall.SIGKILL)
		n.startDaemon()
		n.mustCompute(ids, hardened)
	}
	calls := n.domains()[name].Calls
	testkit.Eventually(t, "the container goes on", func() bool { return n.domains()[name].Calls > calls })
	if cmd.ProcessState != nil || strings.Contains(out.String(), "CUDA_ERROR") {
		t.Errorf("the container under restarts: %v\n%s", cmd.ProcessState, out)
	}

	os.RemoveAll(n.path("cdi")) // as after a restart of the host
	testkit.Eventually(t, "the lost CDI file is written", exists(file))
	n.mustCompute(ids, nil)

	// A restart of the host: nothing is left but the kubelet's directory.
	exec := n.container(nil, nil, "/bin/busybox", "true") // runc's state is in /run, too
	exec.Run()
	kill(t, n, cmd)
	n.stopDriver(syscall.SIGKILL)
	n.stopDaemon(syscall.SIGKILL)
	testkit.Eventually(t, "the workers have ended", func() bool { return !processes("--runtime-dir\x00" + n.path("run")) })
	os.RemoveAll(n.path("cdi"))
	os.RemoveAll(n.path("run"))
	n.startDaemon()
	n.startDriver()
	testkit.Eventually(t, "domain and CDI file are made again", func() bool { return exists(file)() && n.domains()[name].Name != "" })
	n.mustCompute(n.mustPrepare(claim), nil)

	// A claim that was deleted while the driver was away, and a domain that has lost its record.
	n.stopDriver(syscall.SIGTERM)
	s.free(claim)
	n.call(func(c *client.Client) error {
		_, err := c.Create(t.Context(), control.CreateParams{Domain: "k8s-abandoned", Holder: "pegasus.dev"})
		return err
	})
	n.write("cdi/pegasus.dev-claim_abandoned.json", "{}")
	n.startDriver()
	n.mustBeEmpty()
}

// kill ends a container with its processes.
func kill(t *testing.T, n *node, cmd interface{ Wait() error }) {
	t.Helper()
	states, _ := filepath.Glob(n.path("runc", "*", "state.json"))
	for _, state := range states {
		text, err := os.ReadFile(state)
		var s struct {
			Pid int `json:"init_process_pid"`
		}
		if err == nil && json.Unmarshal(text, &s) == nil && s.Pid > 0 {
			syscall.Kill(s.Pid, syscall.SIGKILL)
		}
	}
	cmd.Wait()
}

// processes reports whether a process has some text in its command line.
func processes(text string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(all, func(file string) bool {
		line, _ := os.ReadFile(file)
		return strings.Contains(string(line), text)
	})
}

// A hundred claims that are made and removed, eight at a time, leave nothing.
func TestNothingIsLeft(t *testing.T) {
	n := newNode(t, oneAccelerator)
	s := newScheduler(n)
	for range 25 {
		var claims []*resourceapi.ResourceClaim
		var all sync.WaitGroup
		for range 4 {
			claims = append(claims, s.placed(capacity("64", "32Mi")))
		}
		for i, c := range claims {
			all.Go(func() {
				ids, err := n.prepare(c)
				if err != nil {
					t.Error(err)
				} else if i == 0 {
					n.mustCompute(ids, hardened)
				}
			})
		}
		all.Wait()
		for _, c := range claims {
			all.Go(func() { n.unprepare(c) })
		}
		all.Wait()
		for _, c := range claims {
			s.free(c)
		}
	}
	n.mustBeEmpty()
	if writes := n.api.requests["POST resourceslices"] + n.api.requests["PUT resourceslices"]; writes > 3 {
		t.Errorf("the driver wrote slices %d times", writes)
	}
}

// A claim that is unprepared ends the use of the accelerator by processes that outlive their pod.
func TestUnprepareEndsUse(t *testing.T) {
	n := newNode(t, oneAccelerator)
	claim := newScheduler(n).placed(request{})
	n.start(n.mustPrepare(claim), nil, "/bin/busy", "--seconds", "600")
	testkit.Eventually(t, "the container computes", func() bool { return n.domains()["k8s-"+string(claim.UID)].Processes == 1 })
	n.unprepare(claim)
	n.mustBeEmpty()
}

// A claim that is allocated anew without having been unprepared becomes the domain of its new allocation.
func TestAllocatedAnew(t *testing.T) {
	n := newNode(t, oneAccelerator)
	s := newScheduler(n)
	claim := s.placed(capacity("256", "64Mi"))
	n.mustPrepare(claim)
	s.free(claim)
	claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests["credits"] = resource.MustParse("512")
	if !s.allocate(claim) {
		t.Fatal("there is no room")
	}
	n.mustCompute(n.mustPrepare(claim), nil)
	if got := n.setting(claim, "credits"); got != "512" {
		t.Errorf("credits = %s, want 512", got)
	}
}

// While the daemon is away, prepare names the daemon's place; the claim is prepared when the daemon is back.
func TestDaemonAway(t *testing.T) {
	n := newNode(t, oneAccelerator)
	s := newScheduler(n)
	claim := s.placed(request{})
	n.stopDaemon(syscall.SIGTERM)
	if _, err := n.prepare(claim); err == nil || !strings.Contains(err.Error(), "claim team/claim-1: daemon of "+n.path("run")) {
		t.Errorf("got %v", err)
	}
	n.unprepare(s.claim(request{})) // never prepared: the pod can go
	n.startDaemon()
	n.mustCompute(n.mustPrepare(claim), nil)
}
