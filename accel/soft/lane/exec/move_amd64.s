#include "textflag.h"

// Each mover takes chunks of 16 lanes between a row and memory, as long as
// lanes that follow each other have elements that do, or, loading, all the same one.

#define MOVE \
	MOVQ row+0(FP), DI; \
	MOVQ mem+8(FP), SI; \
	ADDQ off+16(FP), SI; \
	MOVQ runs+24(FP), DX; \
	MOVQ chunks+32(FP), CX; \
	XORL AX, AX

#define AGAIN(bytes) \
	ADDQ $bytes, DI; \
	ADDQ $16, DX; \
	INCQ AX; \
	CMPQ AX, CX; \
	JLT loop

#define MOVED \
	VZEROUPPER; \
	MOVQ AX, ret+40(FP); \
	RET

#define LOAD32(size, EACH, ONE) \
	MOVE; \
loop: \
	MOVQ (DX), R8; \
	ADDQ SI, R8; \
	MOVQ 8(DX), R9; \
	CMPQ R9, $size; \
	JNE other; \
	EACH; \
put: \
	VMOVDQU Y0, (DI); \
	VMOVDQU Y1, 32(DI); \
	AGAIN(64); \
done: \
	MOVED; \
other: \
	TESTQ R9, R9; \
	JNZ done; \
	ONE; \
	VMOVDQA Y0, Y1; \
	JMP put

#define EACH8 \
	VPMOVZXBD (R8), Y0; \
	VPMOVZXBD 8(R8), Y1

#define ONE8 \
	MOVBLZX (R8), R9; \
	VMOVD R9, X0; \
	VPBROADCASTD X0, Y0

#define EACH16 \
	VPMOVZXWD (R8), Y0; \
	VPMOVZXWD 16(R8), Y1

#define ONE16 \
	MOVWLZX (R8), R9; \
	VMOVD R9, X0; \
	VPBROADCASTD X0, Y0

#define EACH32 \
	VMOVDQU (R8), Y0; \
	VMOVDQU 32(R8), Y1

#define ONE32 \
	VPBROADCASTD (R8), Y0

#define STORE(size, bytes, EACH) \
	MOVE; \
loop: \
	MOVQ 8(DX), R9; \
	CMPQ R9, $size; \
	JNE done; \
	MOVQ (DX), R8; \
	ADDQ SI, R8; \
	EACH; \
	AGAIN(bytes); \
done: \
	MOVED

// NARROW takes the bits that are set in Y2, at most 16 of each lane, to Y0.
#define NARROW \
	VPAND (DI), Y2, Y0; \
	VPAND 32(DI), Y2, Y1; \
	VPACKUSDW Y1, Y0, Y0; \
	VPERMQ $0xd8, Y0, Y0

#define PUT8 \
	NARROW; \
	VEXTRACTI128 $1, Y0, X1; \
	VPACKUSWB X1, X0, X0; \
	VMOVDQU X0, (R8)

#define PUT16 \
	NARROW; \
	VMOVDQU Y0, (R8)

#define PUT32(at) \
	VMOVDQU at(DI), Y0; \
	VMOVDQU at+32(DI), Y1; \
	VMOVDQU Y0, at(R8); \
	VMOVDQU Y1, at+32(R8)

#define PUT4S PUT32(0)

#define PUT8S PUT32(0); PUT32(64)

// func load8AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
TEXT ·load8AVX2(SB), NOSPLIT, $0-48
	LOAD32(1, EACH8, ONE8)

// func load16AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
TEXT ·load16AVX2(SB), NOSPLIT, $0-48
	LOAD32(2, EACH16, ONE16)

// func load32AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
TEXT ·load32AVX2(SB), NOSPLIT, $0-48
	LOAD32(4, EACH32, ONE32)

// func load64AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
TEXT ·load64AVX2(SB), NOSPLIT, $0-48
	MOVE
loop:
	MOVQ (DX), R8
	ADDQ SI, R8
	MOVQ 8(DX), R9
	CMPQ R9, $8
	JNE other
	VMOVDQU (R8), Y0
	VMOVDQU 32(R8), Y1
	VMOVDQU 64(R8), Y2
	VMOVDQU 96(R8), Y3
put:
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	VMOVDQU Y2, 64(DI)
	VMOVDQU Y3, 96(DI)
	AGAIN(128)
done:
	MOVED
other:
	TESTQ R9, R9
	JNZ done
	VPBROADCASTQ (R8), Y0
	VMOVDQA Y0, Y1
	VMOVDQA Y0, Y2
	VMOVDQA Y0, Y3
	JMP put

// func store8AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
TEXT ·store8AVX2(SB), NOSPLIT, $0-48
	VPCMPEQD Y2, Y2, Y2
	VPSRLD $24, Y2, Y2
	STORE(1, 64, PUT8)

// func store16AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
TEXT ·store16AVX2(SB), NOSPLIT, $0-48
	VPCMPEQD Y2, Y2, Y2
	VPSRLD $16, Y2, Y2
	STORE(2, 64, PUT16)

// func store32AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
TEXT ·store32AVX2(SB), NOSPLIT, $0-48
	STORE(4, 64, PUT4S)

// func store64AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
TEXT ·store64AVX2(SB), NOSPLIT, $0-48
	STORE(8, 128, PUT8S)
