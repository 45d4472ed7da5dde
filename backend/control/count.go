package control

import (
	"fmt"
	"strings"
)

// Count returns a number with its noun: "1 process", "2 processes".
func Count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
