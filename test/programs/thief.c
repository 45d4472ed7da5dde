/*
 * Tries to have more of the accelerator than its domain's share. Each mode is one round; the caller repeats it.
 *
 *	thief ghost INSTRUCTIONS HOLD   launches one basic block of bulk reductions and exits HOLD seconds later without waiting
 *	thief outrun INSTRUCTIONS       launches the same and waits until it ends or the kernel timeout ends it
 *	thief quit STEPS                launches one long kernel, waits, and exits in order
 *	thief pile STEPS KERNELS        runs kernels briefly, so that short times are predicted, and then for long
 *	thief fill MIB TIMES            fills memory in rows of one byte
 *	thief copy MIB TIMES            copies memory on the device in rows of one byte
 *	thief text KERNELS LINES        launches kernels of a large module, each for the first time
 *	thief bytes MIB TIMES           fills memory in one piece
 *	thief wait MS STREAMS           launches kernels that watch the clock, one on each stream, ten times
 *	thief poll STREAMS SECONDS      makes streams wait for words that never change
 *	thief streams STREAMS SECONDS   makes so many streams and destroys them, again and again
 *	thief graphs NODES SECONDS      instantiates a graph of so many empty nodes, again and again
 */
#include "check.h"

#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static CUdevice device;
static CUcontext context;

static void open_device(void)
{
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
}

static CUdeviceptr allocate(size_t bytes)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc(&at, bytes));
	return at;
}

static void launch(CUfunction f, void **args, unsigned threads)
{
	CHECK(cuLaunchKernel(f, 1, 1, 1, threads, 1, 1, 0, 0, args, NULL));
}

static CUmodule module_of(const char *text)
{
	CUmodule m;

	CHECK(cuModuleLoadData(&m, text));
	return m;
}

static CUfunction function_of(CUmodule m, const char *name)
{
	CUfunction f;

	CHECK(cuModuleGetFunction(&f, m, name));
	return f;
}

/* A kernel without branches: 256 threads execute so many reductions of 48 KiB. */
static void launch_block(int instructions)
{
	size_t room = 4096 + (size_t)instructions * 128;
	char *text = malloc(room);
	int n = snprintf(text, room,
			 ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 at)\n{\n"
			 "	.reg .u64 %%p;\n	.shared .align 16 .b8 s[49152];\n	ld.param.u64 %%p, [at];\n");
	for (int i = 0; i < instructions; i++)
		n += snprintf(text + n, room - n,
			      "	cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%%p], [s], 49152;\n");
	snprintf(text + n, room - n, "	ret;\n}\n");
	CUdeviceptr at = allocate(65536);
	void *args[] = { &at };
	launch(function_of(module_of(text), "k"), args, 256);
	free(text);
}

static void ghost(int instructions, double hold)
{
	launch_block(instructions);
	cuStreamQuery(0);
	usleep((useconds_t)(hold * 1e6));
	_exit(0);
}

static void outrun(int instructions)
{
	launch_block(instructions);
	cuCtxSynchronize(); /* either result is permitted */
	_exit(0);
}

static void quit(unsigned steps)
{
	void *args[] = { &steps };

	launch(function_of(module_of(step_ptx), "spin"), args, 1);
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxDestroy(context));
}

/* Each kernel reads its number of steps from memory, so the launches have no difference that a prediction can use. */
static void pile(unsigned steps, int kernels)
{
	size_t room = 4096 + (size_t)kernels * 512;
	char *text = malloc(room), name[32];
	int n = snprintf(text, room, ".version 6.0\n.target sm_50\n.address_size 64\n");
	for (int i = 0; i < kernels; i++)
		n += snprintf(text + n, room - n,
			      ".visible .entry k%d(.param .u64 at)\n{\n	.reg .u64 %%p;\n	.reg .u32 %%n, %%v;\n	.reg .pred %%q;\n"
			      "	ld.param.u64 %%p, [at];\n	ld.global.u32 %%n, [%%p];\n	mov.u32 %%v, 1;\n"
			      "again:\n	mad.lo.u32 %%v, %%v, %%v, %%n;\n	sub.u32 %%n, %%n, 1;\n	setp.ne.u32 %%q, %%n, 0;\n	@%%q bra again;\n"
			      "	st.global.u32 [%%p+4], %%v;\n	ret;\n}\n", i); /* the result is stored: else a compiler may remove the loop */
	CUmodule m = module_of(text);
	CUdeviceptr at = allocate(8);
	void *args[] = { &at };
	CUfunction *all = calloc(kernels, sizeof *all);
	CHECK(cuMemsetD32(at, 10, 1));
	for (int i = 0; i < kernels; i++) {
		snprintf(name, sizeof name, "k%d", i);
		all[i] = function_of(m, name);
		for (int j = 0; j < 3; j++) {
			launch(all[i], args, 1);
			CHECK(cuCtxSynchronize());
		}
	}
	CHECK(cuMemsetD32(at, steps, 1));
	CHECK(cuCtxSynchronize());
	for (int i = 0; i < kernels; i++) {
		launch(all[i], args, 1);
		CHECK(cuCtxSynchronize());
	}
	free(all);
	free(text);
}

static void fill(size_t bytes, int times)
{
	CUdeviceptr at = allocate(bytes);

	for (int i = 0; i < times; i++) {
		CHECK(cuMemsetD2D8(at, 2, (unsigned char)(i + 1), 1, bytes / 2));
		CHECK(cuCtxSynchronize());
	}
}

