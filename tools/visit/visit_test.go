package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Steps that have never run on a GPU are listed in docs/results/unverified.md.
func TestUnverified(t *testing.T) {
	text, err := os.ReadFile("../../docs/results/unverified.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), list()) {
		t.Errorf("docs/results/unverified.md has another table than this:\n%s", list())
	}
}

func TestFindings(t *testing.T) {
	f, err := read([]byte(`Loading …
{"figure": "launch", "value": 2.5, "unit": "us"}
{"answer": "sum", "value": [1, 2.0000001], "within": 1e-6}
{"answer": "name", "value": "H"}
{"somebody": "else's"}
{not JSON
`))
	if err != nil || len(f.Figures) != 1 || len(f.Answers) != 2 || f.Figures[0].Value != 2.5 {
		t.Fatalf("%+v %v", f, err)
	}
	for _, c := range []struct{ other, wrong string }{
		{`{"answer": "sum", "value": [1, 2]}` + "\n" + `{"answer": "name", "value": "H"}` + "\n" + `{"figure": "launch", "value": 5, "unit": "us"}`, ""},
		{`{"answer": "sum", "value": [1, 2.1]}` + "\n" + `{"answer": "name", "value": "H"}`, "sum: "},
		{`{"answer": "sum", "value": [1]}` + "\n" + `{"answer": "name", "value": "H"}`, "sum: "},
		{`{"answer": "sum", "value": [1, 2]}`, "name: "},
		{`{"answer": "sum", "value": [1, 2]}` + "\n" + `{"answer": "name", "value": "G"}`, "name: "},
		{`{"answer": "sum", "value": [1, 2]}` + "\n" + `{"answer": "name", "value": "H"}` + "\n" + `{"answer": "more", "value": 1}`, "2 answers, and by Pegasus 3"},
	} {
		g, err := read([]byte(c.other))
		if err != nil {
			t.Fatal(err)
		}
		mine, err := read([]byte(`{"answer": "sum", "value": [1, 2.0000001], "within": 1e-6}` + "\n" + `{"answer": "name", "value": "H"}` + "\n" + `{"figure": "launch", "value": 2.5, "unit": "us"}`))
		if err != nil {
			t.Fatal(err)
		}
		both, err := mine.beside(byPegasus, g)
		if (err == nil) != (c.wrong == "") || (err != nil && !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", c.other, err, c.wrong)
		}
		if c.wrong == "" && !strings.Contains(both.markdown(), "| launch | 2.5 us | 5 | 2 |") {
			t.Errorf("%s", both.markdown())
		}
	}
	var why errSkip
	if _, err := read([]byte(`{"skip": "no numba"}`)); !errors.As(err, &why) || string(why) != "no numba" {
		t.Errorf("%v", err)
	}
}

