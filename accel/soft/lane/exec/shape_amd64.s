#include "textflag.h"

#define IRREGULAR $-0x8000000000000000

#define LOOK \
	MOVQ s+0(FP), DI; \
	MOVQ p+8(FP), SI; \
	MOVQ chunks+16(FP), CX; \
	LEAQ 32(DI), DX; \
	MOVQ IRREGULAR, R11

// NEXT notes the run of a chunk with its first address in R8 and its step in R9, where the flags say that it is regular.
#define NEXT(bytes) \
	CMOVQNE R11, R9; \
	MOVQ R8, 0(DX); \
	MOVQ R9, 8(DX); \
	ADDQ $16, DX; \
	ADDQ $bytes, SI; \
	DECQ CX; \
	JNZ loop

// FOLD combines the halves of a register of 64-bit lanes: what is left is in two lanes.
#define FOLD512(OP, Z, Y, X) \
	VEXTRACTI64X4 $1, Z, Y0; \
	OP Y0, Y, Y; \
	VEXTRACTI128 $1, Y, X0; \
	OP X0, X, X; \
	VPSHUFD $0x4e, X, X0; \
	OP X0, X, X

// FOLD32 is FOLD512 for 32-bit lanes of 256 bits.
#define FOLD32(OP, Y, X, at) \
	VEXTRACTI128 $1, Y, X0; \
	OP X0, X, X; \
	VPSHUFD $0x4e, X, X0; \
	OP X0, X, X; \
	VPSHUFD $0xb1, X, X0; \
	OP X0, X, X; \
	VMOVD X, R8; \
	MOVQ R8, at(DI)

// FOLD256 is FOLD512 for 256 bits, with a macro that combines its second operand with the first.
#define LEAST(Y, L, M) \
	VPCMPGTQ Y, L, M; \
	VBLENDVPD M, Y, L, L

#define GREATEST(Y, G, M) \
	VPCMPGTQ G, Y, M; \
	VBLENDVPD M, Y, G, G

#define EITHER(Y, B, M) \
	VPOR Y, B, B

#define FOLD256(OP, Y, X) \
	VEXTRACTI128 $1, Y, X0; \
	OP(X0, X, X1); \
	VPSHUFD $0x4e, X, X0; \
	OP(X0, X, X1)

// ALL4 looks at the 4 lanes in a register, with their top bits flipped so that signed comparisons order them.
#define ALL4(Y) \
	VPOR Y, Y12, Y12; \
	VPXOR Y9, Y, Y; \
	LEAST(Y, Y10, Y8); \
	GREATEST(Y, Y11, Y8)

// Each look function is shape.lookPlain for whole chunks of 16 addresses. The fields of a
// shape are low at 0, high at 8, bits at 16, differ at 24, runs from 32 on: first at 0, step at 8.
// Regular chunks are those where all 15 differences between lanes that follow
// each other are the first one. Loads of the second operands reach one lane
// beyond a chunk, which rows have room for.

DATA ·counting+0(SB)/8, $0
DATA ·counting+8(SB)/8, $1
DATA ·counting+16(SB)/8, $2
DATA ·counting+24(SB)/8, $3
DATA ·counting+32(SB)/8, $4
DATA ·counting+40(SB)/8, $5
DATA ·counting+48(SB)/8, $6
DATA ·counting+56(SB)/8, $7
GLOBL ·counting(SB), RODATA|NOPTR, $64

// line64AVX512 is look64AVX512 if all chunks are one run, with a step of few bits. It writes only the first.
// func line64AVX512(s *shape, p unsafe.Pointer, chunks int) bool
TEXT ·line64AVX512(SB), NOSPLIT, $0-25
	LOOK
	MOVQ (SI), R8
	MOVQ 8(SI), R9
	SUBQ R8, R9
	MOVLQSX R9, R10
	CMPQ R10, R9
	JNE none
	VPBROADCASTQ R8, Z0
	VPBROADCASTQ R9, Z1
	VPMULLQ ·counting(SB), Z1, Z2
	VPADDQ Z2, Z0, Z0  // what the next 8 lanes have
	VPSLLQ $3, Z1, Z1
	MOVQ CX, BX