static void copy(size_t bytes, int times)
{
	CUdeviceptr at = allocate(bytes);
	CUDA_MEMCPY2D c = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = at, .dstDevice = at, .srcPitch = 2, .dstPitch = 2, .WidthInBytes = 1, .Height = bytes / 2,
	};

	for (int i = 0; i < times; i++) {
		CHECK(cuMemcpy2DUnaligned(&c));
		CHECK(cuCtxSynchronize());
	}
}

static void bytes_of(size_t bytes, int times)
{
	CUdeviceptr at = allocate(bytes);

	for (int i = 0; i < times; i++)
		CHECK(cuMemsetD8Async(at, (unsigned char)(i + 1), bytes, 0));
	CHECK(cuCtxSynchronize());
}

static void wait_for(int ms, int streams)
{
	CUfunction f = function_of(module_of(
		".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry k(.param .u64 ns)\n{\n"
		"	.reg .u64 %n, %a, %b;\n	.reg .pred %q;\n	ld.param.u64 %n, [ns];\n	mov.u64 %a, %globaltimer;\n"
		"again:\n	mov.u64 %b, %globaltimer;\n	sub.u64 %b, %b, %a;\n	setp.lt.u64 %q, %b, %n;\n	@%q bra again;\n	ret;\n}\n"), "k");
	CUstream *all = calloc(streams, sizeof *all);
	unsigned long long ns = ms * 1000000ull;
	void *args[] = { &ns };

	for (int i = 0; i < streams; i++)
		CHECK(cuStreamCreate(&all[i], CU_STREAM_NON_BLOCKING));
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < streams; i++)
			CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, all[i], args, NULL));
		CHECK(cuCtxSynchronize());
	}
	free(all);
}

static void poll_for(int streams, double seconds)
{
	CUdeviceptr at = allocate(4 * (size_t)streams);

	CHECK(cuMemsetD32(at, 0, streams));
	for (int i = 0; i < streams; i++) {
		CUstream s;
		CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
		CHECK(cuStreamWaitValue32(s, at + 4 * (CUdeviceptr)i, 1, CU_STREAM_WAIT_VALUE_EQ));
	}
	usleep((useconds_t)(seconds * 1e6));
	_exit(0);
}

static void make_streams(int n, time_t seconds)
{
	CUstream *all = calloc(n, sizeof *all);

	for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
		for (int i = 0; i < n; i++)
			CHECK(cuStreamCreate(&all[i], CU_STREAM_NON_BLOCKING));
		for (int i = 0; i < n; i++)
			CHECK(cuStreamDestroy(all[i]));
	}
	free(all);
}

static void make_graphs(int nodes, time_t seconds)
{
	CUgraph g;
	CUgraphExec e;
	CUgraphNode n;

	CHECK(cuGraphCreate(&g, 0));
	for (int i = 0; i < nodes; i++)
		CHECK(cuGraphAddEmptyNode(&n, g, NULL, 0));
	for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
		CHECK(cuGraphInstantiateWithFlags(&e, g, 0));
		CHECK(cuGraphExecDestroy(e));
	}
	CHECK(cuGraphDestroy(g));
}

static void text_of(int kernels, int lines)
{
	size_t room = 4096 + (size_t)kernels * (512 + (size_t)lines * 48);
	char *text = malloc(room), name[32];
	size_t n = snprintf(text, room, ".version 6.0\n.target sm_50\n.address_size 64\n");
	for (int i = 0; i < kernels; i++) {
		n += snprintf(text + n, room - n, ".visible .entry k%d(.param .u32 v)\n{\n	.reg .u32 %%a;\n	ld.param.u32 %%a, [v];\n", i);
		for (int j = 0; j < lines; j++)
			n += snprintf(text + n, room - n, "	mad.lo.u32 %%a, %%a, %%a, %d;\n", i * lines + j);
		n += snprintf(text + n, room - n, "	ret;\n}\n");
	}
	CUmodule m = module_of(text);
	unsigned v = 1;
	void *args[] = { &v };
	for (int i = 0; i < kernels; i++) {
		snprintf(name, sizeof name, "k%d", i);
		launch(function_of(m, name), args, 1);
		CHECK(cuCtxSynchronize());
	}
	free(text);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	double one = argc > 2 ? atof(argv[2]) : 0, two = argc > 3 ? atof(argv[3]) : 0;

	open_device();
	if (!strcmp(mode, "ghost"))
		ghost((int)one, two);
	else if (!strcmp(mode, "outrun"))
		outrun((int)one);
	else if (!strcmp(mode, "quit"))
		quit((unsigned)one);
	else if (!strcmp(mode, "pile"))
		pile((unsigned)one, (int)two);
	else if (!strcmp(mode, "fill"))
		fill((size_t)one << 20, (int)two);
	else if (!strcmp(mode, "copy"))
		copy((size_t)one << 20, (int)two);
	else if (!strcmp(mode, "bytes"))
		bytes_of((size_t)one << 20, (int)two);
	else if (!strcmp(mode, "wait"))
		wait_for((int)one, (int)two);
	else if (!strcmp(mode, "poll"))
		poll_for((int)one, two);
	else if (!strcmp(mode, "streams"))
		make_streams((int)one, (time_t)two);
	else if (!strcmp(mode, "graphs"))
		make_graphs((int)one, (time_t)two);
	else if (!strcmp(mode, "text"))
		text_of((int)one, (int)two);
	else {
		fprintf(stderr, "thief: no mode %s\n", mode);
		return 2;
	}
	return 0;
}
