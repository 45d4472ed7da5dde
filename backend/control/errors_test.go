package control

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"testing"
)

// docs/api.md lists the codes with their statuses, and no others.
func TestCodesOnPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([45]\\d\\d) \\| ").FindAllStringSubmatch(string(page), -1) {
		var status int
		fmt.Sscan(row[2], &status)
		listed[row[1]] = status
	}
	if !maps.Equal(listed, statuses) {
		t.Errorf("docs/api.md lists %v, want %v", listed, statuses)
	}
}
