package guests

import (
	"strings"
	"testing"

	"pegasus/configs"
)

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
