package test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

// scheduler allocates claims by the scheduler's own allocator, with the features that a cluster has by default.
type scheduler struct {
	n      *node
	state  structured.AllocatedState
	cache  *cel.Cache
	class  *resourceapi.DeviceClass
	claims int
}

func newScheduler(n *node) *scheduler {
	return &scheduler{n: n,
		state: structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()},
		cache: cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}),
		class: &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "pegasus.dev"}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "pegasus.dev"`}}}}},
	}
}

func (s *scheduler) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{s.class}, nil
}

func (s *scheduler) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != s.class.Name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "deviceclasses"}, name)
	}
	return s.class, nil
}

// request has the contents of a claim.
type request struct {
	capacity   map[string]string // requested; the others by default
	parameters string            // opaque configuration, JSON
	count      int64             // 0: 1
}

// claim makes a claim.
func (s *scheduler) claim(w request) *resourceapi.ResourceClaim {
	s.claims++
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, q := range w.capacity {
		requests[resourceapi.QualifiedName(name)] = resource.MustParse(q)
	}
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", s.claims), Namespace: "team", UID: types.UID(fmt.Sprintf("0a0a0a0a-0000-4000-8000-%012d", s.claims))},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: s.class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount,
				Count: max(1, w.count), Capacity: &resourceapi.CapacityRequirements{Requests: requests}}}}}}}
	if w.parameters != "" {
		c.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "pegasus.dev", Parameters: runtime.RawExtension{Raw: []byte(w.parameters)}}}}}
	}
	return c
}

// allocate allocates a claim on the node, and reports whether there was room.
func (s *scheduler) allocate(claim *resourceapi.ResourceClaim) bool {
	t := s.n.t
	t.Helper()
	a, err := structured.NewAllocator(t.Context(), structured.Features{ConsumableCapacity: true, DeviceTaints: true, PrioritizedList: true}, s.state, s, s.n.slices(), s.cache)
	if err != nil {
		t.Fatal(err)
	}
	results, err := a.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		return false
	}
	for _, r := range results[0].Devices.Results {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		s.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		s.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
	claim.Status.Allocation = &results[0]
	s.n.api.put("resourceclaims", claim)
	return true
}

// free returns what a claim has allocated, and deletes the claim.
func (s *scheduler) free(claim *resourceapi.ResourceClaim) {
	for _, r := range claim.Status.Allocation.Devices.Results {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		s.state.AllocatedSharedDeviceIDs.Delete(structured.MakeSharedDeviceID(id, r.ShareID))
		s.state.AggregatedCapacity.Remove(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
	s.n.api.remove("resourceclaims", claim.Namespace, claim.Name)
}

// placed returns an allocated claim.
func (s *scheduler) placed(w request) *resourceapi.ResourceClaim {
	s.n.t.Helper()
	c := s.claim(w)
	if !s.allocate(c) {
		s.n.t.Fatalf("there is no room for %v", w)
	}
	return c
}

func capacity(credits, memory string) request {
	return request{capacity: map[string]string{"credits": credits, "memory": memory}}
}

// The scheduler sells no more than an accelerator has, of each capacity.
func TestScheduler(t *testing.T) {
	n := newNode(t, oneAccelerator)
	s := newScheduler(n)
	quarter := s.placed(capacity("256", "256Mi"))
	s.placed(capacity("640", "256Mi"))
	if s.allocate(s.claim(capacity("129", "2Mi"))) {
		t.Error("129 credits of 128 were sold")
	}
	if s.allocate(s.claim(capacity("64", "514Mi"))) {
		t.Error("514 MiB of 512 MiB were sold")
	}
	small := s.placed(capacity("128", "512Mi"))
	if s.allocate(s.claim(capacity("1", "2Mi"))) {
		t.Error("a credit of none was sold")
	}
	s.free(quarter)
	s.free(small)
	byDefault := s.placed(request{})
	consumed := byDefault.Status.Allocation.Devices.Results[0].ConsumedCapacity
	for name, want := range map[string]string{"credits": "256", "memory": "256Mi", "domains": "1"} {
		if q := consumed[resourceapi.QualifiedName(name)]; q.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s: got %s by default, want %s", name, q.String(), want)
		}
	}
	odd := s.placed(capacity("1", "3Mi"))
	if q := odd.Status.Allocation.Devices.Results[0].ConsumedCapacity["memory"]; q.Cmp(resource.MustParse("4Mi")) != 0 {
		t.Errorf("3 MiB: got %s, want 4Mi", q.String())
	}
}

// An accelerator has no more domains than max_domains, however small they are.
func TestSeats(t *testing.T) {
	s := newScheduler(newNode(t, oneAccelerator))
	for range 8 {
		s.placed(capacity("1", "2Mi"))
	}
	if s.allocate(s.claim(capacity("1", "2Mi"))) {
		t.Error("nine domains were placed on an accelerator of eight")
	}
}

// An accelerator with max_credits sells these, less the credits of a domain of the host that is tied to it, and the daemon
// refuses another domain by which the claims would get less than their floors.
func TestMaxCredits(t *testing.T) {
	n := newNode(t, strings.Replace(oneAccelerator, "max_domains = 8", "max_domains = 8\nmax_credits = 2048", 1)+"[[domain]]\nname = \"machine\"\ncredits = 512\naccelerator = \"soft0\"\n")
	s := newScheduler(n)
	if s.allocate(s.claim(capacity("1537", "64Mi"))) {
		t.Error("1537 credits of 1536 were sold")
	}
	all := s.placed(capacity("1536", "64Mi"))
	n.start(n.mustPrepare(all), nil, "/bin/busy", "--seconds", "3600", "--queue", "4", "--no-check", "--quiet")
	testkit.Eventually(t, "the claim's domain is entitled", func() bool { return n.domains()["k8s-"+string(all.UID)].Entitled == 1 })
	n.call(func(c *client.Client) error {
		fit, err := c.Fits(t.Context(), control.FitParams{Settings: map[string]string{"credits": "513"}})
		if err == nil && (fit[0].Fits || !strings.Contains(fit[0].Reasons[0], "2049 credits together, of max_credits = 2048")) {
			t.Errorf("513 credits beside 1536: %+v", fit)
		}
		return err
	})
}
