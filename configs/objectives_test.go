package configs

import (
	"strings"
	"testing"
)

// Share objectives that cannot be kept are warned of, with the line.
func TestObjectiveWarnings(t *testing.T) {
	for _, c := range []struct {
		what, policy, text string
		want               []string
	}{
		{"none", "accc", "[[domain]]\nname = 'a'\n", nil},
		{"by credits", "accc", "[[domain]]\nname = 'a'\nslo = 500\n[[domain]]\nname = 'b'\n", nil},
		{"more than the credits", "accc", "[[domain]]\nname = 'a'\nslo = 600\n[[domain]]\nname = 'b'\n", []string{`pegasus.toml:6: domain "a": slo = 600: its credits come to 500`}},
		{"a policy that makes up for it", "slaf", "[[domain]]\nname = 'a'\nslo = 600\n[[domain]]\nname = 'b'\n", nil},
		{"too many", "slaf", "[[domain]]\nname = 'a'\nslo = 600\n[[domain]]\nname = 'b'\nslo = 500\n", []string{"pegasus.toml:6: ", "pegasus.toml:9: "}},
		{"a policy without shares", "fifo", "[[domain]]\nname = 'a'\nslo = 100\n", []string{"owes no domain a share"}},
		{"equal shares", "rr", "[[domain]]\nname = 'a'\nslo = 500\n[[domain]]\nname = 'b'\ncredits = 4096\n", nil},
	} {
		got, err := Parse("pegasus.toml", []byte("[[accelerator]]\nname = 'gpu'\npolicy = '"+c.policy+"'\n"+c.text), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if len(got.Warnings) != len(c.want) {
			t.Errorf("%s: %q, want %q", c.what, got.Warnings, c.want)
			continue
		}
		for i, w := range got.Warnings {
			if !strings.HasPrefix(w, c.want[i]) && !strings.Contains(w, c.want[i]) {
				t.Errorf("%s: %q, want %q", c.what, w, c.want[i])
			}
		}
	}
}
