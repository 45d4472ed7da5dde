/*
 * Polls a stream for pending work while the worker ends: after it took the stream's marker, or, with an argument,
 * before, when it waits with a call.
 */
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
	CUdevice device;
	CUcontext context;
	CUdeviceptr d;
	CUstream s;
	char bytes[8] = "";
	(void)argv;
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuMemAlloc(&d, 4096));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuMemcpyHtoDAsync(d, bytes, sizeof bytes, s));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s)); /* the marker is not reached, because the host passes over it */
	OK(cuMemsetD8Async(d, 1, 4096, argc > 1 ? s : NULL)); /* the worker ends at this call */
	CUresult r;
	while ((r = cuStreamQuery(s)) == CUDA_ERROR_NOT_READY)
		;
	EXPECT(CUDA_ERROR_UNKNOWN, r);
	return 0;
}
