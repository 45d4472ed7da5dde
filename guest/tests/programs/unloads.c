/* Modules and contexts are destroyed while other threads launch and query their functions. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "check.h"

enum { THREADS = 3, ROUNDS = 150 };

static const char text[] = ".version 7.0\n";
static CUcontext context;
static _Atomic uintptr_t function; /* to launch; 0: stop */
static CUdeviceptr target;

/* The permitted results of a call. */
static void fair(CUresult r)
{
	CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_HANDLE || r == CUDA_ERROR_NOT_FOUND);
}

static void *use(void *unused)
{
	uintptr_t f;
	uint8_t block[40] = {0};
	void *values[] = {&target, &block[0], &block[4], &block[8], &block[12], &block[24]};
	OK(cuCtxSetCurrent(context));
	while ((f = function)) {
		size_t offset, size;
		int value;
		fair(cuLaunchKernel((CUfunction)f, 1, 1, 1, 32, 1, 1, 0, NULL, values, NULL));
		CUresult r = cuFuncGetParamInfo((CUfunction)f, 5, &offset, &size);
		fair(r);
		CLAIM(r != CUDA_SUCCESS || (offset == 32 && size == 8));
		fair(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, (CUfunction)f));
	}
	return unused;
}

int main(void)
{
	pthread_t id[THREADS];
	CUmodule module;
	CUfunction f;
	OK(cuInit(0));
	OK(cuCtxCreate(&context, 0, 0));
	OK(cuMemAlloc(&target, 4096));
	OK(cuModuleLoadData(&module, text));
	OK(cuModuleGetFunction(&f, module, "echo"));
	function = (uintptr_t)f;
	for (int i = 0; i < THREADS; i++)
		CLAIM(pthread_create(&id[i], NULL, use, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		CUmodule next;
		OK(cuModuleLoadData(&next, text));
		OK(cuModuleUnload(module));
		module = next;
		OK(cuModuleGetFunction(&f, module, "echo"));
		function = (uintptr_t)f;
	}
	function = 0;
	for (int i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	OK(cuModuleUnload(module));
	OK(cuCtxSynchronize());
	puts("unloads: fine");
	return 0;
}
