package configs

import (
	"strings"

	"pegasus/internal/nearest"
)

// DidYouMean returns "; did you mean …?" with the candidate most similar to the given text, or "" if none is
// similar.
func DidYouMean(written string, candidates []string) string {
	best, bestDistance := "", len(written)/3+2
	for _, c := range candidates {
		if d := nearest.Distance(normal(written), normal(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + quote(best) + "?"
}

func normal(s string) string {
	if len(s) > 64 {
		s = s[:64]
	}
	return strings.ReplaceAll(strings.ToLower(s), "-", "_")
}
