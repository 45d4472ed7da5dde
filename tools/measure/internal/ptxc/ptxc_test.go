package ptxc

import (
	"strings"
	"testing"

	"pegasus/accel/ptx"
)

func translate(t *testing.T, body string) (string, error) {
	t.Helper()
	m, err := ptx.Parse([]byte(`.version 7.0
.target sm_80
.address_size 64
.entry k(.param .u64 out) {
	.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .f32 %f<4>;
	` + body + `
	ret;
}`))
	if err != nil {
		t.Fatal(err)
	}
	return Translate(m)
}

func TestTranslate(t *testing.T) {
	for body, want := range map[string]string{
		"add.u32 %r1, %r2, -1;":              "(uint32_t)a + (uint32_t)b",
		"mul.wide.s32 %d1, %r1, %r2;":        "(int64_t)a * b",
		"fma.rn.ftz.f32 %f1, %f2, %f3, %f1;": "flush(fmaf(a, b, c))",
		"setp.ltu.f32 %p1, %f1, %f2;":        "!(a >= b)",
		"@!%p1 bar.sync 0;":                  "",
		"bar.sync 0; mov.u32 %r2, %r1;":      "t->r5 = r5;",
	} {
		text, err := translate(t, body)
		if want == "" {
			if err == nil {
				t.Errorf("%s is translated", body)
			}
			continue
		}
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, want %q in\n%s", body, err, want, text[strings.Index(text, "static inline __attribute__"):])
		}
	}
}

// An unsupported instruction is refused by its line, rather than translated wrongly.
func TestRefuses(t *testing.T) {
	for _, body := range []string{
		"add.rz.f32 %f1, %f2, %f3;",
		"add.sat.s32 %r1, %r2, %r3;",
		"add.cc.u32 %r1, %r2, %r3;",
		"bfe.s32 %r1, %r2, 1, 2;",
		"min.f32 %f1, %f2, %f3;",
		"cvt.rzi.s32.f32 %r1, %f1;",
		"shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;",
		"bar.red.popc.u32 %r1, 0, %p1;",
		"bar.sync 1, 64;",
		"mov.u32 %r1, %clock;",
		"cvta.to.shared.u64 %d1, %d2;",
		"ld.local.u32 %r1, [%d1];",
		"atom.global.inc.u32 %r1, [%d1], %r2;",
		"prmt.b32 %r1, %r2, %r3, 0x5410;",
	} {
		if text, err := translate(t, body); err == nil || !strings.Contains(err.Error(), "line 6") {
			t.Errorf("%s: %v, want a refusal of line 6\n%s", body, err, text)
		}
	}
}
