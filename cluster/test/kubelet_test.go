package test

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"pegasus/internal/testkit"
)

const ownPod = "pegasus-system/pegasus-x7x7x"

// kubelet does the part of a kubelet's device manager: it registers plugins, watches their devices, allocates these to
// pods, and lists the devices of pods. It keeps allocations over its restarts, as the kubelet's checkpoint does.
type kubelet struct {
	deviceplugin.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer
	n       *node
	servers []*grpc.Server
	end     context.CancelFunc // of the watch of the devices

	mu        sync.Mutex
	plugin    deviceplugin.DevicePluginClient // nil: none has registered since the kubelet's start
	resource  string
	options   *deviceplugin.DevicePluginOptions
	devices   map[string]string // health by ID
	pods      map[string]*workload
	reading   bool // the pods have not been read since the kubelet's start
	lists     int  // that were served
	registers int
}

// workload is a pod on the node.
type workload struct {
	name       string
	containers []*allocated
}

// allocated is a container with devices.
type allocated struct {
	init   bool
	want   int
	ids    []string
	answer *deviceplugin.ContainerAllocateResponse
}

// newDeviceNode starts a node whose driver is a device plugin, and ends it with the test.
func newDeviceNode(t testing.TB, config string, flags ...string) (*node, *kubelet) {
	t.Helper()
	n := bareNode(t, config)
	n.flags = append([]string{"--device-plugin", "64", "--pod", ownPod}, flags...)
	k := &kubelet{n: n, pods: map[string]*workload{}}
	k.start()
	t.Cleanup(k.stop)
	n.startDaemon()
	n.startDriver()
	k.ready()
	return n, k
}

// start serves plugins, from a directory without sockets of earlier ones.
func (k *kubelet) start() {
	k.n.t.Helper()
	for _, dir := range []string{"device-plugins", "pod-resources"} {
		os.RemoveAll(k.n.path("kubelet", dir))
		if err := os.MkdirAll(k.n.path("kubelet", dir), 0o755); err != nil {
			k.n.t.Fatal(err)
		}
		l, err := net.Listen("unix", k.n.path("kubelet", dir, "kubelet.sock"))
		if err != nil {
			k.n.t.Fatal(err)
		}
		g := grpc.NewServer()
		deviceplugin.RegisterRegistrationServer(g, k)
		podresources.RegisterPodResourcesListerServer(g, k)
		k.servers = append(k.servers, g)
		go g.Serve(l)
	}
}

func (k *kubelet) stop() {
	for _, g := range k.servers {
		g.Stop()
	}
	k.servers = nil
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.end != nil {
		k.end()
	}
	k.plugin, k.devices, k.end = nil, nil, nil
}

// Register implements deviceplugin.RegistrationServer.
func (k *kubelet) Register(_ context.Context, q *deviceplugin.RegisterRequest) (*deviceplugin.Empty, error) {
	c, err := grpc.NewClient("unix:"+k.n.path("kubelet", "device-plugins", q.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	plugin := deviceplugin.NewDevicePluginClient(c)
	options, err := plugin.GetDevicePluginOptions(ctx, new(deviceplugin.Empty))
	if err == nil && (q.Version != deviceplugin.Version || options.PreStartRequired != q.Options.PreStartRequired) {
		err = errors.New("the registration differs from the plugin")
	}
	var list grpc.ServerStreamingClient[deviceplugin.ListAndWatchResponse]
	if err == nil {
		list, err = plugin.ListAndWatch(ctx, new(deviceplugin.Empty))
	}
	if err != nil {
		end()
		c.Close()
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugin, k.resource, k.options, k.devices, k.end = plugin, q.ResourceName, options, nil, end
	k.registers++
	go func() {
		defer c.Close()
		for {
			r, err := list.Recv()
			k.mu.Lock()
			if err != nil && k.plugin == plugin { // the kubelet's devices are unhealthy then
				k.plugin, k.devices = nil, nil
			}
			if err != nil {
				k.mu.Unlock()
				return
			}
			k.devices = map[string]string{}
			for _, d := range r.Devices {
				k.devices[d.ID] = d.Health
			}
			k.mu.Unlock()
		}
	}()
	return new(deviceplugin.Empty), nil
}

// List implements podresources.PodResourcesListerServer: the containers of each pod except its init containers.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	r := new(podresources.ListPodResourcesResponse)
	if k.reading {
		return r, nil
	}
	r.PodResources = append(r.PodResources, &podresources.PodResources{Namespace: filepath.Dir(ownPod), Name: filepath.Base(ownPod)})
	for _, p := range k.pods {
		of := &podresources.PodResources{Namespace: "team", Name: p.name}
		for _, c := range p.containers {
			if !c.init {
				of.Containers = append(of.Containers, &podresources.ContainerResources{Devices: []*podresources.ContainerDevices{
					{ResourceName: "example.com/other", DeviceIds: []string{"soft0-0"}}, {ResourceName: k.resource, DeviceIds: c.ids}}})
			}
		}
		r.PodResources = append(r.PodResources, of)
	}
	return r, nil
}

// health returns the numbers of devices by their health.
func (k *kubelet) health() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]int{}
	for _, h := range k.devices {
		all[h]++
	}
	return all
}

