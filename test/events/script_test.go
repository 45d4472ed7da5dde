package events

import (
	"fmt"
	"testing"
)

// A mistake in a script is named with its line.
func TestScripts(t *testing.T) {
	known := func(what string) (onHost, ok bool) {
		return what == "kill daemon", what == "kill daemon" || what == "reset"
	}
	for text, want := range map[string]string{
		"machine  one  1  ivshmem\nreset  one  boots\n": "",
		"machine  one  1\nreset  one  boots\n":          "",
		"machine  one  1\nreset one  boots\n":           `2: "reset one  boots" has 2 columns, not 3: two spaces are between them`,
		"machine  one  1\nresist  one  boots\n":         `2: nothing is known that is called "resist"`,
		"machine  one  1\n# two\n\nreset  two  boots\n": `4: there is no machine "two"`,
		"machine  one  1\nreset  -  boots\n":            `2: "reset" happens to a machine or to the host, not to "-"`,
		"machine  one  1\nkill daemon  one  goes on\n":  `2: "kill daemon" happens to a machine or to the host, not to "one"`,
		"machine  one  1\nreset  one  sulks\n":          `2: "sulks" isn't how a program takes it`,
		"machine  one  1\nmachine  one  2\n":            `2: "machine  one  2": want a name of its own and credits`,
		"machine  one  many\n":                          `1: "machine  one  many": want a name of its own and credits`,
	} {
		s, err := Parse(text, known)
		if got := fmt.Sprint(err); err != nil && got != want || err == nil && want != "" {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if want != "" {
			continue
		}
		if again, err := Parse(s.String(), known); err != nil || fmt.Sprint(again.Machines) != fmt.Sprint(s.Machines) || again.Events[0].String() != s.Events[0].String() {
			t.Errorf("%q is written as %q: %v", text, s, err)
		}
	}
}
