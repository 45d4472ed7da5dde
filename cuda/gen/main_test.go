package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// The committed files are the generator's current output.
func TestNothingStale(t *testing.T) {
	files, err := Generate(filepath.Join(root, "cuda", "spec"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sortedKeys(files) {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !bytes.Equal(got, files[name]) {
			t.Errorf("%s is stale: run go generate ./cuda", name)
		}
	}
	for _, pattern := range []string{"cuda/zz_*", "cuda/testdata/wire/*.golden", "cuda/testdata/c/zz_*", "guest/libcuda/zz_*", "guest/libcuda/*/zz_*", "guest/nvml/zz_*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			name, _ := filepath.Rel(root, path)
			if files[name] == nil {
				t.Errorf("%s is not generated any more", name)
			}
		}
	}
}

func TestGenerateTwice(t *testing.T) {
	a, err := Generate(filepath.Join(root, "cuda", "spec"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Generate(filepath.Join(root, "cuda", "spec"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s differs from one run to the next", name)
		}
	}
}

// edited returns a spec directory with one file changed.
func edited(t *testing.T, file, old, new string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "cuda", "spec"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	if err := os.WriteFile(path, bytes.Replace(b, []byte(old), []byte(new), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMistakesAreNamed(t *testing.T) {
	const line = `cuMemAlloc_v2 = {body = "manual", class = "control", unsafe = true}`
	for _, c := range []struct{ file, old, new, want string }{
		{"overlay.toml", line, `cuMemAlloc_v9 = {body = "manual", class = "control"}`, "cuMemAlloc_v9: no such symbol"},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "magic", class = "control"}`, `body "magic"`},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "manual", class = "slow"}`, `class "slow"`},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "manual", class = "copy", colour = 1}`, "unknown key"},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "alias", class = "copy"}`, "of goes with body alias"},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "alias", class = "copy", of = "cuX"}`, "does not exist"},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "manual", class = "copy", object = "stream"}`, "go with body accessor"},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "accessor", class = "copy", object = "reel"}`, `object "reel"`},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "accessor", class = "copy", object = "stream"}`, "no parameter of type CUstream for the object"},
		{"overlay.toml", line, `cuMemAlloc_v2 = {body = "accessor", class = "copy", valid = "bytesize > 0"}`, "valid and type go with an object"},
		{"overlay.toml", `object = "node_of_type", type = "CU_GRAPH_NODE_TYPE_HOST", value = "n->host"`, `object = "node_of_type", value = "n->host"`, "cuGraphHostNodeGetParams: the object needs a type"},
		{"overlay.toml", `cuFuncLoad = {body = "accessor", class = "control", object = "callable"}`, `cuFuncLoad = {body = "accessor", class = "control", object = "callable", value = "1"}`, "value goes with one output"},
		{"overlay.toml", line, `cuMemcpy_ptds = {body = "manual", class = "copy"}`, "needs no line"},
		{"overlay.toml", `cuStreamGetDevice = {body = "accessor", class = "local", object = "stream", value = "c->device"}`, "", "cuStreamGetDevice: of tier 2, not implemented, and not refused with a reason"},
		{"overlay.toml", `symbols = ["cuMemAlloc", `, `symbols = ["cuMemAlloc", "cuInit", `, "cuInit: refused, and has a line"},
		{"overlay.toml", `symbols = ["cuMemAlloc", `, `symbols = ["cuMemAlloc", "cuMemAlloc", `, "or another reason"},
		{"overlay.toml", `symbols = ["cuMemAlloc", `, `symbols = ["cuMemAllok", `, "cuMemAllok: refused, and no such symbol"},
		{"overlay.toml", `because = "passes frames`, "because = \"\"\n#", "without a reason"},
		{"results.toml", `names = ["cuInit"]`, `names = ["cuFoo"]`, "cuInit: implemented, and has no row"},
		{"results.toml", `names = ["cuInit"]`, `names = ["cuInit", "cuFoo"]`, "cuFoo: no such function"},
		{"results.toml", `names = ["cuInit"]`, `names = ["cuInit", "cuMemFree"]`, "cuMemFree: has two rows"},
		{"results.toml", `"FILE_NOT_FOUND"`, `"FILE_LOST"`, `no result "FILE_LOST"`},
		{"results.toml", "deferred = true", "late = true", "unknown key"},
		{"nvml.json", `"nvmlInit_v2","body":"manual"`, `"nvmlInit_v2","body":"magic"`, `nvmlInit_v2: no body "magic"`},
		{"nvml.json", `"nvmlInit_v2","body"`, `"nvmlInit","body"`, "nvmlInit is there twice"},
		{"nvml.json", `"out":{"unitCount":0}`, `"out":{"count":0}`, "nvmlUnitGetCount has no output count"},
		{"texts.toml", `NOT_READY = "device not ready"`, "", "CUDA_ERROR_NOT_READY has no text"},
		{"texts.toml", `NOT_READY =`, "NOT_RIPE = \"a fruit\"\nNOT_READY =", `no result "NOT_RIPE"`},
		{"wire.toml", "num = 7", "num = 8", "append-only"},
		{"wire.toml", `"u64 module"`, `"u65 module"`, "unknown type"},
		{"wire.toml", `class = "wait"`, `class = "later"`, `class "later"`},
		{"wire.toml", `"u32 release", "u32 reserved", "bytes data"`, `"bytes data", "u32 release"`, "not the last"},
	} {
		_, err := Generate(edited(t, c.file, c.old, c.new))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.new, err, c.want)
		}
	}
}

