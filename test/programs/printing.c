/* Device printf and assertion messages reach the program's stdout and stderr: printing NAME. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* say: each thread prints text with the numbers of its block and of itself. count: one thread prints text with 0, 1, ..., n-1.
 * shout: prints text until *stop is not 0. claim: threads whose number is at least n assert that it is not, after the first has printed. */
static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
	".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n"
	".visible .entry say(.param .u64 text)\n{\n"
	"	.reg .b32 %r;\n	.reg .b64 %a, %t;\n	.local .align 8 .b32 list[2];\n"
	"	ld.param.u64 %t, [text];\n	mov.u64 %a, list;\n	cvta.local.u64 %a, %a;\n"
	"	mov.u32 %r, %ctaid.x;\n	st.local.u32 [list], %r;\n	mov.u32 %r, %tid.x;\n	st.local.u32 [list+4], %r;\n"
	"	call (_), vprintf, (%t, %a);\n	ret;\n}\n"
	".visible .entry count(.param .u64 text, .param .u32 n)\n{\n"
	"	.reg .b32 %r, %n;\n	.reg .b64 %a, %t;\n	.reg .pred %p;\n	.local .align 8 .b32 list[2];\n"
	"	ld.param.u64 %t, [text];\n	ld.param.u32 %n, [n];\n	mov.u64 %a, list;\n	cvta.local.u64 %a, %a;\n	mov.u32 %r, 0;\n"
	"again:\n	st.local.u32 [list], %r;\n	call (_), vprintf, (%t, %a);\n	add.u32 %r, %r, 1;\n"
	"	setp.lt.u32 %p, %r, %n;\n	@%p bra again;\n	ret;\n}\n"
	".visible .entry shout(.param .u64 text, .param .u64 stop)\n{\n"
	"	.reg .b32 %s;\n	.reg .b64 %t, %p;\n	.reg .pred %q;\n"
	"	ld.param.u64 %t, [text];\n	ld.param.u64 %p, [stop];\n"
	"again:\n	call (_), vprintf, (%t, 0);\n	ld.volatile.global.u32 %s, [%p];\n"
	"	setp.eq.u32 %q, %s, 0;\n	@%q bra again;\n	ret;\n}\n"
	".file 1 \"vec.cu\"\n.visible .entry wrong(.param .u64 at, .param .u64 b, .param .u32 n)\n{\n	.reg .b64 %p;\n	ld.param.u64 %p, [at];\n"
	".loc 1 8 5\n	st.global.u32 [%p], 1;\n	ret;\n}\n"
	".visible .entry claim(.param .u64 text, .param .u64 what, .param .u32 n)\n{\n"
	"	.reg .b32 %r, %n;\n	.reg .b64 %t, %w, %f;\n	.reg .pred %p;\n"
	"	ld.param.u64 %t, [text];\n	ld.param.u64 %w, [what];\n	ld.param.u32 %n, [n];\n	mov.u32 %r, %tid.x;\n"
	"	setp.eq.u32 %p, %r, 0;\n	@!%p bra said;\n	call (_), vprintf, (%t, 0);\nsaid:\n"
	"	setp.lt.u32 %p, %r, %n;\n	@%p bra fine;\n	add.u64 %f, %w, 16;\n"
	"	call __assertfail, (%w, %f, 17, %f, 1);\nfine:\n	ret;\n}\n";

static CUmodule module;

static CUfunction kernel(const char *name)
{
	CUfunction f;
	CHECK(cuModuleGetFunction(&f, module, name));
	return f;
}

/* Text in memory that kernels can read. */
static CUdeviceptr text(const char *s)
{
	CUdeviceptr p;
	CHECK(cuMemAlloc(&p, strlen(s) + 1));
	CHECK(cuMemcpyHtoD(p, s, strlen(s) + 1));
	return p;
}

static CUcontext begin(void)
{
	CUcontext c;
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuModuleLoadData(&module, ptx));
	return c;
}

