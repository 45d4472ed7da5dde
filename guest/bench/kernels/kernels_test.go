package kernels

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every source has its PTX, and there is no PTX without a source.
func TestEachSourceHasPTX(t *testing.T) {
	sources, err := filepath.Glob("*.cu")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, s := range sources {
		want = append(want, strings.TrimSuffix(s, ".cu"))
	}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("PTX of %v, sources of %v", got, want)
	}
}

// The PTX files match the output of their sources.
func TestPTXIsFresh(t *testing.T) {
	if _, err := exec.LookPath("clang-14"); err != nil {
		t.Fatal("clang-14 is not installed; `make deps` installs it")
	}
	dir := t.TempDir()
	if out, err := exec.Command("./generate.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range Names() {
		made, err := os.ReadFile(filepath.Join(dir, "zz_"+name+".ptx"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(made, PTX(name)) {
			t.Errorf("zz_%s.ptx is stale: run go generate ./guest/bench/kernels", name)
		}
	}
}
