package fleet

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"pegasus/cluster/internal/golden"
	nodeslices "pegasus/cluster/slices"
)

// uneven returns a state of three nodes: four busy domains on the first, one on the second, whose accelerator is of the
// same model, and none on the third, which change may change.
func uneven(t *testing.T, change func(*nodeslices.Node)) *State {
	one := func(name string, busy, turn float64) figures {
		return figures{domain: "k8s-" + name, accelerator: "soft0", credits: 256, entitled: 0.25, share: 0.25, busy: busy, turn: turn, idle: 1 - busy - turn, engine: 10, calls: 5000}
	}
	slo := claim("d", "node1", "soft0", 256, "64Mi", "d-0")
	slo.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "pegasus.dev", Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"pegasus.dev/v1","kind":"DomainConfig","priority":3}`)}}}}}
	return &State{At: noon, Slices: []resourceapi.ResourceSlice{slice("node1", nil, "accc"), slice("node2", nil, "accc"), slice("node3", change, "accc")},
		Claims: []resourceapi.ResourceClaim{claim("a", "node1", "soft0", 256, "64Mi", "a-0"), claim("b", "node1", "soft0", 256, "64Mi", "b-0"),
			claim("c", "node1", "soft0", 256, "64Mi", "c-0"), slo, claim("e", "node2", "soft0", 512, "64Mi", "e-0")},
		Hosts: []HostState{
			{Node: "node1", Pod: "p1", Measured: measured(t, metrics("soft0=accc", one("a", 0.25, 0.75), one("b", 0.25, 0.65), one("c", 0.25, 0.25), one("d", 0.25, 0.75)))},
			{Node: "node2", Pod: "p2", Measured: measured(t, metrics("soft0=accc", one("e", 0.005, 0)))},
			{Node: "node3", Pod: "p3", Measured: measured(t, metrics("soft0=accc"))},
		}}
}

func advise(t *testing.T, s *State, most int) *Advice {
	t.Helper()
	var r Recorder
	r.Record(s)
	a, err := Advise(s, View(s), &r, most)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Claims are moved to where they even the load, and the simulator predicts that each domain uses more.
func TestAdvise(t *testing.T) {
	s := uneven(t, nil)
	a := advise(t, s, 2)
	a.Check(func(_, name string) (*corev1.Pod, error) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: ptr.To(true)}}}}
		if name == "a-0" {
			p.Annotations = map[string]string{MovableAnnotation: "true"}
		}
		return p, nil
	})
	f := View(s)
	f.Advice = a
	var b strings.Builder
	if err := Write(&b, f); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(b.String(), "\nadvice")
	golden.Text(t, "advice.txt", "advice"+text)
	if len(a.Moves) != 2 || a.Moves[0].From != (Place{"node1", "soft0"}) || a.Moves[0].To != (Place{"node3", "soft0"}) || a.Moves[1].From != a.Moves[0].From {
		t.Fatalf("moves: %+v", a.Moves)
	}
	for _, l := range a.Loads {
		for _, d := range l.Domains {
			if l.Node == "node1" && d.Before != nil && d.After != nil && d.After.Used <= d.Before.Used {
				t.Errorf("%s uses %.2f before and %.2f after the moves", d.Domain, d.Before.Used, d.After.Used)
			}
		}
	}
}

// A claim is moved to a place only if the place may take it and has its capacities free.
func TestAdviseRoom(t *testing.T) {
	for about, c := range map[string]struct {
		change func(*nodeslices.Node)
		on2    resourceapi.ResourceClaim // takes what node 2 has free
		want   int
	}{
		"room on both":        {nil, claim("f", "node2", "soft0", 1, "2Mi"), 2},
		"no memory on one":    {nil, claim("f", "node2", "soft0", 1, "960Mi"), 1},
		"no credits on one":   {nil, claim("f", "node2", "soft0", 512, "2Mi"), 1},
		"a taint on another":  {func(n *nodeslices.Node) { n.Away = "gone" }, claim("f", "node2", "soft0", 1, "2Mi"), 1},
		"a taint and no room": {func(n *nodeslices.Node) { n.Away = "gone" }, claim("f", "node2", "soft0", 512, "2Mi"), 0},
	} {
		s := uneven(t, c.change)
		s.Claims = append(s.Claims, c.on2)
		a := advise(t, s, 2)
		to := map[Place]bool{}
		for _, m := range a.Moves {
			to[m.To] = true
		}
		if len(to) != c.want {
			t.Errorf("%s: moves to %v, want to %d places", about, to, c.want)
		}
		if len(a.Moves) == 0 && !strings.Contains(strings.Join(a.Notes, "\n"), "1 accelerator with more demand than time, and no free place") {
			t.Errorf("%s: notes %q", about, a.Notes)
		}
	}
}

// A move that evens the load, and by which a domain at its target would get less than its floor, is not advised.
func TestAdviseHarm(t *testing.T) {
	s := uneven(t, func(n *nodeslices.Node) { n.Away = "gone" })
	e := s.Hosts[1].Measured.domain("k8s-e")
	e.Spent = Spent{Accelerator: 0.3, Idle: 0.7} // in short requests with pauses, beside one that always has work
	if a := advise(t, s, 2); len(a.Moves) > 0 {
		t.Errorf("moves: %+v", a.Moves)
	}
}

// Where each domain gets all of its demand, no claim is moved.
func TestAdviseNothing(t *testing.T) {
	s := uneven(t, nil)
	s.Hosts[0].Measured = measured(t, metrics("soft0=accc",
		figures{domain: "k8s-a", accelerator: "soft0", busy: 0.5, idle: 0.5}, figures{domain: "k8s-b", accelerator: "soft0", busy: 0.4, idle: 0.6}))
	a := advise(t, s, 2)
	if notes := strings.Join(a.Notes, "\n"); len(a.Moves) > 0 || !strings.Contains(notes, "no accelerator has more demand than time") {
		t.Errorf("moves %+v, notes %q", a.Moves, a.Notes)
	}
}

// Demand is of the recorded window: the mean length of the requests in it, and the mean parts of the time.
func TestRecorder(t *testing.T) {
	var r Recorder
	record := func(after time.Duration, f figures) {
		f.domain, f.accelerator = "k8s-a", "soft0"
		r.Record(&State{At: noon.Add(after), Hosts: []HostState{{Node: "n", Measured: measured(t, metrics("", f))}, {Node: "silent"}}})
	}
	record(0, figures{engine: 1, calls: 1000, busy: 0.2, turn: 0.8})
	record(time.Second, figures{engine: 3, calls: 2000, busy: 0.4, turn: 0.2, idle: 0.4})
	kernel, demand, ok := r.demand("n", "k8s-a")
	if !ok || kernel != 2*time.Millisecond || demand < 0.599 || demand > 0.601 {
		t.Errorf("got %v, %v, %v; want 2ms, 0.6", kernel, demand, ok)
	}
	record(2*time.Second, figures{engine: 0.5, calls: 100, busy: 0.6}) // another daemon
	record(3*time.Second, figures{engine: 1, calls: 200, busy: 0.6})
	if kernel, _, _ := r.demand("n", "k8s-a"); kernel != 5*time.Millisecond {
		t.Errorf("after the daemon has counted anew: got %v, want 5ms", kernel)
	}
	if _, _, ok := r.demand("silent", "k8s-a"); ok {
		t.Error("a host without metrics was recorded")
	}
}

func TestCheckMoves(t *testing.T) {
	owners := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Controller: ptr.To(true)}}
	}
	may := map[string]string{MovableAnnotation: "true"}
	for about, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"permits it":      {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: may, OwnerReferences: owners("ReplicaSet")}}, ""},
		"no annotation":   {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owners("ReplicaSet")}}, "pod p: it does not have the annotation pegasus.dev/movable: \"true\""},
		"another value":   {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{MovableAnnotation: "yes"}, OwnerReferences: owners("ReplicaSet")}}, "pod p: it does not have"},
		"no controller":   {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: may}}, "pod p: no controller"},
		"of a DaemonSet":  {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: may, OwnerReferences: owners("DaemonSet")}}, "pod p: its DaemonSet"},
		"can not be read": {nil, "pod p: forbidden"},
	} {
		a := Advice{Moves: []Move{{Pods: []string{"p"}}}}
		a.Check(func(string, string) (*corev1.Pod, error) {
			if c.pod == nil {
				return nil, errors.New("forbidden")
			}
			return c.pod, nil
		})
		if got := a.Moves[0].Why; (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q, want %q", about, got, c.want)
		}
	}
	a := Advice{Moves: []Move{{}}}
	if a.Check(nil); a.Moves[0].Why == "" {
		t.Error("a claim without pods is movable")
	}
}
