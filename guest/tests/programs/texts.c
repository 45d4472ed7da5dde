/* Prints between calls that bring the text of kernels, if the host says that there is any. */
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
