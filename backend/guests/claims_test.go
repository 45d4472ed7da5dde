package guests

import (
	"strings"
	"testing"
)

func TestAdmission(t *testing.T) {
	const g = 1 << 30
	web := claim{domain: "web", device: 2 * g, host: 16 * g, processes: 16 * g}
	bounded := claim{domain: "shop", device: 2 * g, host: 16 * g, processes: 16 * g, limit: 21 * g}
	for _, c := range []struct {
		name    string
		all     []claim
		devices uint64
		state   string
		want    string
	}{
		{"none", nil, 2 * g, "ok", "0 domains come to 0.0 GiB of the host's 24.0 GiB"},
		{"one by the defaults", []claim{web}, 2 * g, "warn", "come to 34.0 GiB of the host's 24.0 GiB of memory; the largest: web 34.0 GiB (device memory 2.0 GiB, host_memory 16.0 GiB, 16.0 GiB for its processes)"},
		{"one in a cgroup", []claim{bounded}, 2 * g, "ok", "come to 21.0 GiB"},
		{"two in cgroups", []claim{bounded, bounded}, 4 * g, "warn", "come to 42.0 GiB"},
		{"device memory of one accelerator", []claim{{domain: "a", device: 14 * g}, {domain: "b", device: 14 * g}}, 14 * g, "ok", "come to 14.0 GiB"},
	} {
		got := admission(c.all, c.devices, 24*g)
		if got.State != c.state || !strings.Contains(got.Detail, c.want) || (got.Fix != "") != (c.state == "warn") {
			t.Errorf("%s: %+v, want %s, %q", c.name, got, c.state, c.want)
		}
	}
}
