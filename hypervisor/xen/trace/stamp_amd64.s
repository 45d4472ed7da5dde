#include "textflag.h"

// func stamp() uint64
TEXT ·stamp(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
