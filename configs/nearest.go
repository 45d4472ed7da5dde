package configs

import "strings"

// didYouMean returns "; did you mean …?" with the candidate most similar to the given text, or "" if none is
// similar.
func didYouMean(written string, candidates []string) string {
	best, bestDistance := "", len(written)/3+2
	for _, c := range candidates {
		if d := distance(normal(written), normal(c)); d < bestDistance {
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

// distance returns the number of insertions, deletions, replacements and swaps of neighbours that turn a into
// b.
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+differ(a[i-1], b[j-1]))
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

func differ(x, y byte) int {
	if x == y {
		return 0
	}
	return 1
}
