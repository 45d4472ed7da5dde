/* The device's attributes agree with its behaviour: device NAME. */
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* many: uses hundreds of registers, all alive at a time, and 16 KiB of shared memory. narrow: of at most 96 threads. await: waits until *flag is not 0. */
static const char head[] = ".version 6.0\n.target sm_50\n.address_size 64\n.extern .shared .align 4 .b8 more[];\n";
static const char rest[] =
	".visible .entry narrow() .maxntid 96, 1, 1\n{\n	ret;\n}\n"
	".visible .entry await(.param .u64 flag)\n{\n"
	"	.reg .b32 %s;\n	.reg .b64 %p;\n	.reg .pred %q;\n	ld.param.u64 %p, [flag];\n"
	"again:\n	ld.volatile.global.u32 %s, [%p];\n	setp.eq.u32 %q, %s, 0;\n	@%q bra again;\n	ret;\n}\n";

static CUmodule module;
static CUdevice device;

static void begin(void)
{
	static char ptx[1 << 16];
	CUcontext c;
	char *at = ptx + sprintf(ptx, "%s.visible .entry many()\n{\n	.shared .b8 own[16384];\n	.reg .b32 %%r<300>, %%s;\n	.reg .b64 %%a;\n", head);
	for (int i = 0; i < 300; i++)
		at += sprintf(at, "	mov.u32 %%r%d, %%tid.x;\n	add.u32 %%r%d, %%r%d, %d;\n", i, i, i, i);
	at += sprintf(at, "	mov.u32 %%s, 0;\n");
	for (int i = 0; i < 300; i++)
		at += sprintf(at, "	xor.b32 %%s, %%s, %%r%d;\n", i);
	sprintf(at, "	mov.u64 %%a, own;\n	st.shared.u32 [%%a], %%s;\n	ret;\n}\n%s", rest);
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&c, 0, device));
	CHECK(cuModuleLoadData(&module, ptx));
}

static CUfunction kernel(const char *name)
{
	CUfunction f;
	CHECK(cuModuleGetFunction(&f, module, name));
	return f;
}

static int attribute(CUdevice_attribute a)
{
	int v;
	CHECK(cuDeviceGetAttribute(&v, a, device));
	return v;
}

static int of(CUfunction f, CUfunction_attribute a)
{
	int v;
	CHECK(cuFuncGetAttribute(&v, a, f));
	return v;
}

/* Setting a limit to its current value changes nothing. */
static void limits(void)
{
	begin();
	for (CUlimit l = 0; l < CU_LIMIT_MAX; l++) {
		size_t is, then;
		CUresult r = cuCtxGetLimit(&is, l);
		EXPECT(r, cuCtxSetLimit(l, is));
		if (r != CUDA_SUCCESS)
			continue;
		CHECK(cuCtxGetLimit(&then, l));
		CLAIM(is == then && is > 0);
	}
}

static CUresult launch(CUfunction f, int threads, unsigned shared)
{
	CUresult r = cuLaunchKernel(f, 1, 1, 1, (unsigned)threads, 1, 1, shared, NULL, NULL, NULL);
	CHECK(cuCtxSynchronize());
	return r;
}

/* Launches that occupancy reports to fit succeed, and larger ones fail. */
static void occupancy(void)
{
	begin();
	static const char *const names[] = {"many", "narrow"};
	for (int k = 0; k < 2; k++) {
		CUfunction f = kernel(names[k]);
		int most = of(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
		CLAIM(most == (k == 0 ? attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) : 96));
		CLAIM(of(f, CU_FUNC_ATTRIBUTE_NUM_REGS) * most <= attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK));
		int own = of(f, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), dynamic = of(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
		CLAIM(own == (k == 0 ? 16384 : 0) && own + dynamic == attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
		for (int optin = 0; optin < 2; optin++) {
			for (int threads = 32; threads <= most + 32; threads += 32)
				for (int shared = 0; shared <= dynamic + 1; shared += (dynamic + 1) / 2) {
					int blocks;
					CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, (size_t)shared));
					CLAIM((blocks > 0) == (launch(f, threads, (unsigned)shared) == CUDA_SUCCESS));
				}
			int grid, block, each;
			size_t room;
			CHECK(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, (size_t)dynamic, 0));
			CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, f, block, (size_t)dynamic));
			CLAIM(block > 0 && block <= most && grid == each * attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
			CHECK(cuOccupancyAvailableDynamicSMemPerBlock(&room, f, 1, block));
			CHECK(launch(f, block, (unsigned)room));
			dynamic = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) - own;
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic + 1));
			CHECK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic));
		}
	}
}

