// Package golden compares results of tests with files in testdata.
//
// Callers: tests only.
package golden

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// YAML compares v, as YAML, with testdata/NAME. With GOLDEN_UPDATE=1 it writes the file.
func YAML(t *testing.T, name string, v any) {
	t.Helper()
	got, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	Text(t, name, string(got))
}

// Text compares a text with testdata/NAME. With GOLDEN_UPDATE=1 it writes the file.
func Text(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("GOLDEN_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant, as %s has it:\n%s", got, path, want)
	}
}
