/*
 * beside NAME: a kernel stores outside the program's memory, and another one has warps that need a barrier. Prints the
 * results.
 */
#include <string.h>

#include "check.h"

static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .global .align 4 .b32 u[1024];\n.visible .global .align 4 .b32 v[1024];\n"
	".visible .entry store(.param .u64 p)\n{\n	.reg .u64 a;\n	.reg .u32 x;\n	ld.param.u64 a, [p];\n	ld.global.u32 x, [a];\n	st.global.u32 [a], x;\n	ret;\n}\n"
	".visible .entry race(.param .u64 p)\n{\n	.reg .u64 a, o;\n	.reg .u32 t, x, y;\n	.reg .pred q;\n	.shared .align 4 .b32 w;\n"
	"	ld.param.u64 a, [p];\n	mov.u32 t, %tid.x;\n	mul.wide.u32 o, t, 4;\n	add.u64 a, a, o;\n	setp.eq.u32 q, t, 0;\n	@q st.shared.u32 [w], 1;\n"
	"	bar.sync 0;\n	ld.shared.u32 y, [w];\n	setp.lt.u32 q, t, 32;\n	@q st.shared.u32 [w], 2;\n	st.global.u32 [a], y;\n	ret;\n}\n";

static CUmodule module;

static CUdeviceptr variable(const char *name)
{
	CUdeviceptr at;
	size_t bytes;
	CHECK(cuModuleGetGlobal(&at, &bytes, module, name));
	return at;
}

static CUdeviceptr allocation(size_t bytes)
{
	CUdeviceptr at;
	CHECK(cuMemAlloc(&at, bytes));
	return at;
}

static CUdeviceptr pooled(size_t bytes)
{
	CUdeviceptr at;
	CHECK(cuMemAllocAsync(&at, bytes, NULL));
	return at;
}

/* The memory of a graph's node, after a launch. */
static CUdeviceptr captured(size_t bytes)
{
	CUdeviceptr at;
	CUstream s;
	CUgraph g;
	CUgraphExec x;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuMemAllocAsync(&at, bytes, s));
	CHECK(cuStreamEndCapture(s, &g));
	CHECK(cuGraphInstantiate(&x, g, 0));
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuStreamSynchronize(s));
	return at;
}

/* The order of warps: how many of the threads read the value that warp 0 stores later. */
static int race(void)
{
	enum { Threads = 1024 };
	unsigned got[Threads], late = 0;
	CUfunction f;
	CUdeviceptr out = allocation(sizeof got);
	void *args[] = {&out};
	CHECK(cuModuleGetFunction(&f, module, "race"));
	CHECK(cuLaunchKernel(f, 1, 1, 1, Threads, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemcpyDtoH(got, out, sizeof got));
	for (int i = 0; i < Threads; i++)
		late += got[i] != 1;
	printf("%u late\n", late);
	return 0;
}

int main(int argc, char **argv)
{
	const char *where = argc == 2 ? argv[1] : "";
	CUdeviceptr at = 0;
	CUcontext context;
	CUfunction f;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	if (strcmp(where, "first") == 0)
		at = allocation(4096) - 256;
	CHECK(cuModuleLoadData(&module, ptx));
	if (strcmp(where, "race") == 0)
		return race();
	if (strcmp(where, "below") == 0)
		at = variable("u") - 4;
	else if (strcmp(where, "between") == 0)
		at = (variable("u") < variable("v") ? variable("v") : variable("u")) - 4;
	else if (strcmp(where, "behind") == 0)
		at = allocation(100) + 100;
	else if (strcmp(where, "pool") == 0)
		at = pooled(100) + 100;
	else if (strcmp(where, "pool again") == 0) {
		CHECK(cuMemFreeAsync(pooled(3000), NULL));
		at = pooled(1000) + 1000;
	} else if (strcmp(where, "pool within") == 0) {
		for (int i = 0; i < 3; i++)
			CHECK(cuMemFreeAsync(pooled(1000), NULL));
		at = pooled(1000) + 996;
	} else if (strcmp(where, "captured") == 0)
		at = captured(1000) + 1000;
	else if (strcmp(where, "within") == 0)
		at = allocation(100) + 96;
	void *args[] = {&at};
	CHECK(cuModuleGetFunction(&f, module, "store"));
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	printf("%d\n", (int)cuCtxSynchronize());
	return 0;
}