// Deleting a symbol's line turns it, its aliases and its variants into stubs, for which there has to be a reason.
func TestSwitchingOff(t *testing.T) {
	dir := edited(t, "overlay.toml", `cuMemcpyHtoD_v2 = {body = "manual", class = "copy"}`, "")
	overlay, err := os.OpenFile(filepath.Join(dir, "overlay.toml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer overlay.Close()
	if _, err := overlay.WriteString("[[refused]]\nbecause = \"a test\"\nsymbols = [\"cuMemcpyHtoD_v2\"]\n"); err != nil {
		t.Fatal(err)
	}
	files, err := Generate(dir)
	if err != nil {
		t.Fatal(err)
	}
	exports := string(files["guest/libcuda/api/zz_exports.c"])
	if strings.Contains(exports, "pg_cuMemcpyHtoD_v2") || strings.Contains(string(files["guest/libcuda/core/zz_impl.h"]), "pg_cuMemcpyHtoD_v2") {
		t.Error("the implementation is still used")
	}
	for _, symbol := range []string{"cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"} {
		if !strings.Contains(exports, `("`+symbol+`")`) {
			t.Errorf("%s is no stub", symbol)
		}
	}
}

func TestLayOut(t *testing.T) {
	r, err := layOut([]string{"u8 a", "u32 b", "u8[3] c", "u64 d", "u16 e", "bytes f"})
	if err != nil {
		t.Fatal(err)
	}
	var at []int
	for _, f := range r.Fields {
		at = append(at, f.Offset)
	}
	if want := []int{0, 4, 8, 16, 24}; !slices.Equal(at, want) || r.Size != 32 || r.Bytes != "f" {
		t.Errorf("offsets %v, size %d, bytes %q", at, r.Size, r.Bytes)
	}
}

// Programs built against the header get the ABI that CUDA 12 gives them.
func TestHeaderSymbols(t *testing.T) {
	s, err := loadSpec(filepath.Join(root, "cuda", "spec"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cuInit": "cuInit", "cuCtxCreate": "cuCtxCreate_v2", "cuMemAlloc": "cuMemAlloc_v2", "cuDeviceGetUuid": "cuDeviceGetUuid",
		"cuEventElapsedTime": "cuEventElapsedTime", "cuGetProcAddress": "cuGetProcAddress_v2", "cuDevicePrimaryCtxRelease": "cuDevicePrimaryCtxRelease_v2",
		"cuStreamGetCaptureInfo": "cuStreamGetCaptureInfo_v2", "cuLinkCreate": "cuLinkCreate_v2", "cuMemPrefetchAsync": "cuMemPrefetchAsync",
		"cuTexRefSetAddress2D": "cuTexRefSetAddress2D_v3", "cuStreamBeginCapture": "cuStreamBeginCapture_v2",
	} {
		if got := headerSymbol(s, name); got != want {
			t.Errorf("%s means %s, want %s", name, got, want)
		}
	}
}
