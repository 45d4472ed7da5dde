package soft

import (
	"bytes"
	"fmt"
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

	// Other errors are refused as before, and so is this by default.
	if _, log, r := c.LoadModule([]byte(header + ".entry k() { add.u32 %r, 1, 2; }")); r != cuda.ErrorInvalidPTX {
		t.Errorf("an undeclared register: %v, %q", r, log)
	}
	_, strict := open(t, nil)
	if _, log, r := strict.LoadModule([]byte(text)); r != cuda.ErrorInvalidPTX || !strings.Contains(log, "line 5: function odd: unknown instruction wgmma.fence.sync.aligned") {
		t.Errorf("%v, %q", r, log)
	}
}

// crowded is the text of a kernel with so many registers of 64 bits that are alive at a time.
func crowded(name string, registers int) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".visible .entry %s(.param .u64 at) {\n.reg .u64 %%p, %%v, %%r<%d>;\nld.param.u64 %%p, [at];\n", name, registers)
	for i := range registers {
		fmt.Fprintf(&b, "ld.global.u64 %%r%d, [%%p];\n", i)
	}
	b.WriteString("mov.u64 %v, 0;\n")
	for i := range registers {
		fmt.Fprintf(&b, "add.u64 %%v, %%v, %%r%d;\n", i)
	}
	b.WriteString("st.global.u64 [%p], %v;\nret;\n}\n")
	return b.String()
}

// An error that only compiling finds is refused when a module is loaded, however large it is.
func TestRefusedByCompiling(t *testing.T) {
	text := header + ".visible .entry sound(.param .u64 at) { ret; }\n" + crowded("crowded", 17_000)
	_, c := open(t, nil)
	_, log, r := c.LoadModule([]byte(text))
	if r != cuda.ErrorInvalidPTX || !strings.Contains(log, "ptx line 5: kernel crowded needs too many registers at a time") {
		t.Errorf("%v, %q", r, log)
	}

	long := header + ".visible .entry lengthy() {\n.reg .u32 %r;\n" + strings.Repeat("add.u32 %r, %r, 1;\n", 1<<18+1) + "ret;\n}\n"
	_, log, r = c.LoadModule([]byte(long))
	if r != cuda.ErrorInvalidPTX || !strings.Contains(log, "ptx line 4: kernel lengthy: more than 262144 instructions") {
		t.Errorf("%v, %q", r, log)
	}

	_, c = open(t, func(c *Config) { c.RefusePTX = ptx.AtLaunch })
	m, log, r := c.LoadModule([]byte(text))
	want(t, r, cuda.Success)
	if !strings.Contains(log, "kernel crowded can't be launched: ptx line 5: ") {
		t.Errorf("the log is %q", log)
	}
	if f := m.Layout().Functions; f[0].Refusal != cuda.TryFirst || f[1].Refusal != int32(cuda.ErrorInvalidPTX) {
		t.Errorf("refusals %d and %d", f[0].Refusal, f[1].Refusal)
	}
	one := [3]uint32{1, 1, 1}
	want(t, c.Submit(c.DefaultStream(), accel.Launch{Module: m, Function: 1, Grid: one, Block: one, Params: make([]byte, 8)}, nil), cuda.ErrorInvalidPTX)
	want(t, c.Submit(c.DefaultStream(), accel.Launch{Module: m, Function: 0, Grid: one, Block: one, Params: make([]byte, 8)}, nil), cuda.Success)
	want(t, synchronize(t, c), cuda.Success)
}

// A block with too much local memory is refused when it is launched, and the context lives. The attributes have the limit.
func TestLocalMemoryOfBlocks(t *testing.T) {
	const text = header + `.visible .entry k() { .local .align 8 .b8 m[BYTES]; .reg .b64 %p; mov.u64 %p, m; st.local.u32 [%p], 1; ret; }
.func below() { .local .align 8 .b8 m[BYTES]; .reg .b64 %p; mov.u64 %p, m; st.local.u32 [%p], 1; ret; }
.visible .entry calls() { call below; call below; ret; }
`
	_, c := open(t, nil)
	for bytes, most := range map[string]int32{"16": 1024, "65536": 1024, "65544": 1023, "400000": 167, "524288": 128} {
		m := load(t, c, strings.ReplaceAll(text, "BYTES", bytes))
		for i, f := range m.Layout().Functions {
			if f.MaxThreads != most {
				t.Errorf("%s with %s bytes: %d threads, want %d", f.Name, bytes, f.MaxThreads, most)
			}
			for threads, result := range map[int32]cuda.Result{most: cuda.Success, most + 1: cuda.ErrorLaunchOutOfResources} {
				if threads > maxBlockThreads {
					continue
				}
				w := newWaiter()
				got := c.Submit(c.DefaultStream(), accel.Launch{Module: m, Function: i, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{uint32(threads), 1, 1}}, w.done)
				want(t, got, result)
				if got == cuda.Success {
					want(t, w.wait(t), cuda.Success)
				}
			}
		}
		m.Unload()
	}
	want(t, c.Err(), cuda.Success)
}

// An error that compiling finds at the first launch is the launch's result, with the reason on the program's stderr,
// once; the context lives.
func TestRefusedAtFirstLaunch(t *testing.T) {
	_, c := open(t, nil)
	m := goModule(c, 0, func(*run) *fault { return nil })
	m.functions[0].code = uncompilable{}
	for range 2 {
		want(t, c.Submit(c.DefaultStream(), launchOf(m), nil), cuda.ErrorNotSupported)
	}
	text := make([]byte, 1000)
	n, file, left := c.ReadOutput(text)
	if s := string(text[:n]); file != accel.Stderr || left != 0 || s != "pegasus: kernel kernel can't be launched: ptx line 7: too much\n" {
		t.Errorf("file %v has %q, and %d bytes are left", file, s, left)
	}
	want(t, synchronize(t, c), cuda.Success)
}

type uncompilable struct{ goCode }

func (uncompilable) prepare() error {
	return &ptx.Error{Line: 7, Msg: "too much", Result: ptx.ErrNotSupported}
}
