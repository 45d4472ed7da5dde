/*
 * Keeps the device busy in one stream and prints for how many nanoseconds: accounts legacy|own|aside|thread|copies
 * MILLISECONDS. thread is the per-thread default stream, aside one that doesn't synchronise with the legacy stream.
 */
#include <string.h>
#include <time.h>

#include "check.h"

enum { Half = 8 << 20 };

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	CUcontext c;
	CUmodule m;
	CUfunction spin;
	CUstream s = NULL;
	CUdeviceptr at;
	unsigned steps = 20000;
	void *args[] = { &steps };
	if (argc != 3)
		return 2;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&spin, m, "spin"));
	CHECK(cuMemAlloc(&at, 2 * Half));
	if (!strcmp(argv[1], "own"))
		CHECK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	else if (!strcmp(argv[1], "aside"))
		CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	else if (!strcmp(argv[1], "thread"))
		s = CU_STREAM_PER_THREAD;
	long long from = now(), end = from + atoll(argv[2]) * 1000000;
	while (now() < end) {
		for (int i = 0; i < 8; i++)
			if (!strcmp(argv[1], "copies"))
				CHECK(cuMemcpyDtoDAsync(at, at + Half, Half, s)); /* inside the device: with the host much of the time would be the program's */
			else
				CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
		CHECK(cuStreamSynchronize(s));
	}
	printf("%lld\n", now() - from);
	return 0;
}
