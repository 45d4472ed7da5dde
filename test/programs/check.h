/* What the test programs share: a call that must succeed, and kernels. */
#pragma once

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                              \
	do {                                                                                     \
		CUresult r_ = (call);                                                            \
		if (r_ != CUDA_SUCCESS) {                                                        \
			const char *name_ = "?";                                                 \
			cuGetErrorName(r_, &name_);                                              \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, name_);    \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)

/* step: *at = *at * a + b. No two orders of different steps give the same.
 * move: *to = *from. spin: takes so many steps. */
static const char step_ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry step(.param .u64 at, .param .u32 a, .param .u32 b)\n{\n"
	"	.reg .u64 %p;\n	.reg .u32 %a, %b, %v;\n"
	"	ld.param.u64 %p, [at];\n	ld.param.u32 %a, [a];\n	ld.param.u32 %b, [b];\n"
	"	ld.global.u32 %v, [%p];\n	mad.lo.u32 %v, %v, %a, %b;\n	st.global.u32 [%p], %v;\n	ret;\n}\n"
	".visible .entry move(.param .u64 to, .param .u64 from)\n{\n"
	"	.reg .u64 %t, %f;\n	.reg .u32 %v;\n"
	"	ld.param.u64 %t, [to];\n	ld.param.u64 %f, [from];\n"
	"	ld.global.u32 %v, [%f];\n	st.global.u32 [%t], %v;\n	ret;\n}\n"
	".visible .entry spin(.param .u32 steps)\n{\n"
	"	.reg .u32 %n;\n	.reg .pred %p;\n	ld.param.u32 %n, [steps];\n"
	"again:\n	sub.u32 %n, %n, 1;\n	setp.ne.u32 %p, %n, 0;\n	@%p bra again;\n	ret;\n}\n";

static inline void launch_step(CUfunction f, CUstream s, CUdeviceptr at, unsigned a, unsigned b)
{
	void *args[] = { &at, &a, &b };
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
}

static inline void launch_move(CUfunction f, CUstream s, CUdeviceptr to, CUdeviceptr from)
{
	void *args[] = { &to, &from };
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
}
