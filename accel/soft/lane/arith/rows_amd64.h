// Parts of the kernels in zz_rows_amd64.s. DI points to the result, SI, DX and CX to the operands; R8, R9 and R10 are
// the distances between vectors of the operands, BX is the number of lanes that are left.

// OPERAND loads the pointer to an operand that is a row.
#define OPERAND(arg, pointer, step, bytes) \
	MOVQ arg(FP), pointer; \
	MOVL $bytes, step

// SCALARS skips what follows until the label ready if no operand is a single value.
#define SCALARS \
	MOVQ d+0(FP), DI; \
	MOVQ n+32(FP), BX; \
	MOVQ scalars+40(FP), AX; \
	TESTL AX, AX; \
	JEQ ready; \
	XORL R11, R11

// SINGLE makes an operand with its bit set in AX the vector at a place on the stack.
#define SINGLE(bit, place, pointer, step) \
	LEAQ place(SP), R12; \
	TESTL $bit, AX; \
	CMOVQNE R12, pointer; \
	CMOVQNE R11, step

// SPREAD32 and SPREAD64 do so with an operand of 32 bits, and with one of 64 bits, which takes two vectors.
#define SPREAD32(V, bit, place, pointer, step) \
	VPBROADCASTD (pointer), V; \
	VMOVUPS V, place(SP); \
	SINGLE(bit, place, pointer, step)

#define SPREAD64(V, bit, place, upper, pointer, step) \
	VPBROADCASTQ (pointer), V; \
	VMOVUPS V, place(SP); \
	VMOVUPS V, upper(SP); \
	SINGLE(bit, place, pointer, step)

// BITS adds the lowest bits of R11, one for each lane of a vector, to R12, which collects the bits of 64 lanes. It
// stores R12 each time; the last time the bits are complete.
#define BITS(lanes, others) \
	SHRQ $lanes, R12; \
	SHLQ $others, R11; \
	ORQ R11, R12; \
	MOVQ DI, R13; \
	ANDQ $~7, R13; \
	MOVQ R12, (R13)

// NEXT1, NEXT2 and NEXT3 end a loop over the rows of one, two and three operands, and the kernel.
#define NEXT1(bytes, lanes) \
	AGAIN(bytes, lanes); \
	VZEROUPPER; \
	RET

#define NEXT2(bytes, lanes) \
	ADDQ R9, DX; \
	NEXT1(bytes, lanes)

#define NEXT3(bytes, lanes) \
	ADDQ R10, CX; \
	NEXT2(bytes, lanes)

#define AGAIN(bytes, lanes) \
	ADDQ $bytes, DI; \
	ADDQ R8, SI; \
	SUBQ $lanes, BX; \
	JGT loop

// PART ends the loop of a kernel of one operand that may have left it early.
#define PART(bytes, lanes) \
	AGAIN(bytes, lanes); \
done: \
	MOVQ BX, ret+48(FP); \
	VZEROUPPER; \
	RET

// VECTOR defines a constant of equal words.
#define VECTOR(name, word) \
	DATA name<>+0(SB)/8, $word; \
	DATA name<>+8(SB)/8, $word; \
	DATA name<>+16(SB)/8, $word; \
	DATA name<>+24(SB)/8, $word; \
	DATA name<>+32(SB)/8, $word; \
	DATA name<>+40(SB)/8, $word; \
	DATA name<>+48(SB)/8, $word; \
	DATA name<>+56(SB)/8, $word; \
	GLOBL name<>(SB), RODATA|NOPTR, $64
