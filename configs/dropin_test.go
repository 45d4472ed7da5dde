package configs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Each file contains the files of a configuration, and as "want" their mistakes, or lines of the effective
// form.
func TestDropIns(t *testing.T) {
	for _, file := range glob(t, "testdata/*.files") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			all, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir, want := t.TempDir(), ""
			for _, f := range all.Files {
				if f.Name == "want" {
					want = string(f.Data)
					continue
				}
				path := filepath.Join(dir, f.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, f.Data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, "pegasus.toml")
			if !Exists(path) {
				t.Error("there is none")
			}
			c, err := Load(path, options)
			if err != nil {
				if got := strings.ReplaceAll(err.Error(), dir+"/", "") + "\n"; got != want {
					t.Errorf("got\n%swant\n%s", got, want)
				}
				return
			}
			again(t, c)
			got := string(c.Marshal())
			for line := range strings.Lines(want) {
				rest, ok := after(got, line)
				if !ok {
					t.Fatalf("the effective form lacks, in this order, %sit is:\n%s", line, c.Marshal())
				}
				got = rest
			}
		})
	}
}

// Without a file and drop-ins there is no configuration; an unreadable directory isn't one without files.
func TestNoDropIns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pegasus.toml")
	if _, err := Load(path, options); err == nil || Exists(path) {
		t.Error("there is one")
	}
	if err := os.Mkdir(path+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, options); err == nil || Exists(path) {
		t.Error("there is one by an empty directory")
	}
	if err := os.Remove(path + ".d"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".d", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, options); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Error(err)
	}
}

// The TOML of the operators' pages can be added to each of the examples unchanged.
func TestPagesBesideExamples(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```toml\n(.*?)^```$")
	for _, page := range []string{"kvm.md"} {
		found := blocks.FindAllSubmatch(read(t, "../docs/"+page), -1)
		if len(found) == 0 {
			t.Errorf("%s has none", page)
		}
		for _, example := range glob(t, "examples/*.toml") {
			for i, m := range found {
				if strings.HasPrefix(string(m[1]), "[[accelerator]]\ncpu_follows_gpu") { // keys of the accelerator that the example has
					continue
				}
				path := filepath.Join(t.TempDir(), "pegasus.toml")
				if err := os.Mkdir(path+".d", 0o755); err != nil {
					t.Fatal(err)
				}
				for file, text := range map[string][]byte{path: read(t, example), filepath.Join(path+".d", "page.toml"): m[1]} {
					if err := os.WriteFile(file, text, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := Load(path, options); err != nil {
					t.Errorf("%s, block %d, beside %s: %v", page, i+1, example, err)
				}
			}
		}
	}
}
