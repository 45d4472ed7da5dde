package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"

	"pegasus/cluster/kubevirt/hooks"
	"pegasus/hypervisor/kvm"
	"pegasus/internal/testkit"
)

// qemuUser is the user and group of libvirt and QEMU in a virt-launcher pod.
const qemuUser = 107

// machineNode starts a node for virtual machines.
func machineNode(t testing.TB) *node {
	t.Helper()
	n := bareNode(t, oneCore)
	n.write("pegasus.toml", n.useRegions(oneCore))
	n.flags = []string{"--region-memory", "1Gi"}
	n.startDaemon()
	n.startDriver()
	return n
}

// useRegions returns a configuration with a directory of regions, which ends with the node.
func (n *node) useRegions(config string) string {
	n.t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pc")
	if err != nil {
		n.t.Fatal(err)
	}
	n.regions = dir
	return strings.Replace(config, "[daemon]\n", fmt.Sprintf("[daemon]\nregions = %q\n", dir), 1)
}

// machine returns a request for a machine with a region.
func machine(credits, region string) request {
	return request{capacity: map[string]string{"credits": credits, "memory": "64Mi", "region": region}}
}

// region returns the region of a claim.
func (n *node) region(claim *resourceapi.ResourceClaim) string {
	return filepath.Join(n.regions, "k8s-"+string(claim.UID))
}

// sidecar returns the change that makes a container one of the virt-launcher pod's hooks, with a directory of sockets.
func sidecar(t testing.TB, sockets string) func(*oci.Spec) {
	return func(s *oci.Spec) {
		s.Root.Readonly = true
		s.Process.User = oci.User{UID: qemuUser, GID: qemuUser}
		s.Process.Capabilities = &oci.LinuxCapabilities{}
		program, err := filepath.Abs(testkit.Built(t, "cluster/pegasus-kubevirt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range [][2]string{{sockets, "/var/run/kubevirt-hooks"}, {program, "/hook/pegasus-kubevirt"}} {
			s.Mounts = append(s.Mounts, oci.Mount{Destination: m[1], Type: "bind", Source: m[0], Options: []string{"rbind"}})
		}
	}
}

// vmi is the VirtualMachineInstance of the machine.
const vmi = `{"metadata":{"namespace":"default","name":"web","annotations":{"pegasus.dev/region":"128Mi","pegasus.dev/region-device":"DEVICE"}},
"spec":{"evictionStrategy":"None","resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"quarter"}]}}`

// hooked returns KubeVirt's definition as both forms of the hook change it, in containers with the claim's mounts.
func (n *node) hooked(ids []string, device kvm.Device) string {
	t := n.t
	t.Helper()
	vmi := strings.Replace(vmi, "DEVICE", string(device), 1)
	definition, err := os.ReadFile("../kubevirt/testdata/domain.xml")
	if err != nil {
		t.Fatal(err)
	}
	sockets := n.path("hooks")
	if err := os.Mkdir(sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(sockets, qemuUser, qemuUser); err != nil {
		t.Fatal(err)
	}
	change := sidecar(t, sockets)
	printed, err := n.container(ids, change, "/bin/sh", "-c", `exec /run/pegasus-hook/onDefineDomain "$@"`, "onDefineDomain", "--vmi", vmi, "--domain", string(definition)).Output()
	if err != nil {
		t.Fatalf("onDefineDomain: %v: %s", err, err.(*exec.ExitError).Stderr)
	}
	n.start(ids, change, "/hook/pegasus-kubevirt", "--version", "v1alpha3")
	socket := filepath.Join(sockets, "pegasus.sock")
	testkit.Eventually(t, "the hook serves", func() bool { _, err := os.Stat(socket); return err == nil })
	c, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	callbacks := hooks.NewCallbacksClient(c)
	answer, err := callbacks.OnDefineDomain(t.Context(), &hooks.OnDefineDomainParams{DomainXML: definition, Vmi: []byte(vmi)}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if string(answer.DomainXML) != string(printed) {
		t.Errorf("the program printed:\n%s\nthe service returned:\n%s", printed, answer.DomainXML)
	}
	if _, err := callbacks.Shutdown(context.WithoutCancel(t.Context()), &hooks.ShutdownParams{}); err != nil {
		t.Error(err)
	}
	return string(printed)
}

// hub returns the process that is the hub of a claim's region; 0: none.
func (n *node) hub(claim *resourceapi.ResourceClaim) (pid int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), "\x00hub\x00") && strings.Contains(string(text), n.region(claim)+"\x00") {
			fmt.Sscanf(file, "/proc/%d/", &pid)
		}
	}
	return pid
}

