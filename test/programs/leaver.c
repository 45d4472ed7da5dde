/* leaver MIB HOW: fills MIB of memory and leaves it allocated: by "exit", or by "kill". */
#include "check.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	CUdevice device;
	CUcontext context;
	CUdeviceptr d;
	size_t bytes = argc > 2 ? strtoul(argv[1], NULL, 10) << 20 : 0;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuMemAlloc(&d, bytes));
	CHECK(cuMemsetD8(d, 1, bytes));
	CHECK(cuCtxSynchronize());
	if (strcmp(argv[2], "kill") == 0)
		kill(getpid(), SIGKILL);
	return 0;
}
