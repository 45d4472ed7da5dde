package soft

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"pegasus/accel"
	"pegasus/accel/ptx"
	"pegasus/cuda"
)

// If unknown instructions are to be refused at launch, a module with them is
// loaded, and kernels that don't reach them are run.
func TestRefusalAtLaunch(t *testing.T) {
	const text = header + `
.func odd() { .reg .b32 %r; wgmma.fence.sync.aligned; add.approx.u32 %r, {1, 2}, [%r]; ret; }
.func loop() { call odd; call loop; ret; }
.visible .entry direct() { .reg .b64 %d; tcgen05.ld.sync.aligned.16x64b.x1.b32 {%d}, [%d]; ret; }
.visible .entry sound() { ret; }
.visible .entry through() { call loop; ret; }
`
	var out bytes.Buffer
	_, c := open(t, func(c *Config) { c.RefusePTX, c.Log = ptx.AtLaunch, slog.New(slog.NewTextHandler(&out, nil)) })
	m, log, r := c.LoadModule([]byte(text))
	want(t, r, cuda.Success)
	for _, line := range []string{"kernel direct can't be launched: ptx line 7: unknown instruction tcgen05.ld", "kernel through can't be launched: ptx line 5: unknown instruction wgmma.fence"} {
		if !strings.Contains(log, line) {
			t.Errorf("the log of the module is %q, without %q", log, line)
		}
	}
	for _, l := range []struct {
		function int
		result   cuda.Result
	}{{0, cuda.ErrorInvalidPTX}, {1, cuda.Success}, {2, cuda.ErrorInvalidPTX}, {1, cuda.Success}} {
		w := newWaiter()
		got := c.Submit(c.DefaultStream(), accel.Launch{Module: m, Function: l.function, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}, w.done)
		want(t, got, l.result)
		if got == cuda.Success {
			want(t, w.wait(t), cuda.Success)
		}
	}
	if !strings.Contains(out.String(), "kernel refused") {
		t.Errorf("the device's log is %q", out.String())
	}

	// What is wrong otherwise is refused as ever, and so is this by default.
	if _, log, r := c.LoadModule([]byte(header + ".entry k() { add.u32 %r, 1, 2; }")); r != cuda.ErrorInvalidPTX {
		t.Errorf("an undeclared register: %v, %q", r, log)
	}
	_, strict := open(t, nil)
	if _, log, r := strict.LoadModule([]byte(text)); r != cuda.ErrorInvalidPTX || !strings.Contains(log, "line 5: unknown instruction wgmma.fence.sync.aligned") {
		t.Errorf("%v, %q", r, log)
	}
}
