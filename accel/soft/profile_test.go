package soft

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

func TestReport(t *testing.T) {
	d, c := open(t, nil)
	launch := func(m *Module, launches int) {
		for range launches {
			submit(t, c, c.DefaultStream(), &accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}})
		}
		synchronize(t, c)
	}
	const kernel = header + ".entry %s() { .reg .b32 %%r;\nmov.u32 %%r,\t%%tid.x;\n%s\nret; }"
	launch(load(t, c, fmt.Sprintf(kernel, "early", "")), 1)
	d.Profile()
	a := load(t, c, fmt.Sprintf(kernel, "twice", ""))
	launch(a, 1)
	a.Unload()
	launch(load(t, c, fmt.Sprintf(kernel, "twice", "")), 1) // the same module again
	launch(load(t, c, fmt.Sprintf(kernel, "twice", "// another")), 3)
	report := d.Report()
	for _, want := range []string{
		`^profile: kernels took \S+ in 5 launches\n`,
		`\n +\S+% +\S+ +2 +\S+  twice\n`, `\n +\S+% +\S+ +3 +\S+  twice\n`,
		`\n\ntwice\n.*\n(.*\n)? +\S+% +2 +32\.0 +5  mov\.u32 %r, %tid\.x;\n`,
	} {
		if !regexp.MustCompile(want).MatchString(report) {
			t.Errorf("the report lacks %s:\n%s", want, report)
		}
	}
	if strings.Contains(report, "early") {
		t.Errorf("the report has what came before:\n%s", report)
	}

	// The kept data and the report are bounded.
	for i := range 2 * maxProfiles {
		launch(load(t, c, fmt.Sprintf(kernel, fmt.Sprintf("k%d", i), "")), 1)
	}
	report = d.Report()
	if n := strings.Count(report, "\n"); n > 200 || !regexp.MustCompile(` 66 +other kernels\n`).MatchString(report) {
		t.Errorf("%d lines of report:\n%s", n, report)
	}
	if len(d.profile.kernels) != maxProfiles {
		t.Errorf("%d kernels are kept", len(d.profile.kernels))
	}
	// Code that is not PTX has no lines.
	launch(goModule(c, 0, func(*run) *fault { return nil }), 1)
	if _, _, r := c.LoadModule([]byte("no module")); r == cuda.Success {
		t.Error("loaded")
	}
	d.Report()
}
