/*
 * Prints the CUDA version that the driver reports, before it is initialised and after, and whether it has the functions
 * of 13.0.
 */
#include "check.h"

int main(void)
{
	int before, after;
	void *f = NULL;
	CHECK(cuDriverGetVersion(&before));
	CHECK(cuInit(0));
	CHECK(cuDriverGetVersion(&after));
	printf("%d %d %d\n", before, after, cuGetProcAddress("cuCtxSynchronize", &f, 13000, 0, NULL));
	return 0;
}
