package cpus

import (
	"strings"
	"testing"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
)

// Settings that Xen accepts, but none of its own tools, are refused, and then nothing is set. The scheduler is that
// of the domain's pool, which differs from the first pool's.
func TestTuner(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.pool(control.Credit2, 1)
	f.domain(0, 0, 256, 2)
	f.domain(3, 1, 256, 2)
	tuner := f.cpus().Tuner(func(name string) (uint16, bool) { return map[string]uint16{"web": 3, "gone": 4}[name], name != "db" })
	n := func(n int) *int { return &n }
	for _, c := range []struct {
		name        string
		weight, cap *int
		want        string // part of the error
		has         control.Params
	}{
		{"web", n(512), nil, "", control.Params{Weight: 512}},
		{"web", nil, n(150), "", control.Params{Weight: 512, Cap: 150}},
		{"web", n(0), nil, "weight = 0: must be from 1 to 65535", control.Params{Weight: 512, Cap: 150}},
		{"web", n(65536), nil, "weight = 65536", control.Params{Weight: 512, Cap: 150}},
		{"web", n(300), n(201), "cap = 201: must be from 1 to 200", control.Params{Weight: 512, Cap: 150}},
		{"web", n(300), n(-1), "cap = -1", control.Params{Weight: 512, Cap: 150}},
		{"web", n(300), n(0), "", control.Params{Weight: 300}},
		{"db", n(300), nil, `there is no domU "db" now`, control.Params{Weight: 300}},
		{"gone", n(300), nil, `domU "gone", which is domain 4`, control.Params{Weight: 300}},
	} {
		err := tuner.Tune(c.name, hypervisor.Tuning{Weight: c.weight, Cap: c.cap})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
		if w, err := tuner.Tuned("web"); err != nil || f.params[3] != c.has || w != (hypervisor.Weight{Credits: 300, Cap: int(c.has.Cap)}) && c.has.Weight == 300 {
			t.Errorf("%+v: it has %+v, told as %+v, %v", c, f.params[3], w, err)
		}
	}
	slice := 5 * time.Millisecond
	if err := tuner.Tune("web", hypervisor.Tuning{Slice: &slice, Weight: n(400)}); err == nil || f.params[3].Weight != 300 {
		t.Errorf("a pool without slices: %v, %+v", err, f.params[3])
	}
	f.domain(5, 0, 256, 1)
	tuner.id = func(string) (uint16, bool) { return 5, true }
	if err := tuner.Tune("first", hypervisor.Tuning{Slice: &slice, Weight: n(400)}); err != nil || f.slice != slice || f.params[5].Weight != 400 {
		t.Errorf("%v: slice %v, %+v", err, f.slice, f.params[5])
	}
	tuner.id = func(name string) (uint16, bool) { return 4, name == "gone" }
	for _, name := range []string{"db", "gone"} {
		if _, err := tuner.Tuned(name); err == nil {
			t.Errorf("%s, who isn't there, has a weight", name)
		}
	}
}

// A configured weight stays, even if it equals the raised one; until then Tuned returns the earlier configured one.
func TestTuneRaised(t *testing.T) {
	f, dir := newFake(), t.TempDir()
	f.pool(control.Credit, 0)
	f.domain(0, 0, 256, 1)
	f.domain(1, 0, 256, 1)
	c := f.cpus()
	r, tuner, weight := c.Raiser(dir), c.Tuner(func(string) (uint16, bool) { return 1, true }), 1024
	r.Groups(guests(1))
	if _, err := r.Raise("d1", 1024); err != nil {
		t.Fatal(err)
	}
	if w, err := tuner.Tuned("d1"); err != nil || w.Credits != 256 {
		t.Errorf("raised, it has %+v, %v", w, err)
	}
	if err := tuner.Tune("d1", hypervisor.Tuning{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	if g := r.Groups(guests(1)); len(g) != 1 || g[0].Weight != 1024 || g[0].Has != 1024 || records(t, dir) != 0 {
		t.Errorf("%+v, with %d records", g, records(t, dir))
	}
	r.Restore()
	if f.params[1].Weight != 1024 {
		t.Errorf("it has %d", f.params[1].Weight)
	}
}

// A domU with offline vCPUs, or none online yet, may have the cap for all of them: xl allows it.
func TestCapOfOffline(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(1, 0, 256, 4)
	tuner := f.cpus().Tuner(func(string) (uint16, bool) { return 1, true })
	for _, online := range []int{1, 0} {
		f.domains[0].VCPUs = online
		most, more := 400-online, 401
		if err := tuner.Tune("web", hypervisor.Tuning{Cap: &most}); err != nil || int(f.params[1].Cap) != most {
			t.Errorf("%d %% with %d of 4 vCPUs online: %v, and it has %d", most, online, err, f.params[1].Cap)
		}
		if err := tuner.Tune("web", hypervisor.Tuning{Cap: &more}); err == nil || !strings.Contains(err.Error(), "from 1 to 400") {
			t.Errorf("401 %% with %d of 4 vCPUs online: %v", online, err)
		}
	}
}

// A cap that exceeds Xen's parameter is refused, not truncated.
func TestGreatestCap(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(1, 0, 256, 1)
	f.domains[0].VCPUs, f.domains[0].MaxVCPU = 700, 699
	tuner := f.cpus().Tuner(func(string) (uint16, bool) { return 1, true })
	for _, percent := range []int{1<<16 - 1, 1<<16 + 100, 70000} {
		if err := tuner.Tune("wide", hypervisor.Tuning{Cap: &percent}); err == nil || !strings.Contains(err.Error(), "from 1 to 65534") || f.params[1].Cap != 0 {
			t.Errorf("%d: %v, and it is %d", percent, err, f.params[1].Cap)
		}
	}
}