static void say(CUdeviceptr what, unsigned blocks, unsigned threads, CUstream s)
{
	void *args[] = {&what};
	CHECK(cuLaunchKernel(kernel("say"), blocks, 1, 1, threads, 1, 1, 0, s, args, NULL));
}

static void count(CUdeviceptr what, unsigned n)
{
	void *args[] = {&what, &n};
	CHECK(cuLaunchKernel(kernel("count"), 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
}

/* Each call that synchronises prints the kernels' output before later output of the host. */
static void points(void)
{
	CUcontext c = begin();
	CUdeviceptr t = text("device %d %d\n");
	CUstream s;
	CUevent e;
	uint64_t word;
	CUmodule again;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, 0));
	for (int way = 0; way < 8; way++) {
		printf("before %d\n", way);
		say(t, 1, 1, way == 5 ? NULL : s);
		switch (way) {
		case 0:
			CHECK(cuCtxSynchronize());
			break;
		case 1:
			CHECK(cuStreamSynchronize(s));
			break;
		case 2:
			CHECK(cuEventRecord(e, s));
			CHECK(cuEventSynchronize(e));
			break;
		case 3: /* a stream without any wait has printed */
			while (cuStreamQuery(s) == CUDA_ERROR_NOT_READY)
				;
			CHECK(cuMemcpyDtoH(&word, t, 8));
			break;
		case 4:
			CHECK(cuEventRecord(e, s));
			while (cuEventQuery(e) == CUDA_ERROR_NOT_READY)
				;
			CHECK(cuMemcpyHtoD(t, "device %d %d\n", 8));
			break;
		case 5:
			CHECK(cuMemcpyDtoH(&word, t, 8));
			break;
		case 6:
		case 7:
			while (cuStreamQuery(s) == CUDA_ERROR_NOT_READY)
				;
			CHECK(way == 6 ? cuModuleLoadData(&again, step_ptx) : cuModuleUnload(again));
			break;
		}
		printf("after %d\n", way);
	}
	CHECK(cuCtxDestroy(c));
}

/* A context that is destroyed first lets printing kernels end and then prints the remaining output. */
static void leave(void)
{
	CUcontext c = begin();
	printf("begin\n");
	count(text("%d\n"), 3);
	CHECK(cuCtxDestroy(c));
	printf("middle\n");
	CHECK(cuDevicePrimaryCtxRetain(&c, 0));
	CHECK(cuCtxSetCurrent(c));
	CHECK(cuModuleLoadData(&module, ptx));
	say(text("%d %d\n"), 1, 2, NULL);
	CHECK(cuDevicePrimaryCtxReset(0));
	printf("end\n");
}

/* Output beyond the buffer replaces the oldest output, in whole records. */
static void oldest(void)
{
	size_t size;
	begin();
	CHECK(cuCtxGetLimit(&size, CU_LIMIT_PRINTF_FIFO_SIZE));
	CLAIM(size == 1 << 20);
	CHECK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1000));
	CHECK(cuCtxGetLimit(&size, CU_LIMIT_PRINTF_FIFO_SIZE));
	CLAIM(size == 1000);
	count(text("%5d\n"), 12345);
	CHECK(cuCtxSynchronize());
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2000));
	printf("end\n");
}

/* Without a buffer no output is kept. */
static void nothing(void)
{
	begin();
	CHECK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 0));
	count(text("%d\n"), 10);
	CHECK(cuCtxSynchronize());
	printf("end\n");
}

/* More output than one reply, or a block of shared memory, holds. */
static void crowd(void)
{
	begin();
	CHECK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4 << 20));
	say(text("block %d thread %d\n"), 256, 256, NULL);
	CHECK(cuCtxSynchronize());
}

/* The first call that returns a failed assertion prints it, with the earlier output. */
static void assertion(void)
{
	begin();
	CUdeviceptr t = text("hello\n"), what = text("tid < n.........f.cu");
	unsigned n = 2;
	void *args[] = {&t, &what, &n};
	CHECK(cuMemcpyHtoD(what, "tid < n\0.......\0f.cu", 21));
	CHECK(cuLaunchKernel(kernel("claim"), 1, 1, 1, 4, 1, 1, 0, NULL, args, NULL));
	usleep(100000); /* so that the error may have arrived before the call */
	EXPECT(CUDA_ERROR_ASSERT, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_ASSERT, cuCtxSynchronize());
	printf("end\n");
}

