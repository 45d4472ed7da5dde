/*
 * A cooperative grid of the largest size that the device reports: in each round all blocks meet, and each reads the
 * value that the next one has written.
 */
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

enum { THREADS = 256, ROUNDS = 20 };

/*
 * meet: blocks until all n blocks have come, after due earlier arrivals. meets: whether the launch has the memory for
 * cooperative groups. ring: mine[b] = mine[(b + 1) % n] + 1 in all blocks at once, rounds times; *arrived counts
 * blocks.
 */
static const char ptx[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".func meet(.param .u64 arrived, .param .u32 n, .param .u32 due)\n{\n"
	"	.reg .b32 %n, %due, %a;\n	.reg .b64 %c;\n	.reg .pred %p;\n"
	"	ld.param.u64 %c, [arrived];\n	ld.param.u32 %n, [n];\n	ld.param.u32 %due, [due];\n	add.u32 %due, %due, %n;\n"
	"	bar.sync 0;\n	mov.u32 %a, %tid.x;\n	setp.ne.u32 %p, %a, 0;\n	@%p bra met;\n	membar.gl;\n	red.global.add.u32 [%c], 1;\n"
	"wait:\n	ld.volatile.global.u32 %a, [%c];\n	setp.lt.u32 %p, %a, %due;\n	@%p bra wait;\n	membar.gl;\n"
	"met:\n	bar.sync 0;\n	ret;\n}\n"
	".visible .entry ring(.param .u64 mine, .param .u64 arrived, .param .u32 rounds)\n{\n"
	"	.reg .b32 %b, %n, %v, %due, %a, %round, %rounds;\n	.reg .b64 %m, %c, %o, %from, %to;\n	.reg .pred %first, %p;\n"
	"	ld.param.u64 %m, [mine];\n	ld.param.u64 %c, [arrived];\n	ld.param.u32 %rounds, [rounds];\n"
	"	mov.u32 %b, %ctaid.x;\n	mov.u32 %n, %nctaid.x;\n	mul.wide.u32 %o, %b, 4;\n	add.u64 %to, %m, %o;\n"
	"	add.u32 %b, %b, 1;\n	rem.u32 %b, %b, %n;\n	mul.wide.u32 %o, %b, 4;\n	add.u64 %from, %m, %o;\n"
	"	mov.u32 %a, %tid.x;\n	setp.eq.u32 %first, %a, 0;\n	mov.u32 %due, 0;\n	mov.u32 %round, 0;\n"
	"again:\n	ld.volatile.global.u32 %v, [%from];\n	add.u32 %v, %v, 1;\n"
	"	call meet, (%c, %n, %due);\n	add.u32 %due, %due, %n;\n"
	"	@%first st.volatile.global.u32 [%to], %v;\n"
	"	call meet, (%c, %n, %due);\n	add.u32 %due, %due, %n;\n"
	"	add.u32 %round, %round, 1;\n	setp.lt.u32 %p, %round, %rounds;\n	@%p bra again;\n	ret;\n}\n"
	".visible .entry meets(.param .u64 out)\n{\n"
	"	.reg .b64 %o, %w;\n	.reg .b32 %r;\n	.reg .pred %p;\n	ld.param.u64 %o, [out];\n	mov.b64 %w, {%envreg2, %envreg1};\n"
	"	setp.ne.u64 %p, %w, 0;\n	@%p ld.u32 %r, [%w+4];\n	selp.u32 %r, 1, 0, %p;\n	st.global.u32 [%o], %r;\n	ret;\n}\n";

int main(void)
{
	CUdevice dev;
	CUcontext ctx;
	CUmodule module;
	CUfunction ring, meets;
	CUdeviceptr mine, arrived;
	int each, processors;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&dev, 0));
	CHECK(cuCtxCreate(&ctx, 0, dev));
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuModuleGetFunction(&ring, module, "ring"));
	CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, ring, THREADS, 0));
	CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev));
	uint32_t n = (uint32_t)(each * processors), rounds = ROUNDS;
	int can;
	CHECK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, dev));
	CLAIM(can && n > 1);

	uint32_t *value = malloc(n * sizeof *value);
	for (uint32_t b = 0; b < n; b++)
		value[b] = b;
	CHECK(cuMemAlloc(&mine, n * sizeof *value));
	CHECK(cuMemAlloc(&arrived, 4));
	CHECK(cuMemcpyHtoD(mine, value, n * sizeof *value));
	CHECK(cuMemsetD32(arrived, 0, 1));
	void *args[] = {&mine, &arrived, &rounds};
	EXPECT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel(ring, n + 1, 1, 1, THREADS, 1, 1, 0, NULL, args));
	CHECK(cuLaunchCooperativeKernel(ring, n, 1, 1, THREADS, 1, 1, 0, NULL, args));
	CHECK(cuMemcpyDtoH(value, mine, n * sizeof *value));
	for (uint32_t b = 0; b < n; b++)
		CLAIM(value[b] == (b + ROUNDS) % n + ROUNDS);
	uint32_t cooperative = 0, plain = 1;
	CHECK(cuModuleGetFunction(&meets, module, "meets"));
	CHECK(cuLaunchCooperativeKernel(meets, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&arrived}));
	CHECK(cuMemcpyDtoH(&cooperative, arrived, 4));
	CHECK(cuLaunchKernel(meets, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&arrived}, NULL));
	CHECK(cuMemcpyDtoH(&plain, arrived, 4));
	CLAIM(cooperative == 1 && plain == 0);
	printf("%u blocks met %d times\n", n, 2 * ROUNDS);
	free(value);
	return 0;
}
