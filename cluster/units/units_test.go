package units

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pegasus/backend/control"
	node "pegasus/cluster/slices"
)

func TestDivide(t *testing.T) {
	all := []control.Accelerator{
		{Name: "gpu0", Memory: 80 << 30},
		{Name: "gpu1", Memory: 80 << 30, MaxCredits: 2048},
		{Name: "gpu2", Memory: 80 << 30, MaxCredits: 100},
		{Name: "tiny", Memory: 16 << 20},
		{Name: strings.Repeat("x", 61), Memory: 80 << 30},
	}
	divided, left := Divide(all, 64, node.Node{Credits: 1024, Declared: map[string]int64{"gpu1": 500, "gpu2": 40}})
	want := []Accelerator{{Name: "gpu0", Units: 16, credits: 64, memory: 5 << 30}, {Name: "gpu1", Units: 24, credits: 64, memory: 2560 << 20}}
	if !slices.Equal(divided, want) {
		t.Errorf("got %+v, want %+v", divided, want)
	}
	reasons := []string{"gpu2: it has 60 credits", "tiny: a device of 64 of 1024 credits has less than 2 MiB", ": the name makes IDs"}
	for i, reason := range reasons {
		if len(left) != len(reasons) || !strings.Contains(left[i], reason) {
			t.Errorf("left %q, want %q", left, reason)
		}
	}
	if ids := divided[0].IDs(); len(ids) != 16 || ids[15] != "gpu0-15" {
		t.Errorf("IDs: %q", ids)
	}
}

func TestPrefer(t *testing.T) {
	for _, c := range []struct {
		about, available, must string
		size                   int
		want                   string // empty: an error
	}{
		{"the fuller accelerator", "a-0 a-1 a-2 b-10 b-9", "", 2, "b-9 b-10"},
		{"the only one that suffices", "a-0 a-1 a-2 b-1 b-9", "", 3, "a-0 a-1 a-2"},
		{"by number", "a-10 a-9 a-1 a-11", "", 3, "a-1 a-9 a-10"},
		{"a name with numbers", "a-0-1 a-0-2 a-0", "", 2, "a-0-1 a-0-2"},
		{"that of an init container", "a-0 a-1 a-2 b-1 b-9", "a-2", 2, "a-2 a-0"},
		{"none suffices", "a-0 b-1", "", 2, ""},
		{"that of an init container does not suffice", "a-0 b-1 b-2", "a-0", 2, ""},
		{"none is available", "", "", 1, ""},
	} {
		got, err := Prefer(strings.Fields(c.available), strings.Fields(c.must), c.size)
		if strings.Join(got, " ") != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: got %q, %v; want %q", c.about, got, err, c.want)
		}
	}
}

// A domain follows from its units in any order.
func TestDomain(t *testing.T) {
	divided := []Accelerator{{Name: "gpu-0", Units: 2000, credits: 64, memory: 5 << 30}, {Name: "gpu-1", Units: 16, credits: 64, memory: 5 << 30}}
	d, err := Domain([]string{"gpu-1-10", "gpu-1-9"}, divided, map[string]string{"socket_mode": "0666"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"accelerator": "gpu-1", "credits": "128", "memory": "10737418240", "memory_guarantee": "10737418240", "socket_mode": "0666"}
	if !maps.Equal(d.Settings, want) || d.String() != "gpu-1-9,gpu-1-10" {
		t.Errorf("%s: got %v, want %v", d, d.Settings, want)
	}
	if again, err := Domain([]string{"gpu-1-9", "gpu-1-10"}, divided, nil); err != nil || again.Name() != d.Name() {
		t.Errorf("in another order: %v, %v; want %s", again, err, d.Name())
	}
	if other, err := Domain([]string{"gpu-1-9"}, divided, nil); err != nil || other.Name() == d.Name() {
		t.Errorf("other units: %v, %v", other, err)
	}
	var all []string
	for n := range int64(1024) {
		all = append(all, id("gpu-0", n))
	}
	for want, ids := range map[string][]string{
		"no devices": nil, "accelerators gpu-0 and gpu-1": {"gpu-0-1", "gpu-1-1"}, `no accelerator "x"`: {"x-1"}, `no accelerator ""`: {"x"}, "at most 65535": all,
	} {
		if d, err := Domain(ids, divided, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, %v; want an error with %q", ids[:min(3, len(ids))], d, err, want)
		}
	}
}
