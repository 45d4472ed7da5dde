package guests

import (
	"strings"
	"testing"

	"pegasus/configs"
)

func TestQuantile(t *testing.T) {
	var w waits
	if q := w.quantile(0.99); q != 0 {
		t.Errorf("of nothing: %d", q)
	}
	w[0] = 50 // did not wait
	w[11] = 49
	w[21] = 1
	for _, c := range []struct {
		p         float64
		low, high int64
	}{{0.5, 0, 0}, {0.9, 1 << 10, 1 << 11}, {0.99, 1 << 10, 1 << 11}, {1, 1 << 20, 1 << 21}} {
		if q := w.quantile(c.p); q < c.low || q > c.high {
			t.Errorf("quantile %v = %d, want %d to %d", c.p, q, c.low, c.high)
		}
	}
}

func TestOverride(t *testing.T) {
	c := configs.Default()
	base, err := c.Domain("web")
	if err != nil {
		t.Fatal(err)
	}
	got, err := override(c, base, map[string]string{"credits": "512", "memory": "64MiB"})
	if err != nil || got.Credits != 512 || got.Memory != 64*configs.MiB || got.Arena != base.Arena {
		t.Errorf("%+v, %v", got, err)
	}
	for want, bad := range map[string]map[string]string{
		`domain "web": credits = "0"`: {"credits": "0", "memory": "64MiB"},
		"colour":                      {"colour": "red"},
		`[[accelerator]]: "soft0"`:    {"accelerator": "soft9"},
		"at most host_memory":         {"host_memory": "1MiB"},
		"a multiple of":               {"arena": "1048577"},
		"socket_mode":                 {"socket_mode": "1777"},
	} {
		if got, err := override(c, base, bad); err == nil || !strings.Contains(err.Error(), want) || got != base {
			t.Errorf("%v: %+v, %v", bad, got, err)
		}
	}
}
