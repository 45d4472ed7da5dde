package configs

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A huge name or value in a file does not make a huge error.
func TestLongValuesAreCutShort(t *testing.T) {
	_, err := Parse("f", []byte("[[accelerator]]\nname = \"s\"\n[[domain]]\nname = \""+strings.Repeat("é", 35000)+"\"\ncredits = 0\n"), Options{})
	if err == nil || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "…") || !utf8.ValidString(err.Error()) {
		t.Errorf("got %.3000v", err)
	}
}
