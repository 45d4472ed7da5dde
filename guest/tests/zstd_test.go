package tests

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Output of Zstandard's own program decompresses to the original: programs, machine code, repetitive data and
// incompressible data.
func TestZstandard(t *testing.T) {
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Fatal("zstd is not installed; `make deps` installs it")
	}
	noise := make([]byte, 200_000)
	rng := rand.NewChaCha8([32]byte{})
	rng.Read(noise)
	files := map[string][]byte{
		"noise":  noise,
		"zeros":  make([]byte, 300_000),
		"mixed":  bytes.Join([][]byte{noise[:70_000], make([]byte, 140_000), noise[10_000:90_000]}, nil),
		"little": []byte("x"),
	}
	kernels, err := filepath.Glob("../bench/kernels/zz_*.ptx")
	if err != nil || len(kernels) < 3 {
		t.Fatal("no PTX", err)
	}
	for _, name := range append(kernels[:3:3], librarySource+"/api/zz_exports.c", "/bin/true") {
		if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	var all [][]string // arguments, by file
	for name, content := range files {
		plain := filepath.Join(dir, name)
		if err := os.WriteFile(plain, content, 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{plain}
		for _, how := range [][]string{{"-1"}, {"-3", "--no-check"}, {"-19"}, {"--ultra", "-22"}} {
			packed := fmt.Sprintf("%s%s.zst", plain, how[len(how)-1])
			cmd := exec.Command("zstd", append(how, "-q", "-f", plain, "-o", packed)...)
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("zstd: %v\n%s", err, said)
			}
			args = append(args, packed)
		}
		all = append(all, args)
	}
	each(t, func(t *testing.T, b *build) {
		for _, args := range all {
			runs(t, run{build: b, program: "unpack", args: args, own: []string{"image/zstd.c"}})
		}
	})
}