static size_t unused(void)
{
	size_t available, total;
	CHECK(cuMemGetInfo(&available, &total));
	CLAIM(available <= total);
	return available;
}

/* Allocated memory is missing from the free memory, and comes back; all free memory can be allocated. */
static void memory(void)
{
	begin();
	size_t before = unused(), total;
	CUdeviceptr small, large, last;
	CHECK(cuDeviceTotalMem(&total, device));
	CLAIM(before <= total);
	CHECK(cuMemAlloc(&small, 1));
	CLAIM(unused() == before - 512);
	CHECK(cuMemAlloc(&large, 5 << 20));
	CLAIM(unused() == before - 512 - (5 << 20));
	CHECK(cuMemAlloc(&last, unused()));
	CLAIM(unused() == 0);
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&small, 1));
	CHECK(cuMemFree(last));
	CHECK(cuMemFree(large));
	CHECK(cuCtxSynchronize());
	CLAIM(unused() == before - 512);
}

/* Holds 64 MiB until its stdin ends. */
static void hold(void)
{
	begin();
	CUdeviceptr p;
	CHECK(cuMemAlloc(&p, 64 << 20));
	printf("%zu\n", unused());
	fflush(stdout);
	while (getchar() != EOF)
		;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* While a kernel runs, another stream copies; and events measure how long it ran. */
static void beside(void)
{
	enum { BYTES = 4 << 20 };
	begin();
	CUstream a, b;
	CUevent started, ended, copied;
	CUdeviceptr flag, data;
	char *here;
	CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&started, 0));
	CHECK(cuEventCreate(&ended, 0));
	CHECK(cuEventCreate(&copied, 0));
	CHECK(cuMemAlloc(&flag, 4));
	CHECK(cuMemAlloc(&data, BYTES));
	CHECK(cuMemHostAlloc((void **)&here, BYTES, 0));
	CHECK(cuMemsetD32(flag, 0, 1));
	CHECK(cuCtxSynchronize());
	void *args[] = {&flag};
	double begun = now();
	CHECK(cuEventRecord(started, a));
	CHECK(cuLaunchKernel(kernel("await"), 1, 1, 1, 1, 1, 1, 0, a, args, NULL));
	CHECK(cuEventRecord(ended, a));
	for (int i = 0; i < 3; i++) {
		memset(here, 'a' + i, BYTES);
		CHECK(cuMemcpyHtoDAsync(data, here, BYTES, b));
		CHECK(cuStreamSynchronize(b));
		memset(here, 0, BYTES);
		CHECK(cuMemcpyDtoHAsync(here, data, BYTES, b));
		CHECK(cuEventRecord(copied, b));
		CHECK(cuEventSynchronize(copied));
		CLAIM(here[0] == 'a' + i && here[BYTES - 1] == 'a' + i);
	}
	usleep(20000);
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
	EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(ended));
	CHECK(cuMemcpyHtoDAsync(flag, "\1\0\0", 4, b));
	CHECK(cuStreamSynchronize(a));
	double took = now() - begun;
	float between, after, back;
	CHECK(cuEventElapsedTime(&between, started, ended));
	CHECK(cuEventElapsedTime(&after, copied, ended));
	CHECK(cuEventElapsedTime(&back, ended, started));
	CLAIM(between >= 20 && between <= took + 0.001 && back == -between);
	CLAIM(after >= 20 && after < between);
}

static const struct {
	const char *name;
	void (*run)(void);
} parts[] = {
	{"limits", limits}, {"occupancy", occupancy}, {"memory", memory}, {"hold", hold}, {"beside", beside},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++)
		if (strcmp(parts[i].name, argv[1]) == 0) {
			alarm(300); /* on a slow and busy machine */
			CHECK(cuInit(0));
			parts[i].run();
			return 0;
		}
	fprintf(stderr, "usage: %s NAME\n", argv[0]);
	return 2;
}
