package guests

import (
	"strings"
	"testing"
)

// A worker's text stays on one line and within its length, and contains no terminal control sequence.
func TestClip(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"at vec.cu:12", "at vec.cu:12"},
		{"\x1b]52;c;AAAA\x07\n12:00 forged", "\ufffd]52;c;AAAA\ufffd\ufffd12:00 forged"},
		{"ä\xff", "ä\ufffd"},
		{strings.Repeat("ä", 300), strings.Repeat("ä", 200) + "…"},
	} {
		if got := clip(c.text); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.text, got, c.want)
		}
	}
}
