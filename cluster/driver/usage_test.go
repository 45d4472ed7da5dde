package driver

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"pegasus/backend/control"
	"pegasus/cluster/claims"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// reported is a reporter of n claims at a fake API server, with the number of writes.
type reported struct {
	*Reporter
	t       *testing.T
	api     *fake.Clientset
	domains []control.Domain
	all     []*claims.Domain
	writes  int
}

func newReported(t *testing.T, n int) *reported {
	r := &reported{t: t, api: fake.NewClientset()}
	for i := range n {
		uid := types.UID(fmt.Sprintf("5e5e5e5e-0000-4000-8000-%012d", i))
		of := &claims.Domain{Namespace: "team", Claim: fmt.Sprint("claim-", i), UID: uid, Pool: "node1", Device: "soft0", Share: ptr.To(types.UID("share"))}
		r.all = append(r.all, of)
		r.domains = append(r.domains, control.Domain{Name: of.Name(), DomainShare: control.DomainShare{Credits: 256, Entitled: 0.25, Share: 0.25}, DomainMemory: control.DomainMemory{MemoryQuota: 1000}})
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: of.Claim, UID: uid}}
		c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: "nic.example.com", Pool: "p", Device: "d"}}
		if err := r.api.Tracker().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	r.api.PrependReactor("patch", "resourceclaims", func(a core.Action) (bool, runtime.Object, error) {
		if r.writes++; a.GetSubresource() != "status" {
			t.Errorf("the driver patches %v", a)
		}
		return false, nil, nil
	})
	r.Reporter = &Reporter{Driver: New(Config{RuntimeDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}), Client: r.api, Least: time.Minute}
	return r
}

// after reports at a time, and returns the number of writes.
func (r *reported) after(d time.Duration) int {
	r.t.Helper()
	r.writes = 0
	if err := r.report(r.t.Context(), noon.Add(d), r.domains, r.all); err != nil {
		r.t.Fatal(err)
	}
	return r.writes
}

func (r *reported) claim(i int) *resourceapi.ResourceClaim {
	r.t.Helper()
	c, err := r.api.ResourceV1().ResourceClaims("team").Get(r.t.Context(), fmt.Sprint("claim-", i), metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// A claim's usage is written once, then after changes of some points only, and once a minute at most. The object does not
// grow, and another driver's status stays.
func TestUsage(t *testing.T) {
	r := newReported(t, 1)
	if n := r.after(0); n != 1 {
		t.Fatalf("%d writes at first", n)
	}
	c := r.claim(0)
	u := UsageIn(c)
	if u == nil || u.Share != 0.25 || u.Domain != r.all[0].Name() || !u.At.Time.Equal(noon) || len(c.Status.Devices) != 2 || *c.Status.Devices[1].ShareID != "share" {
		t.Fatalf("usage %+v in %+v", u, c.Status)
	}
	size := c.Size()
	r.domains[0].Share = 0.29
	if n := r.after(2 * time.Minute); n != 0 {
		t.Errorf("%d writes after a change of 4 points", n)
	}
	r.domains[0].Share = 0.31
	if n := r.after(30 * time.Second); n != 0 {
		t.Errorf("%d writes within a minute", n)
	}
	if n := r.after(61 * time.Second); n != 1 {
		t.Errorf("%d writes after a change of 6 points", n)
	}
	r.domains[0].Memory = 60
	for i, want := range []int{1, 0, 0} {
		if n := r.after(time.Duration(3+2*i) * time.Minute); n != want {
			t.Errorf("look %d after a change of the memory: %d writes, want %d", i, n, want)
		}
	}
	if c := r.claim(0); c.Size() > size+20 || len(c.Status.Devices) != 2 || UsageIn(c).Memory != 60 || UsageIn(c).Share != 0.31 {
		t.Errorf("the claim has grown from %d to %d bytes: %+v", size, c.Size(), c.Status)
	}
}

// Many changes at once are written a few at a time, those first that have waited for longest; none is left out.
func TestUsageOfMany(t *testing.T) {
	r := newReported(t, 23)
	for i, want := range []int{5, 5, 5, 5, 3, 0} {
		if n := r.after(time.Duration(i) * time.Second); n != want {
			t.Errorf("look %d: %d writes, want %d", i, n, want)
		}
	}
	for i := range r.domains {
		r.domains[i].Share = 0.9
	}
	for i := range 5 {
		r.after(2*time.Minute + time.Duration(i)*time.Second)
	}
	for i := range r.domains {
		if u := UsageIn(r.claim(i)); u == nil || u.Share != 0.9 {
			t.Errorf("claim %d: %+v", i, u)
		}
	}
	r.all = r.all[:1]
	if r.after(5 * time.Minute); len(r.wrote) != 1 {
		t.Errorf("%d claims are remembered, one is left", len(r.wrote))
	}
}

// A claim that is gone is no error. Another error is returned, and the next attempt is a minute away.
func TestUsageErrors(t *testing.T) {
	r := newReported(t, 2)
	answer := error(apierrors.NewNotFound(schema.GroupResource{Resource: "resourceclaims"}, "x"))
	r.api.PrependReactor("patch", "resourceclaims", func(core.Action) (bool, runtime.Object, error) { r.writes++; return true, nil, answer })
	if n := r.after(0); n != 2 {
		t.Errorf("%d writes", n)
	}
	answer = apierrors.NewForbidden(schema.GroupResource{Resource: "resourceclaims"}, "x", nil)
	r.domains[0].Share = 0.9
	if err := r.report(t.Context(), noon.Add(2*time.Minute), r.domains, r.all); err == nil {
		t.Error("forbidden is no error")
	}
	if n := r.after(150 * time.Second); n != 0 {
		t.Errorf("%d writes half a minute after an error", n)
	}
	r.domains = nil // none is there
	if n := r.after(time.Hour); n != 0 {
		t.Errorf("%d writes without domains", n)
	}
}

// The text is bounded: the API admits 10 KiB.
func TestUsageSize(t *testing.T) {
	u := usageOf(&control.Domain{Name: "k8s-5e5e5e5e-0000-4000-8000-000000000000", DomainMemory: control.DomainMemory{Memory: 1 << 62}, Processes: 1 << 30}, noon)
	if text, err := json.Marshal(u); err != nil || len(text) > 400 {
		t.Errorf("%d bytes: %s, %v", len(text), text, err)
	}
}
