/* Prints the result of cuInit, and checks that all other calls fail after a failure. */
#include "check.h"

int main(void)
{
	int n = 0, version = 0;
	CUresult r = cuInit(0);
	printf("cuInit %d\n", (int)r);
	if (r == CUDA_SUCCESS)
		return 0;
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(NULL));
	OK(cuDriverGetVersion(&version));
	CLAIM(version == 12040);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(NULL));
	CLAIM(cuInit(0) == r);
	return 0;
}