// ready waits for healthy devices.
func (k *kubelet) ready() {
	k.n.t.Helper()
	testkit.Eventually(k.n.t, "the plugin has registered with healthy devices", func() bool { return k.health()[deviceplugin.Healthy] > 0 })
}

// admit allocates devices to the containers of a pod, init containers first. Containers get the devices of earlier init
// containers first.
func (k *kubelet) admit(name string, containers ...*allocated) (*workload, error) {
	k.mu.Lock()
	plugin, pod := k.plugin, &workload{name: name}
	free := map[string]bool{}
	for id, h := range k.devices {
		free[id] = h == deviceplugin.Healthy
	}
	for _, p := range k.pods {
		for _, c := range p.containers {
			for _, id := range c.ids {
				free[id] = false
			}
		}
	}
	k.pods[name] = pod // pods are listed from before their admission on
	k.mu.Unlock()
	maps.DeleteFunc(free, func(_ string, is bool) bool { return !is })
	reusable := map[string]bool{}
	refuse := func(err error) (*workload, error) {
		k.finish(pod)
		return nil, err
	}
	if plugin == nil {
		return refuse(errors.New("no plugin has registered"))
	}
	for _, c := range containers {
		ids := slices.Collect(maps.Keys(reusable))
		ids = ids[:min(len(ids), c.want)]
		if len(ids) < c.want {
			q := &deviceplugin.ContainerPreferredAllocationRequest{AvailableDeviceIDs: append(slices.Collect(maps.Keys(free)), ids...), MustIncludeDeviceIDs: ids, AllocationSize: int32(c.want)}
			preferred, err := plugin.GetPreferredAllocation(k.n.t.Context(), &deviceplugin.PreferredAllocationRequest{ContainerRequests: []*deviceplugin.ContainerPreferredAllocationRequest{q}})
			if err != nil {
				return refuse(err)
			}
			ids = preferred.ContainerResponses[0].DeviceIDs
		}
		a, err := plugin.Allocate(k.n.t.Context(), &deviceplugin.AllocateRequest{ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: ids}}})
		if err != nil {
			return refuse(err)
		}
		for _, id := range ids {
			delete(free, id)
			if c.init {
				reusable[id] = true
			} else {
				delete(reusable, id)
			}
		}
		k.mu.Lock()
		c.ids, c.answer = ids, a.ContainerResponses[0]
		pod.containers = append(pod.containers, c)
		k.mu.Unlock()
	}
	return pod, nil
}

func (k *kubelet) mustAdmit(name string, containers ...*allocated) *workload {
	k.n.t.Helper()
	p, err := k.admit(name, containers...)
	if err != nil {
		k.n.t.Fatalf("pod %s: %v", name, err)
	}
	return p
}

// finish forgets a pod, whose containers have ended.
func (k *kubelet) finish(p *workload) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, p.name)
}

// enter calls the plugin for a container that starts.
func (k *kubelet) enter(c *allocated) error {
	k.mu.Lock()
	plugin := k.plugin
	k.mu.Unlock()
	if plugin == nil {
		return errors.New("no plugin has registered")
	}
	ids := slices.Clone(c.ids)
	slices.Reverse(ids) // in any order
	_, err := plugin.PreStartContainer(k.n.t.Context(), &deviceplugin.PreStartContainerRequest{DevicesIds: ids})
	return err
}

// container starts a container, as often as the kubelet does until it succeeds, and returns the command that runs it.
func (k *kubelet) container(c *allocated, command ...string) *exec.Cmd {
	k.n.t.Helper()
	var err error
	testkit.Eventually(k.n.t, "the plugin lets a container start", func() bool { err = k.enter(c); return err == nil })
	return k.n.container(nil, func(s *oci.Spec) {
		hardened(s)
		for name, value := range c.answer.Envs {
			s.Process.Env = append(s.Process.Env, name+"="+value)
		}
		for _, m := range c.answer.Mounts {
			options := []string{"rbind", "rprivate"}
			if m.ReadOnly {
				options = append(options, "ro")
			}
			s.Mounts = append(s.Mounts, oci.Mount{Source: m.HostPath, Destination: m.ContainerPath, Type: "bind", Options: options})
		}
	}, command...)
}

// mustCompute runs a program in a container that computes and checks its result.
func (k *kubelet) mustCompute(c *allocated, args ...string) {
	k.n.t.Helper()
	out, err := k.container(c, append([]string{"/bin/vectoradd", "--iterations", "2"}, args...)...).CombinedOutput()
	if err != nil || !right.Match(out) {
		k.n.t.Errorf("%v; the container's output:\n%s", err, out)
	}
}

// waitLists waits for further lists of the pods by the plugin.
func (k *kubelet) waitLists(further int) {
	k.n.t.Helper()
	lists := func() int { k.mu.Lock(); defer k.mu.Unlock(); return k.lists }
	from := lists()
	testkit.Within(k.n.t, time.Minute, "the plugin lists the pods", func() bool { return lists() >= from+further })
}
