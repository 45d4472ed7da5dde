package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What has never run on a GPU stands where people look for that.
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

// A command that is run again does what is left, and says so of what it had no time for.
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

func TestChoose(t *testing.T) {
	if _, err := choose(measure, "rates,nothing"); err == nil || !strings.Contains(err.Error(), "rates, kernels") {
		t.Errorf("%v", err)
	}
	if some, err := choose(measure, "shares,rates"); err != nil || len(some) != 2 || some[0].name != "shares" {
		t.Errorf("%v %v", some, err)
	}
}
