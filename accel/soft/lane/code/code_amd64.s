#include "textflag.h"

// func call(entry uintptr, frame unsafe.Pointer)
TEXT ·call(SB), NOSPLIT, $0-16
	MOVQ entry+0(FP), AX
	MOVQ frame+8(FP), DI
	CALL AX
	VZEROUPPER
	RET