func FuzzFindings(f *testing.F) {
	f.Add([]byte(`{"figure": "x", "value": 1}` + "\n" + `{"answer": "y", "value": [1, {"z": null}]}` + "\n" + `{"skip": ""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := read(b)
		if err != nil {
			return
		}
		both, _ := found.beside(byPegasus, found)
		both.markdown()
	})
}

// A repeated command does the remaining steps, and reports those for which it had no time.
func TestResume(t *testing.T) {
	var did []string
	steps := []step{
		{"quick", "is quick", time.Minute, func(context.Context, *visit) (any, error) { did = append(did, "quick"); return findings{}, nil }},
		{"slow", "outlasts its time", 50 * time.Millisecond, func(ctx context.Context, _ *visit) (any, error) {
			did = append(did, "slow")
			<-ctx.Done()
			return nil, errors.New("it took too long")
		}},
		{"absent", "needs more", time.Minute, func(context.Context, *visit) (any, error) { did = append(did, "absent"); return nil, skip("no torch") }},
		{"long", "needs an hour", time.Hour, func(context.Context, *visit) (any, error) { did = append(did, "long"); return nil, nil }},
	}
	out := t.TempDir()
	try := func(budget time.Duration) {
		t.Helper()
		log, err := os.Create(filepath.Join(out, "facts.log"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		v := &visit{command: "facts", out: out, log: log, say: io.Discard}
		if v.record, err = openRecord(v); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		if err := v.do(ctx, steps); err != nil {
			t.Fatal(err)
		}
	}
	states := func() (all []string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(out, "facts.json"))
		var r record
		if err != nil || json.Unmarshal(text, &r) != nil {
			t.Fatalf("%v %s", err, text)
		}
		for _, o := range r.Steps {
			all = append(all, o.Step+" "+o.State)
		}
		return all
	}
	try(10 * time.Minute)
	if got := strings.Join(states(), ", "); got != "quick done, slow FAILED, absent skipped, long no time" {
		t.Errorf("first: %s", got)
	}
	try(2 * time.Hour)
	if got := strings.Join(states(), ", "); got != "quick done, slow FAILED, absent skipped, long done" {
		t.Errorf("then: %s", got)
	}
	if got := strings.Join(did, " "); got != "quick slow absent long" {
		t.Errorf("it did %s", got)
	}
	text, err := os.ReadFile(filepath.Join(out, "facts.md"))
	if err != nil || !bytes.Contains(text, []byte("| absent | skipped | 0.0 | no torch |")) {
		t.Errorf("%v %s", err, text)
	}
}

// The denied system calls are those logged since.
func TestDenied(t *testing.T) {
	const old = "<5>[ 1.0] audit: type=1326 audit(1.0:2): auid=0 uid=1 pid=7 comm=\"pegasus-worker\" exe=\"/x\" sig=0 arch=c000003e syscall=41 compat=0 ip=0x1 code=0x50000\n"
	const fresh = "<6>[ 2.0] something else\n" +
		"<5>[ 2.1] audit: type=1326 audit(2.0:3): auid=0 uid=1 pid=8 comm=\"pegasus-worker\" exe=\"/x\" sig=0 arch=c000003e syscall=83 compat=0 ip=0x1 code=0x50000\n" +
		"<5>[ 2.2] audit: type=1326 audit(2.1:4): auid=0 uid=1 pid=8 comm=\"pegasus-worker\" exe=\"/x\" sig=0 arch=c000003e syscall=49 compat=0 ip=0x1 code=0x50000\n" +
		"<5>[ 2.3] audit: type=1326 audit(2.2:5): auid=0 uid=1 pid=8 comm=\"pegasus-worker\" exe=\"/x\" sig=0 arch=c000003e syscall=83 compat=0 ip=0x1 code=0x50000\n"
	for _, c := range []struct {
		before, after string
		want          []int
	}{
		{old, old + fresh, []int{49, 83}}, {"", old, []int{41}}, {old, old, nil}, {"", "", nil}, {old, fresh, []int{49, 83}},
	} {
		if got := denied([]byte(c.before), []byte(c.after)); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v, of\n%s", got, c.want, c.after)
		}
	}
}

// The total size of recordings is limited: the shortest are kept.
func TestPack(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "calls.tar.gz")
	noise := rand.NewChaCha8([32]byte{1})
	for name, n := range map[string]int{"a": 300 << 10, "b": 1 << 10, "c": 200 << 10, "d": 1 << 20} {
		text := make([]byte, n)
		noise.Read(text)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	left, err := pack(to, dir, 600<<10)
	if err != nil || !slices.Equal(left, []string{"d"}) {
		t.Fatalf("left out are %v, %v", left, err)
	}
	info, err := os.Stat(to)
	if err != nil || info.Size() > 600<<10 || info.Size() < 500<<10 {
		t.Errorf("%+v %v", info, err)
	}
	f, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		want, _ := os.ReadFile(filepath.Join(dir, h.Name))
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what it was: %v", h.Name, err)
		}
		names = append(names, h.Name)
	}
	if !slices.Equal(names, []string{"b", "c", "a"}) {
		t.Errorf("in it are %v", names)
	}
}

// A driver in a directory that the loader searches by default puts nothing before the libraries that programs
// bring.
func TestEnvironment(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", "/their/own")
	for driver, want := range map[string]string{
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1": "/driver:/their/own",
		"/usr/local/nvidia/lib64/libcuda.so.1":   "/driver:/their/own:/usr/local/nvidia/lib64",
	} {
		v := &visit{driver: driver, dir: t.TempDir()}
		i := slices.IndexFunc(v.environment(), func(e string) bool { return strings.HasPrefix(e, "LD_LIBRARY_PATH=") })
		if got := strings.TrimPrefix(v.environment()[i], "LD_LIBRARY_PATH="+v.dir); got != want {
			t.Errorf("%s: %s, want %s", driver, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	if _, err := choose(measure, "rates,nothing"); err == nil || !strings.Contains(err.Error(), "rates, kernels") {
		t.Errorf("%v", err)
	}
	if some, err := choose(measure, "shares,rates"); err != nil || len(some) != 2 || some[0].name != "shares" {
		t.Errorf("%v %v", some, err)
	}
}
