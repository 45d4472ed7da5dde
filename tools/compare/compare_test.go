package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/sim"
	"pegasus/tools/compare/internal/live"
)

// small is a scenario of a second or so. The shares on a machine with other load are not checked, but every
// domain must make progress.
const small = `
id = "small"
title = "Two programs"
profile = "even"
time = "1200ms"
from = "200ms"
window = "500ms"
accelerator = [{name = "gpu"}]
domain = [
  {name = "a", workload = "one", credits = 512},
  {name = "b", workload = "one", credits = 256, background = true, reserve = {kind = "PE", cost = "5ms", period = "25ms"}},
]
plan = [
  {name = "None", policy = "none"},
  {name = "BAND", policy = "band", copy = "band", options = {hold_back = "300us", launches = 16}},
]
row = [
  {text = "both compute", value = "min(BAND.a.compute, BAND.b.compute)", min = 0.001},
  {text = "all parts are somebody's", value = "None.a.part + None.b.part", min = 99.9, max = 100.1},
]
[workload.one]
program = ["lud", "--size", "32", "--pause-ms", "1"]
cpu = "1ms"
kernel = "1ms"
`

func build(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../build")
	if given := os.Getenv("PEGASUS_BUILD"); given != "" {
		dir, err = given, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "bench/lud")); err != nil {
		t.Fatalf("%v; run `make build` first", err)
	}
	return dir
}

// On a machine that stands still for a second no domain makes progress in it: then the test retries for
// longer.
func TestCompare(t *testing.T) {
	var idle error
	for _, times := range []time.Duration{1, 5, 25} {
		if idle = compare(t, times); idle == nil {
			return
		}
		t.Logf("%d times: %v", times, idle)
	}
	t.Fatal(idle)
}

// compare lets small take so many times as long, and returns an error if a domain made no progress.
func compare(t *testing.T, times time.Duration) error {
	dir := t.TempDir()
	file := filepath.Join(dir, "small.toml")
	longer := strings.Replace(small, "1200ms", (times*time.Second + 200*time.Millisecond).String(), 1)
	if err := os.WriteFile(file, []byte(longer), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &settings{stage: live.Stage{Build: build(t), Traces: filepath.Join(dir, "traces")}, trial: times * 200 * time.Millisecond, times: 1, seeds: 2}
	var text, said bytes.Buffer
	failed, err := run(context.Background(), s, []string{file}, filepath.Join(dir, "out.json"), false, &text, &said)
	if err != nil && strings.Contains(err.Error(), "nothing was done") {
		return err
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, &said, &text)
	}
	if failed != 0 {
		return fmt.Errorf("%d rows fail\n%s%s", failed, &said, &text)
	}
	for _, want := range []string{"one is lud --size 32 --pause-ms 1", "predicted | measured", "BAND", "both compute"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q isn't in\n%s", want, &text)
		}
	}
	out, err := os.ReadFile(filepath.Join(dir, "out.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []Comparison
	if err := json.Unmarshal(out, &all); err != nil || len(all) != 1 || len(all[0].Plans) != 2 {
		t.Fatalf("%v in %s", err, out)
	}
	for _, p := range all[0].Plans {
		for _, d := range []string{"a", "b"} {
			if p.Predicted[d]["rate"] <= 0 {
				t.Errorf("%s, %s: predicted %v", p.Name, d, p.Predicted[d])
			}
			if p.Measured[d]["rate"] <= 0 || p.Measured[d]["run_p99"] <= 0 {
				return fmt.Errorf("%s, %s: measured %v", p.Name, d, p.Measured[d])
			}
		}
	}
	if traces, _ := filepath.Glob(filepath.Join(dir, "traces/*.trace")); len(traces) != 2 {
		t.Errorf("traces are %v", traces)
	}
	return nil
}

// A scenario that can't be run is refused with a reason.
func TestCompareRefuses(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`program = ["lud", "--size", "32", "--pause-ms", "1"]`, "", "names no program"},
		{`"--size", "32"`, `"--size", "none"`, "must be a whole number"},
		{`hold_back = "300us"`, `hold_back = "300h"`, "hold back"},
		{`{name = "gpu"}`, `{name = "gpu", count = 2}`, "one accelerator"},
		{`credits = 512`, `cpu_credits = 512`, "cpu_credits 512: processes can have 256, 205, 164,"},
		{`copy = "band"`, `copy = "fifo"`, "copies have the accelerator's policy"},
	} {
		sc, err := sim.Parse("small.toml", []byte(strings.Replace(small, c.from, c.to, 1)))
		if err == nil {
			// On a machine that stands still a trial is repeated for longer.
			for trial := 50 * time.Millisecond; trial < time.Minute; trial *= 5 {
				s := &settings{stage: live.Stage{Build: build(t)}, trial: trial, times: 1, seeds: 1}
				if _, err = s.compare(context.Background(), sc, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "nothing was done") {
					break
				}
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %s: %v, not %q", c.to, err, c.want)
		}
	}
}

// Two plans compare as predicted if the measured ones differ in the same direction.
func TestOrder(t *testing.T) {
	plan := func(name string, predicted, measured float64) Plan {
		return Plan{Name: name, Predicted: sim.Metrics{"": {"off": predicted}}, Measured: sim.Metrics{"": {"off": measured}}}
	}
	c := &Comparison{Plans: []Plan{plan("a", 1, 2), plan("b", 46, 40), plan("c", 5, 1.8), plan("d", 5.2, 30)}}
	if o := c.order("off", ""); o.Pairs != 5 || o.Same != 4 {
		t.Errorf("%+v, want 5 pairs and 4 as foretold", o)
	}
}

// Every scenario of the project resembles one of the simulator's, names programs, and is accepted by the
// simulator.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../../test/scenarios/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are none", err)
	}
	for _, file := range files {
		sc, err := sim.Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		stem := strings.TrimSuffix(filepath.Base(file), ".toml")
		if _, err := sim.Load(stem); err != nil || sc.ID != stem+"-live" {
			t.Errorf("%s: its id is %q, and of the simulator's: %v", file, sc.ID, err)
		}
		if foretold, err := sim.Judge(sc, 1, 1, nil); err != nil {
			t.Errorf("%s: %v", file, err)
		} else {
			for _, r := range foretold.Rows {
				if r.Why != "" {
					t.Errorf("%s: row %q: %s", file, r.Text, r.Why)
				}
			}
		}
		for i := range sc.Domains {
			w, err := sc.Workload(&sc.Domains[i])
			if err != nil || len(w.Program) == 0 {
				t.Errorf("%s: domain %s: program %q, %v", file, sc.Domains[i].Name, w.Program, err)
				continue
			}
			if _, err := os.Stat(filepath.Join(build(t), "bench", w.Program[0])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
