/*
 * The host's gate is closed: it took a fill and waits with it, until the file exists that the argument names. Streams
 * can be queried all the same, and calls that have nothing to wait for return.
 */
#include <stdint.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
	CUdevice device;
	CUcontext context;
	CUdeviceptr d;
	CUstream busy, idle, fresh, unused, done;
	CUevent event;
	CLAIM(argc == 2);
	alarm(100);
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuMemAlloc(&d, 4096));
	OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&unused, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&done, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, 0));
	OK(cuEventRecord(event, done));
	OK(cuStreamSynchronize(done));
	OK(cuStreamQuery(busy));
	OK(cuStreamQuery(idle));
	OK(cuStreamQuery(NULL));
	OK(cuMemsetD8Async(d, 1, 4096, busy));
	for (int i = 0; i < 10000; i++) { /* more than fit in the ring */
		EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(busy));
		OK(cuStreamQuery(idle)); /* as found earlier */
		OK(cuStreamQuery(NULL));
		OK(cuStreamQuery(fresh)); /* it never had work */
		OK(cuStreamSynchronize(unused)); /* there is nothing to wait for */
		OK(cuStreamSynchronize(done));
	}
	fclose(fopen(argv[1], "w"));
	while (cuStreamQuery(busy) == CUDA_ERROR_NOT_READY)
		usleep(1000);
	OK(cuStreamQuery(busy));
	OK(cuStreamQuery(fresh));
	OK(cuMemsetD8Async(d, 1, 4096, busy));
	OK(cuStreamSynchronize(busy));
	OK(cuStreamQuery(busy));
	OK(cuStreamDestroy(busy));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(busy));
	return 0;
}
