package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A recording is unclear if two small numbers could be an address of it.
func TestUnclear(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calls")
	for text, want := range map[string]bool{
		"1 cuMemAlloc_v2 0 >[@10000028c00]:40 40\n":  true,
		"1 cuMemAlloc_v2 0 >[@300000001800]:40 40\n": false,
		"1 cuCtxCreate_v2 0 >[@12]\n":                false,
		"1 cuMemAlloc_v2 0 >[@7f3a5c000000]:40 40\n": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := unclear(file); got != want {
			t.Errorf("%q: unclear is %v, want %v", text, got, want)
		}
	}
	if unclear(file + ".missing") {
		t.Error("a missing recording is unclear")
	}
}
