/* Prints between calls that fetch the kernels' output, if the host announces any. */
#include "check.h"

int main(void)
{
	CUdevice device;
	CUcontext context;
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	printf("begin\n");
	OK(cuCtxCreate(&context, 0, device));
	OK(cuCtxSynchronize());
	printf("middle\n");
	OK(cuCtxDestroy(context));
	printf("end\n");
	return 0;
}