// A claim with a region gives a container of QEMU's user the region and the port, and the hook's container what the
// hook checks; the region outlives driver and daemon, and is made anew after a restart of the node.
func TestRegion(t *testing.T) {
	n := machineNode(t)
	s := newScheduler(n)
	claim, pod := s.placed(machine("256", "128Mi")), s.placed(request{})
	if s.allocate(s.claim(machine("64", "898Mi"))) {
		t.Error("898 MiB of 896 MiB were sold")
	}
	ids := n.mustPrepare(claim)
	n.mustPrepare(pod)
	region := n.region(claim)
	first, err := os.Lstat(region)
	if err != nil {
		t.Fatal(err)
	}
	if st := first.Sys().(*syscall.Stat_t); first.Mode() != 0o660 || st.Uid != 0 || st.Gid != qemuUser || st.Size != 128<<20 || st.Blocks < 128<<20/512 {
		t.Errorf("region: mode %v, owner %d:%d, %d bytes, %d blocks of 512", first.Mode(), st.Uid, st.Gid, st.Size, st.Blocks)
	}
	testkit.Eventually(t, "the region has a hub", func() bool { return n.hub(claim) != 0 })
	definition := n.hooked(ids, kvm.NVDIMM)
	for _, want := range []string{"<path>" + kvm.ContainerRegion + "</path>", "mode='connect' path='" + kvm.PortPath(kvm.ContainerRegion) + "'", "<size unit='KiB'>131072</size>"} {
		if !strings.Contains(definition, want) {
			t.Errorf("the definition has no %q:\n%s", want, definition)
		}
	}
	qemu := func(s *oci.Spec) {
		hardened(s)
		s.Process.User = oci.User{UID: qemuUser, GID: qemuUser}
	}
	const write = "echo x | busybox dd of=/dev/shm/pegasus/machine conv=notrunc && busybox cmp -n 2 /dev/shm/pegasus/machine /dev/shm/pegasus-machine && test -S /dev/shm/pegasus/.ports/machine && ! test -e /run/pegasus-domain"
	if out, err := n.run(ids, qemu, "/bin/sh", "-c", write); err != nil {
		t.Errorf("the user of QEMU: %v: %s", err, out)
	}
	for about, change := range map[string]func(*oci.Spec){"another user": hardened, "a container of a pod": nil} {
		claims := ids
		if change == nil {
			claims = n.mustPrepare(pod)
		}
		if out, err := n.run(claims, change, "/bin/sh", "-c", write); err == nil {
			t.Errorf("%s wrote the region: %s", about, out)
		}
	}

	n.stopDriver(syscall.SIGKILL)
	n.stopDaemon(syscall.SIGKILL)
	n.startDaemon()
	n.startDriver()
	n.mustPrepare(claim)
	syscall.Kill(n.hub(claim), syscall.SIGKILL)
	testkit.Eventually(t, "the region has another hub", func() bool { return n.hub(claim) != 0 })
	if now, err := os.Lstat(region); err != nil || !os.SameFile(first, now) {
		t.Errorf("the region was replaced: %v, %v", now, err)
	}

	n.stopDriver(syscall.SIGKILL) // a restart of the node
	n.stopDaemon(syscall.SIGKILL)
	if err := os.RemoveAll(n.regions); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the hub has ended", func() bool { return n.hub(claim) == 0 })
	os.RemoveAll(n.path("run"))
	os.RemoveAll(n.path("cdi"))
	n.startDaemon()
	n.startDriver()
	testkit.Eventually(t, "the region is made again, and has a hub", func() bool { return n.hub(claim) != 0 })
	if credits := n.setting(claim, "credits"); credits != "256" {
		t.Errorf("credits: got %s, want 256", credits)
	}

	n.unprepare(claim)
	n.unprepare(claim)
	n.unprepare(pod)
	testkit.Eventually(t, "the hub has ended", func() bool { return n.hub(claim) == 0 })
	n.mustBeEmpty()
}

// Claims that can't have a region are refused, and a region without a record is removed.
func TestRegionRefused(t *testing.T) {
	n := machineNode(t)
	s := newScheduler(n)
	refused := func(about string, claim *resourceapi.ResourceClaim, want string) {
		t.Helper()
		if ids, err := n.prepare(claim); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v; want an error with %q", about, ids, err, want)
		}
	}
	refused("a small region", s.placed(machine("1", "2Mi")), "capacity region = 2Mi: want a multiple of 2 MiB, from 16 MiB on")
	shared := s.placed(machine("1", "16Mi"))
	for _, pod := range []string{"one", "two"} {
		shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod})
	}
	n.api.put("resourceclaims", shared)
	refused("a claim of two pods", shared, "it is reserved for 2 pods (one, two), and a region is one machine's; name a template")
	if left := n.leftovers(); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}

	claim := s.placed(machine("1", "32Mi"))
	ids := n.mustPrepare(claim)
	truncate := func(s *oci.Spec) { hardened(s); s.Process.User = oci.User{UID: qemuUser, GID: qemuUser} }
	if out, err := n.run(ids, truncate, "/bin/sh", "-c", "echo > /dev/shm/pegasus/machine"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	refused("a truncated region", claim, "it is no file of 33554432 bytes")
	n.mustPrepare(s.placed(machine("1", "32Mi"))) // no other machine is affected
	n.unprepare(claim)
	if again := n.mustPrepare(claim); len(again) != 1 {
		t.Errorf("prepared again: %q", again)
	}

	n.stopDriver(syscall.SIGTERM)
	lost := filepath.Join(n.regions, "k8s-lost")
	for _, region := range []string{lost, filepath.Join(n.regions, "machine-of-the-host")} {
		if err := kvm.MakeContainerRegion(region, 16<<20, -1); err != nil {
			t.Fatal(err)
		}
	}
	n.startDriver()
	testkit.Eventually(t, "the region without a record is removed", func() bool { _, err := os.Lstat(lost); return err != nil })
	if _, err := os.Lstat(filepath.Join(n.regions, "machine-of-the-host")); err != nil {
		t.Error("another's region was removed")
	}
}

// Without a directory of regions, the daemon's configuration is named.
func TestNoRegions(t *testing.T) {
	n := newNode(t, oneAccelerator, "--region-memory", "1Gi")
	s := newScheduler(n)
	claim := s.placed(machine("1", "16Mi"))
	if ids, err := n.prepare(claim); err == nil || !strings.Contains(err.Error(), "the daemon has no directory of regions; set regions under [daemon]") {
		t.Errorf("got %q, %v", ids, err)
	}
	n.unprepare(claim)
	n.mustBeEmpty()
}
