/*
 * Tries to have more of the accelerator than its share.
 *
 *	hoard callback STEPS   queues kernels while a callback of another stream does not return
 *	hoard long STEPS       queues long kernels
 */
#include "check.h"

#include <string.h>
#include <unistd.h>

static void for_ever(void *unused)
{
	(void)unused;
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction spin;
	CUstream stream, held;
	unsigned steps = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	void *args[] = { &steps };

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, step_ptx));
	CHECK(cuModuleGetFunction(&spin, module, "spin"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	if (strcmp(argv[1], "callback") == 0)
		CHECK(cuLaunchHostFunc(held, for_ever, NULL));
	for (;;) {
		for (int i = 0; i < 2000; i++)
			CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
		CHECK(cuStreamSynchronize(stream));
	}
}
