package ptx

import (
	"errors"
	"strings"
	"testing"
)

// Text that fits no form of floats of 16 bits, matrices and copies is refused, with its line.
func TestMatrixMistakes(t *testing.T) {
	const open = head + ".global .align 16 .b8 g[64]; .shared .align 16 .b8 s[64];\n" +
		".entry k() { .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %a<4>; .reg .f32 %f<4>;\n"
	for text, msg := range map[string]string{
		".reg .bf16 %x;":                       "registers of type .bf16 are not supported",
		".shared .u4 x;":                       "unknown type .u4",
		"add.f16 %h1, %h2, 0f3F800000;":        "operand 3 is not a value",
		"add.f16 %h1, %h2, %r1;":               "operand 3 is not a value",
		"add.sat.bf16 %h1, %h2, %h3;":          "unknown form",
		"fma.f16 %h1, %h2, %h3, %h1;":          "unknown form",
		"min.xorsign.f16 %h1, %h2, %h3;":       "unknown form",
		"ex2.approx.bf16 %h1, %h2;":            "unknown form",
		"cvt.f16.f32 %h1, %f1;":                "unknown form",
		"cvt.rn.e4m3x2.f32 %h1, %f1, %f2;":     "unknown form",
		"cvt.rn.f16x2.f32 %r1, %f1;":           "has 2 operands",
		"cvt.rna.f32.f32 %f1, %f2;":            "unknown form",
		"cvt.pack.sat.u8.s32 %r1, %r2, %r3;":   "unknown form",
		"atom.global.add.f16 %h1, [%a1], %h2;": "unknown form",
		"mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32 {%f0}, %r1, %r1, {%f0};":                                          "unknown form",
		"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r1}, {%r1}, {%f0,%f1,%f2,%f3};":              "operand 2 is not a vector of as many",
		"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r1,%h1}, {%r1}, {%f0,%f1,%f2,%f3};":          "operand 2 is not a value",
		"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,1}, {%r1,%r2}, {%r1}, {%f0,%f1,%f2,%f3};":            "operand 1 is not a register",
		"mma.sync.aligned.m16n8k8.row.col.f32.bf16.f16.f32 {%f0,%f1,%f2,%f3}, {%r1,%r2}, {%r1}, {%f0,%f1,%f2,%f3};":         "unknown form",
		"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r1,%r2}, {%r1}, {%f0,%f1,%f2,%f3}, %r1;": "modifier .sp",
		"wmma.load.a.sync.aligned.col.m8n8k32.s4 %r1, [%a1];":                                                               "unknown form",
		"wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 %r1, [g];":                                                          "is in .global",
		"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2];":                                                            "operand 1 is not a vector",
		"stmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%r2];":                                                                   "operand 1 is not an address",
		"cp.async.cg.shared.global [%r1], [%a1], 8;":                                                                        "not a size that can be copied",
		"cp.async.ca.shared.global [%r1], [%a1], %r2;":                                                                      "not a size that can be copied",
		"cp.async.ca.shared.global [g], [%a1], 8;":                                                                          "operand 1 is in .global",
		"cp.async.ca.shared.global [s], [s], 8;":                                                                            "operand 2 is in .shared",
		"cp.async.ca.shared.global.L2::cache_hint [s], [g], 8, %r1, %r2;":                                                   "not a cache policy",
		"cp.async.bulk.shared.global [s], [g], 8;":                                                                          "unknown form",
		"cp.async.bulk.tensor.1d.shared.global [s], [g], 8;":                                                                "modifier .tensor",
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [g], [g], 16, [s];":                              "operand 1 is in .global",
		"cp.async.bulk.global.shared::cta.bulk_group [g], [g], 16;":                                                         "operand 2 is in .global",
		"mbarrier.init.shared.b64 [g], 1;":                                                                                  "is in .global",
		"mbarrier.arrive.shared.b64 %r1, [s];":                                                                              "operand 1 is not a register",
		"mbarrier.test_wait.shared.b64 %p1, [s], %r1;":                                                                      "operand 3 is not a value",
	} {
		_, err := Parse([]byte(open + text + " ret; }"))
		var e *Error
		if !errors.As(err, &e) || e.Line != 6 || !strings.Contains(e.Msg, msg) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
