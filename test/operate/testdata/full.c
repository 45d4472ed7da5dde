/* Takes all device memory that is free, and holds it. */
#include <cuda.h>

#include <unistd.h>

int main(void)
{
	CUdevice device;
	CUcontext context;
	CUdeviceptr at;

	if (cuInit(0) || cuDeviceGet(&device, 0) || cuCtxCreate(&context, 0, device))
		return 1;
	for (size_t size = 1 << 20; size >= 256; size /= 2)
		while (cuMemAlloc(&at, size) == CUDA_SUCCESS)
			;
	for (;;)
		pause();
}
