package lane

import (
	"bytes"
	"strings"
	"testing"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/compile"
	"pegasus/accel/soft/lane/exec"
	"pegasus/guest/bench/kernels"
)

// largest is the largest PTX module of libavfilter, that of scale_cuda.
func largest(tb testing.TB) (text []byte) {
	for _, m := range ffmpegModules(tb) {
		if bytes.Contains(m, []byte("Subsample_Bilinear_nv12_nv12")) {
			return m
		}
	}
	tb.Fatal("libavfilter has no scale_cuda")
	return nil
}

// A kernel of a small module is compiled when the module is loaded; one of a large module, or one with calls of unknown
// functions, when it is launched.
func TestCompiledAtOnce(t *testing.T) {
	const head = ".version 7.0\n.target sm_75\n.address_size 64\n"
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"small", head + ".func f() { ret; }\n.entry k() { call f; ret; }", true},
		{"large", head + ".entry k() { .reg .b32 %r; " + strings.Repeat("mov.b32 %r, 0; ", compiledAtOnce) + "ret; }", false},
		{"many calls", head + ".func f() { " + strings.Repeat("trap; ", 400) + "ret; }\n.entry k() { " + strings.Repeat("call f; ", 40) + "ret; }", false},
		{"many registers", head + ".func f() { .reg .b32 %r<10000>; ret; }\n.entry k() { call f; ret; }", false},
		{"recursive", head + ".func f() { call f; ret; }\n.entry k() { call f; ret; }", false},
		{"by address", head + ".func f() { ret; }\n.entry k() { .reg .b64 %a; p: .callprototype _; mov.b64 %a, f; call %a, p; ret; }", false},
	} {
		d := newDevice(t)
		if k := d.kernel(d.load([]byte(c.text)), "k"); (k.prog.Load() != nil) != c.want {
			t.Errorf("%s: compiled at once: %v, want %v", c.name, !c.want, c.want)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := largest(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ptx.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

// The time of a first launch before a block runs.
func BenchmarkCompile(b *testing.B) {
	for _, name := range kernels.Names() {
		b.Run(name, func(b *testing.B) {
			image := newDevice(b).load(kernels.PTX(name))
			b.ReportAllocs()
			for b.Loop() {
				for _, f := range image.layout.Module.Kernels {
					program, err := compile.Kernel(image.layout, f)
					if err != nil {
						b.Fatal(err)
					}
					exec.Bind(program)
				}
			}
		})
	}
}
