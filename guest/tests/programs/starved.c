/* A process with a low limit for its address space gets an error. */
#include <sys/resource.h>

#include "check.h"

int main(void)
{
	struct rlimit little = {64 << 20, 64 << 20};
	CLAIM(setrlimit(RLIMIT_AS, &little) == 0);
	EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuInit(0));
	return 0;
}