/* The first call that returns a kernel's fault prints it. */
static void fault(void)
{
	begin();
	CUdeviceptr nowhere = 16;
	unsigned n = 2;
	void *args[] = {&nowhere, &nowhere, &n};
	CHECK(cuLaunchKernel(kernel("wrong"), 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	printf("end\n");
}

/* The program ends on an error, without flushing the C library's buffers. */
static void quits(void)
{
	begin();
	CUdeviceptr nowhere = 16;
	unsigned n = 2;
	void *args[] = {&nowhere, &nowhere, &n};
	printf("begin\n");
	say(text("device %d %d\n"), 1, 1, NULL);
	CHECK(cuLaunchKernel(kernel("wrong"), 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	_exit(0);
}

static void *synchronize(void *context)
{
	CHECK(cuCtxSetCurrent(context));
	CUstream s;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 50; i++)
		CHECK(cuStreamSynchronize(s));
	return NULL;
}

/* While a kernel prints without end, threads that synchronise with other streams continue. */
static void flood(void)
{
	CUcontext c = begin();
	CUdeviceptr t = text("la\n"), stop = text("....");
	CUstream loud, quiet;
	CHECK(cuStreamCreate(&loud, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&quiet, CU_STREAM_NON_BLOCKING));
	void *args[] = {&t, &stop};
	CHECK(cuMemsetD32(stop, 0, 1));
	CHECK(cuCtxSynchronize()); /* work that isn't ordered after the legacy stream may overtake that */
	CHECK(cuLaunchKernel(kernel("shout"), 1, 1, 1, 256, 1, 1, 0, loud, args, NULL));
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, synchronize, c);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(loud));
	CHECK(cuMemcpyHtoDAsync(stop, "\1\0\0", 4, quiet));
	CHECK(cuCtxSynchronize());
	printf("end\n");
}

static void *destroy(void *context)
{
	CHECK(cuCtxDestroy(context));
	return NULL;
}

/*
 * Destroying a context first waits for its work: threads continue that use other contexts, and on which the work may
 * depend.
 */
static void patience(void)
{
	CUcontext loud = begin(), other, third;
	CUdeviceptr t = text("la\n"), stop;
	uint32_t *word;
	pthread_t leaving;
	CHECK(cuMemHostAlloc((void **)&word, 4, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
	CHECK(cuMemHostGetDevicePointer(&stop, word, 0));
	*word = 0;
	void *args[] = {&t, &stop};
	CHECK(cuLaunchKernel(kernel("shout"), 1, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
	CHECK(cuCtxCreate(&other, 0, 0));
	CHECK(pthread_create(&leaving, NULL, destroy, loud) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
	usleep(100000); /* so that it waits */
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxCreate(&third, 0, 0));
	CHECK(cuCtxDestroy(third));
	*(volatile uint32_t *)word = 1;
	pthread_join(leaving, NULL);
	printf("end\n");
}

/* Destroying a context doesn't wait for a memory wait that may never end. */
static void waiting(void)
{
	CUcontext c = begin();
	CUdeviceptr t = text("la\n"), word;
	CUstream s;
	void *args[] = {&t};
	CHECK(cuMemAlloc(&word, 4));
	CHECK(cuMemsetD32(word, 0, 1));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuLaunchKernel(kernel("say"), 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuStreamWaitValue32(s, word, 1, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuCtxDestroy(c));
	printf("end\n");
}

static const struct {
	const char *name;
	void (*run)(void);
} parts[] = {
	{"points", points}, {"leave", leave}, {"oldest", oldest}, {"nothing", nothing}, {"crowd", crowd}, {"assertion", assertion}, {"fault", fault}, {"flood", flood},
	{"patience", patience}, {"waiting", waiting}, {"quits", quits},
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
