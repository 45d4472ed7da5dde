package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A missing library is reported with the programs' error message; NVIDIA's own is accepted if it needs no driver.
func TestCompanions(t *testing.T) {
	docs, err := os.ReadFile("../../docs/programs.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Companions() {
		t.Run(c.Name, func(t *testing.T) {
			for _, text := range []string{c.Library, c.Says} {
				if !strings.Contains(string(docs), text) {
					t.Errorf("docs/programs.md doesn't have %q", text)
				}
			}
			root := t.TempDir()
			if got := c.Find(root, "/opt/lib"); got != "" {
				t.Errorf("found %s in an empty directory", got)
			}
			if detail, fix := c.Finding(""); !strings.Contains(detail, c.Says) || fix == "" {
				t.Errorf("without it: %q, %q", detail, fix)
			}
			path := filepath.Join(root, "opt/lib", c.Library+".12")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if got := c.Find(root, "/opt/lib"); got != path {
				t.Errorf("found %q, want %s", got, path)
			}
			if detail, fix := c.Finding(path); !strings.Contains(detail, path) || (fix == "") != c.Usable {
				t.Errorf("with it: %q, %q", detail, fix)
			}
		})
	}
}