check:
	VPCMPEQQ (SI), Z0, K1
	VPADDQ Z1, Z0, Z0
	VPCMPEQQ 64(SI), Z0, K2
	VPADDQ Z1, Z0, Z0
	KANDB K2, K1, K1
	KORTESTB K1, K1
	JCC none
	ADDQ $128, SI
	DECQ BX
	JNZ check
	// The first and the last address are the ends, unless they go beyond what 64 bits hold.
	MOVQ CX, R10
	SHLQ $4, R10
	DECQ R10
	IMULQ R9, R10
	ADDQ R8, R10
	MOVQ R8, R11
	TESTQ R9, R9
	JGE rising
	XCHGQ R10, R11
rising:
	CMPQ R11, R10
	JHI none
	MOVQ R11, 0(DI)
	MOVQ R10, 8(DI)
	MOVQ R8, R11
	ORQ R9, R11
	MOVQ R11, 16(DI)
	TESTQ R9, R9
	SETNE 24(DI)
	MOVQ R8, 0(DX)
	MOVQ R9, 8(DX)
	VZEROUPPER
	MOVB $1, ret+24(FP)
	RET
none:
	VZEROUPPER
	MOVB $0, ret+24(FP)
	RET

// func look64AVX512(s *shape, p unsafe.Pointer, chunks int)
TEXT ·look64AVX512(SB), NOSPLIT, $0-24
	LOOK
	VPTERNLOGQ $0xff, Z10, Z10, Z10 // least
	VPXORQ Z11, Z11, Z11            // greatest
	VPXORQ Z12, Z12, Z12            // bits
	KXORW K3, K3, K3                // lanes whose next has the same address
