package main

import "strings"

// common are the operations that account for 0.1 % of the computed lanes in one of the programs that were measured, or
// for instructions that are frequent in public modules (docs/results/rows-2026-11-30.md). These have a kernel in each
// instruction set. Others have one in AVX2, or in AVX-512 if AVX2 lacks the instructions.
var common = set(`
	absF64 absS32 addF32 addF64 addFtzF32 addU32 addU64 andU32 andU64 bfeU32 cmpeqF32 cmpeqU32 cmpeqU64 cmpleF32
	cmpleF64 cmpleS32 cmpleU32 cmpleU64 cmpleuF32 cmpleuF64 cmpltF32 cmpltF64 cmpltS32 cmpltU32 cmpltU64 cmpltuF32
	cmpneU32 cmpneU64 cmpnumF64 copyF32 cosF32 cvtF32S32 cvtF32U32 cvtF64S32 cvtS16 cvtS32F32 cvtS64S32 cvtS8 cvtU16
	cvtU32U64 cvtU64U32 divApproxF32 divF32 divF64 divS32 divU32 ex2FtzF32 floorF32 flushF32 fmaF32 fmaFtzF32
	lg2FtzF32 madU32 madU64 madWideS madWideU maxF32 maxF64 maxS32 maxU32 minS32 minU32 movU32 movU64 mul24U32
	mulF32 mulF64 mulFtzF32 mulU32 mulU64 negF32 negU32 orU32 orU64 packU64 rcpF32 remS32 remU32 rsqrtFtzF32 satF32
	selectU32 selectU64 shlU32 shlU64 shrS32 shrU32 shrU64 sinF32 sqrtF32 sqrtF64 subF32 subF64 subFtzF32 subU32
	subU64 texelBetween texelBlend texelFirst texelNearest texelRatio texelRound texelTowards upperU64 wideU xorU32
`)

// rare are the operations without a kernel, for which the plain loop does.
var rare = set("brevU64 bfeU64 bfeS64 bfiU64 mul24HiU32 mul24HiS32")

func set(names string) map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(names) {
		m[name] = true
	}
	return m
}
