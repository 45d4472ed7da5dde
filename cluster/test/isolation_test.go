package test

import (
	"os"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
)

// A container reaches its own domain alone: not another's, not the control socket, and not the host's files.
func TestIsolation(t *testing.T) {
	n := newNode(t, oneAccelerator)
	s := newScheduler(n)
	mine, theirs := s.placed(request{}), s.placed(request{})
	ids := n.mustPrepare(mine)
	n.mustPrepare(theirs)
	other := n.path("run/domains", "k8s-"+string(theirs.UID), "sock")

	asRoot := func(command string) (string, error) { return n.run(ids, nil, "/bin/sh", "-c", command) }
	out, err := asRoot(`busybox env; busybox ls -a /run /run/pegasus-domain; busybox cat /proc/self/mountinfo`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, secret := range []string{string(theirs.UID), "control.sock", "state.json", n.path("run/workers")} {
		if strings.Contains(out, secret) {
			t.Errorf("the container has %s:\n%s", secret, out)
		}
	}
	if !strings.Contains(out, "PEGASUS_DOMAIN=k8s-"+string(mine.UID)) {
		t.Errorf("the container's environment:\n%s", out)
	}
	for about, command := range map[string]string{
		"connect to another domain":         "PEGASUS_SOCKET=" + other + " /bin/vectoradd",
		"connect by a path upwards":         "PEGASUS_SOCKET=/run/pegasus-domain/../k8s-" + string(theirs.UID) + "/sock /bin/vectoradd",
		"connect to the control socket":     "PEGASUS_SOCKET=" + n.path("run/control.sock") + " /bin/vectoradd",
		"connect upwards to the control":    "PEGASUS_SOCKET=/run/pegasus-domain/../../control.sock /bin/vectoradd",
		"remove the socket":                 "busybox rm -f /run/pegasus-domain/sock && ! busybox test -e /run/pegasus-domain/sock",
		"replace the socket":                "busybox ln -sf " + other + " /run/pegasus-domain/sock",
		"make a file beside the socket":     "echo > /run/pegasus-domain/x",
		"write the library":                 "echo > /usr/lib64/libcuda.so.1",
		"write the monitoring library":      "echo > /usr/lib/libnvidia-ml.so.1",
		"mount the directory writable":      "busybox mount -o remount,rw,bind /run/pegasus-domain",
		"change the mode of the socket":     "busybox chmod 0600 /run/pegasus-domain/sock",
		"see a process of the host":         "busybox ps | busybox grep pegasusd | busybox grep -v grep",
		"another domain by the own process": "busybox ls /proc/1/root" + n.path("run"),
	} {
		if out, err := asRoot(command); err == nil {
			t.Errorf("%s: succeeded:\n%s", about, out)
		}
	}
	if _, err := os.Stat(n.path("run/domains", "k8s-"+string(mine.UID), "sock")); err != nil {
		t.Error(err)
	}
	n.mustCompute(ids, nil)
	without, err := n.run(nil, nil, "/bin/sh", "-c", "busybox ls /run/pegasus-domain || busybox ls /usr/lib64/libcuda.so.1")
	if err == nil {
		t.Errorf("a container without a claim has: %s", without)
	}
	// The domain of a container is that of its mount, whatever the container's environment has.
	n.mustCompute(ids, func(s *oci.Spec) { s.Process.Env = append(s.Process.Env, "PEGASUS_DOMAIN=k8s-"+string(theirs.UID)) })
	if calls := n.domains()["k8s-"+string(theirs.UID)].Calls; calls != 0 {
		t.Errorf("the other domain has %d calls", calls)
	}
}
