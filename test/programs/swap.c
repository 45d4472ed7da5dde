/*
 * Allocates more memory than the accelerator may have free beside other programs.
 *
 *	swap MIB ROUNDS SEED   allocates MIB in pieces of several sizes, changes all of it ROUNDS
 *	                       times, checks all of it; prints the result
 */
#include "check.h"

#include <string.h>

/* bump: for (i = thread; i < n; i += threads) at[i] = at[i] * 3 + i. */
static const char bump_ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .global .u32 launches = 41;\n"
	".visible .entry bump(.param .u64 at, .param .u32 n)\n{\n"
	"	.reg .u64 %p, %o, %c;\n	.reg .u32 %i, %n, %v, %t, %b, %d;\n	.reg .pred %q;\n"
	"	ld.param.u64 %p, [at];\n	ld.param.u32 %n, [n];\n"
	"	mov.u32 %t, %tid.x;\n	mov.u32 %b, %ctaid.x;\n	mov.u32 %d, %ntid.x;\n	mad.lo.u32 %i, %b, %d, %t;\n"
	"	mov.u32 %t, %nctaid.x;\n	mul.lo.u32 %d, %d, %t;\n"
	"	setp.ne.u32 %q, %i, 0;\n	@%q bra next;\n"
	"	mov.u64 %c, launches;\n	ld.global.u32 %v, [%c];\n	add.u32 %v, %v, 1;\n	st.global.u32 [%c], %v;\n"
	"next:\n	setp.ge.u32 %q, %i, %n;\n	@%q bra end;\n"
	"	mul.wide.u32 %o, %i, 4;\n	add.u64 %o, %p, %o;\n"
	"	ld.global.u32 %v, [%o];\n	mad.lo.u32 %v, %v, 3, %i;\n	st.global.u32 [%o], %v;\n"
	"	add.u32 %i, %i, %d;\n	bra.uni next;\n"
	"end:\n	ret;\n}\n";

enum { PIECES = 7 };

int main(int argc, char **argv)
{
	size_t total = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 0, left, total_memory;
	unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	unsigned seed = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction bump;
	CUdeviceptr at[PIECES], counter;
	unsigned *want[PIECES], *got, n[PIECES], counted;
	size_t counter_size;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, bump_ptx));
	CHECK(cuModuleGetFunction(&bump, module, "bump"));
	CHECK(cuModuleGetGlobal(&counter, &counter_size, module, "launches"));
	for (int i = 0; i < PIECES; i++) { /* the last two take most of it; odd sizes */
		size_t bytes = i < 5 ? 1000u << (2 * i) : (total - (1u << 20)) / 2 - 4 * (unsigned)i;
		n[i] = (unsigned)(bytes / 4);
		CHECK(cuMemAlloc(&at[i], n[i] * 4ul));
		want[i] = malloc(n[i] * 4ul);
		for (unsigned k = 0; k < n[i]; k++)
			want[i][k] = k * 2654435761u + seed + (unsigned)i;
		CHECK(cuMemcpyHtoD(at[i], want[i], n[i] * 4ul));
	}
	CHECK(cuMemGetInfo(&left, &total_memory));
	CLAIM(left < total_memory);
	got = malloc(total);
	for (unsigned r = 0; r < rounds; r++) {
		unsigned piece = r % PIECES;
		for (int i = 0; i < PIECES; i++) {
			void *args[] = { &at[i], &n[i] };
			CHECK(cuLaunchKernel(bump, 4, 1, 1, 64, 1, 1, 0, NULL, args, NULL));
			for (unsigned k = 0; k < n[i]; k++)
				want[i][k] = want[i][k] * 3 + k;
		}
		CHECK(cuCtxSynchronize());
		/* Copies and fills find the memory wherever it is at the time. */
		CHECK(cuMemsetD32(at[piece], seed + r, n[piece] / 2));
		for (unsigned k = 0; k < n[piece] / 2; k++)
			want[piece][k] = seed + r;
		CHECK(cuMemcpyDtoD(at[piece] + n[piece] / 2 * 4ul, at[piece], n[piece] / 2 * 4ul));
		memcpy(want[piece] + n[piece] / 2, want[piece], n[piece] / 2 * 4ul);
	}
	for (int i = 0; i < PIECES; i++) {
		CHECK(cuMemcpyDtoH(got, at[i], n[i] * 4ul));
		if (memcmp(got, want[i], n[i] * 4ul) != 0) {
			unsigned k = 0;
			while (got[k] == want[i][k])
				k++;
			fprintf(stderr, "piece %d of %u words: word %u is %u, want %u\n", i, n[i], k, got[k], want[i][k]);
			return 1;
		}
	}
	CHECK(cuMemcpyDtoH(&counted, counter, sizeof counted));
	CLAIM(counted == 41 + rounds * PIECES);
	for (int i = 0; i < PIECES; i++)
		CHECK(cuMemFree(at[i]));
	CHECK(cuCtxDestroy(context));
	printf("right\n");
	return 0;
}
