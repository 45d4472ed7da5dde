/* More threads in calls than there are reply slots, which start and end, each with a default stream of its own. */
#include <pthread.h>
#include <stdint.h>

#include "check.h"

enum { BYTES = 200000 };

static CUcontext context;

static void *work(void *p)
{
	uint32_t want = (uint32_t)(uintptr_t)p, got = 0;
	CUdeviceptr d;
	CUstream stream;
	CUevent event;
	uint8_t *up = malloc(BYTES), *down = malloc(BYTES);
	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	memset(up, (int)want, BYTES);
	for (int i = 0; i < 20; i++) {
		OK(cuMemAlloc(&d, 4096));
		OK(cuMemsetD32Async(d, want, 1024, CU_STREAM_PER_THREAD));
		OK(cuMemcpyDtoHAsync(&got, d + 4092, 4, CU_STREAM_PER_THREAD));
		OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
		CLAIM(got == want);
		OK(cuMemFree(d));
		OK(cuMemAlloc(&d, BYTES));
		OK(cuMemcpyHtoDAsync(d, up, BYTES, stream));
		OK(cuEventRecord(event, stream));
		OK(cuMemcpyDtoHAsync(down, d, BYTES, stream));
		CLAIM(memcmp(up, down, BYTES) == 0);
		OK(cuEventSynchronize(event));
		OK(cuEventQuery(event));
		OK(cuMemFree(d));
	}
	OK(cuStreamDestroy(stream));
	OK(cuEventDestroy(event));
	free(up);
	free(down);
	return NULL;
}

int main(void)
{
	enum { THREADS = 64 };
	pthread_t id[THREADS];
	CUdevice device;
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < THREADS; i++)
			CLAIM(pthread_create(&id[i], NULL, work, (void *)(uintptr_t)(i + 1)) == 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(id[i], NULL);
	}
	OK(cuCtxSynchronize());
	puts("threads: fine");
	return 0;
}
