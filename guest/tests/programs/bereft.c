/*
 * The worker ends at some point. From the first error on, every call has to return the error, and none may take long.
 * The argument is the error.
 */
#include <time.h>
#include <stdint.h>

#include "check.h"

static CUresult want;
static int seen;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void mind(CUresult r, double took, const char *call)
{
	if (took > 10.0) {
		fprintf(stderr, "%s took %.2f s\n", call, took);
		exit(1);
	}
	if (r != CUDA_SUCCESS && r != want) {
		fprintf(stderr, "%s = %d, want %d\n", call, (int)r, (int)want);
		exit(1);
	}
	if (seen && r == CUDA_SUCCESS) {
		fprintf(stderr, "%s succeeded after an error\n", call);
		exit(1);
	}
	seen |= r != CUDA_SUCCESS;
}

#define MIND(call) do { double t_ = now(); CUresult r_ = (call); mind(r_, now() - t_, #call); } while (0)

int main(int argc, char **argv)
{
	static uint8_t bytes[1 << 20];
	CUdevice device = 0;
	CUcontext context = NULL;
	CUmodule m = NULL;
	CUfunction f = NULL;
	CUdeviceptr d = 0;
	CUevent e = NULL;
	CUstream s = NULL;
	CLAIM(argc == 2);
	want = (CUresult)atoi(argv[1]);
	OK(cuInit(0));
	MIND(cuDeviceGet(&device, 0));
	MIND(cuCtxCreate(&context, 0, device));
	if (!seen) {
		MIND(cuModuleLoadData(&m, ".version 7.0\n"));
		MIND(cuModuleGetFunction(&f, m, "none"));
		MIND(cuEventCreate(&e, 0));
		MIND(cuStreamCreate(&s, 0));
		MIND(cuMemAlloc(&d, sizeof bytes));
	}
	/* Queued calls alone detect it, too. */
	double end = now() + 0.2;
	for (int i = 0; !seen && (i < 100 || now() < end); i++) {
		MIND(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
		if (!seen)
			MIND(cuEventRecord(e, s));
	}
	if (!seen)
		MIND(cuMemcpyHtoD(d, bytes, sizeof bytes));
	if (!seen)
		MIND(cuMemcpyDtoH(bytes, d, sizeof bytes));
	if (!seen)
		MIND(cuCtxSynchronize());
	CLAIM(seen);
	MIND(cuCtxSynchronize());
	MIND(cuStreamSynchronize(s));
	MIND(cuEventQuery(e));
	MIND(cuMemcpyHtoD(d, bytes, sizeof bytes));
	MIND(cuMemcpyDtoH(bytes, d, sizeof bytes));
	MIND(cuMemFree(d));
	MIND(cuStreamDestroy(s));
	MIND(cuModuleUnload(m));
	MIND(cuCtxGetCurrent(&context));
	MIND(cuDeviceGetCount(&device));
	MIND(cuCtxDestroy(context));
	MIND(cuInit(0));
	puts("bereft: fine");
	return 0;
}
