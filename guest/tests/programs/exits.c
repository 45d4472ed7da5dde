/* Calls from exit handlers and destructors, with a callback thread alive and with other threads in calls. */
#include <pthread.h>
#include <stdint.h>

#include "check.h"

static CUcontext context;
static CUdeviceptr memory;
static CUmodule module;

/* The call succeeds, or returns "deinitialized". */
static void last_words(const char *where)
{
	CUresult r = cuMemFree(memory);
	CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_DEINITIALIZED || r == CUDA_ERROR_INVALID_VALUE);
	r = cuModuleUnload(module);
	CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_DEINITIALIZED || r == CUDA_ERROR_INVALID_HANDLE);
	r = cuCtxSynchronize();
	CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_DEINITIALIZED);
	printf("%s: fine\n", where);
	fflush(stdout);
}

static void at_exit(void) { last_words("atexit"); }
__attribute__((destructor)) static void at_end(void) { last_words("destructor"); }

static void nothing(void *p) { (void)p; }

static void *busy(void *p)
{
	OK(cuCtxSetCurrent(context));
	for (;;)
		if (cuCtxSynchronize() != CUDA_SUCCESS)
			return p;
}

int main(void)
{
	CUdevice device;
	pthread_t id;
	atexit(at_exit);
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuMemAlloc(&memory, 4096));
	OK(cuModuleLoadData(&module, ".version 7.0\n"));
	OK(cuLaunchHostFunc(NULL, nothing, NULL));
	for (int i = 0; i < 4; i++)
		CLAIM(pthread_create(&id, NULL, busy, NULL) == 0);
	return 0;
}