loop:
	VMOVDQU64 (SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 8(SI), Z2
	VMOVDQU64 72(SI), Z3
	VPMINUQ Z0, Z10, Z10
	VPMAXUQ Z0, Z11, Z11
	VPMINUQ Z1, Z10, Z10
	VPMAXUQ Z1, Z11, Z11
	VPTERNLOGQ $0xfe, Z0, Z1, Z12
	VPSUBQ Z0, Z2, Z2
	VPSUBQ Z1, Z3, Z3
	VPBROADCASTQ X2, Z4
	VPTESTNMQ Z2, Z2, K4
	VPTESTNMQ Z3, Z3, K5
	KORW K4, K3, K3
	KORW K5, K3, K3
	VPCMPEQQ Z4, Z2, K1
	VPCMPEQQ Z4, Z3, K2
	KMOVB K1, AX
	KMOVB K2, BX
	ORL $0x80, BX
	ANDL BX, AX
	MOVQ (SI), R8
	VMOVQ X2, R9
	CMPL AX, $0xff
	NEXT(128)
	KORTESTW K3, K3
	SETEQ 24(DI)
	FOLD512(VPMINUQ, Z10, Y10, X10)
	FOLD512(VPMAXUQ, Z11, Y11, X11)
	FOLD512(VPORQ, Z12, Y12, X12)
	VMOVQ X10, 0(DI)
	VMOVQ X11, 8(DI)
	VMOVQ X12, 16(DI)
	VZEROUPPER
	RET

// look32AVX2 multiplies the runs by scale, but not what it says of all addresses.
// func look32AVX2(s *shape, p unsafe.Pointer, chunks int, scale uint64)
TEXT ·look32AVX2(SB), NOSPLIT, $0-32
	LOOK
	MOVQ scale+24(FP), R12
	VPCMPEQD Y10, Y10, Y10 // least
	VPXOR Y11, Y11, Y11    // greatest
	VPXOR Y12, Y12, Y12    // bits
loop:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 4(SI), Y2
	VMOVDQU 36(SI), Y3
	VPMINUD Y0, Y10, Y10
	VPMAXUD Y0, Y11, Y11
	VPOR Y0, Y12, Y12
	VPMINUD Y1, Y10, Y10
	VPMAXUD Y1, Y11, Y11
	VPOR Y1, Y12, Y12
	VPSUBD Y0, Y2, Y2
	VPSUBD Y1, Y3, Y3
	VPBROADCASTD X2, Y4
	VPCMPEQD Y4, Y2, Y2
	VPCMPEQD Y4, Y3, Y3
	VMOVMSKPS Y2, AX
	VMOVMSKPS Y3, BX
	ORL $0x80, BX
	ANDL BX, AX
	MOVL (SI), R8
	VMOVD X4, R9
	MOVLQSX R9, R9
	// Addresses that go on beyond 32 bits are irregular.
	MOVQ R9, R10
	IMULQ $15, R10
	ADDQ R8, R10
	SHRQ $32, R10
	SHLQ $8, R10
	ORQ R10, AX
	IMULQ R12, R8
	IMULQ R12, R9
	CMPQ AX, $0xff
	NEXT(64)
	FOLD32(VPMINUD, Y10, X10, 0)
	FOLD32(VPMAXUD, Y11, X11, 8)
	FOLD32(VPOR, Y12, X12, 16)
	VZEROUPPER
	RET

// func look64AVX2(s *shape, p unsafe.Pointer, chunks int)
TEXT ·look64AVX2(SB), NOSPLIT, $0-24
	LOOK
	VMOVQ R11, X9
	VPBROADCASTQ X9, Y9
	VPCMPEQD Y10, Y10, Y10
	VPSRLQ $1, Y10, Y10    // least: the greatest signed number
	VMOVDQA Y9, Y11        // greatest: the least one
	VPXOR Y12, Y12, Y12    // bits
loop:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	VMOVDQU 8(SI), Y4
	VPSUBQ Y0, Y4, Y4
	VPBROADCASTQ X4, Y5
	VMOVQ X4, R9
	VPCMPEQQ Y5, Y4, Y4
	VMOVDQU 40(SI), Y6
	VPSUBQ Y1, Y6, Y6
	VPCMPEQQ Y5, Y6, Y6
	VPAND Y6, Y4, Y4
	VMOVDQU 72(SI), Y6
	VPSUBQ Y2, Y6, Y6
	VPCMPEQQ Y5, Y6, Y6
	VPAND Y6, Y4, Y4
	VMOVDQU 104(SI), Y6
	VPSUBQ Y3, Y6, Y6
	VPCMPEQQ Y5, Y6, Y6
	VMOVMSKPD Y4, AX
	VMOVMSKPD Y6, BX
	ORL $8, BX
	ANDL BX, AX
	ALL4(Y0)
	ALL4(Y1)
	ALL4(Y2)
	ALL4(Y3)
	MOVQ (SI), R8
	CMPL AX, $0xf
	NEXT(128)
	FOLD256(LEAST, Y10, X10)
	FOLD256(GREATEST, Y11, X11)
	FOLD256(EITHER, Y12, X12)
	VPXOR X9, X10, X10
	VPXOR X9, X11, X11
	VMOVQ X10, 0(DI)
	VMOVQ X11, 8(DI)
	VMOVQ X12, 16(DI)
	VZEROUPPER
	RET

// func sameChunksAVX512(p unsafe.Pointer, differences *[chunk]uint32, chunks int) bool
TEXT ·sameChunksAVX512(SB), NOSPLIT, $0-25
	MOVQ p+0(FP), SI
	MOVQ differences+8(FP), DI
	MOVQ chunks+16(FP), CX
	VMOVDQU32 (DI), Z0
	MOVB $0, ret+24(FP)
loop:
	VMOVDQU32 (SI), Z1
	VPBROADCASTD (SI), Z2
	VPSUBD Z2, Z1, Z1
	VPCMPEQD Z0, Z1, K1
	KORTESTW K1, K1
	JCC done
	ADDQ $64, SI
	DECQ CX
	JNZ loop
	MOVB $1, ret+24(FP)
done:
	VZEROUPPER
	RET
