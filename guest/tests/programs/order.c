/*
 * Streams, events and callbacks: order, states and errors, without kernels.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 8 << 20 };

static void events(CUcontext context)
{
	CUevent a, b, other;
	CUstream s;
	CUdeviceptr d;
	float ms = -1;
	OK(cuMemAlloc(&d, BYTES));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
	OK(cuEventCreate(&b, CU_EVENT_BLOCKING_SYNC));
	OK(cuEventQuery(a)); /* never recorded: complete */
	OK(cuEventSynchronize(a));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, a, b));
	OK(cuEventRecord(a, s));
	OK(cuMemsetD8Async(d, 1, BYTES, s));
	OK(cuEventRecord(b, s));
	OK(cuEventSynchronize(b));
	OK(cuEventQuery(a));
	OK(cuEventQuery(b));
	OK(cuEventElapsedTime(&ms, a, b));
	CLAIM(ms >= 0 && ms < 10000);
	OK(cuStreamQuery(s));
	OK(cuStreamWaitEvent(NULL, b, 0));
	for (int i = 0; i < 1000; i++)
		OK(cuEventRecord(a, i & 1 ? s : NULL));
	OK(cuCtxSynchronize());
	OK(cuEventQuery(a));
	OK(cuEventDestroy(a));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(a));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(a));

	/* A stream of another context. */
	CUcontext second;
	CUdevice device;
	OK(cuCtxGetDevice(&device));
	OK(cuCtxCreate(&second, 0, device));
	OK(cuEventCreate(&other, 0));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(other, s));
	OK(cuCtxDestroy(second));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(other));
	CUcontext now;
	OK(cuCtxGetCurrent(&now));
	CLAIM(now == context);
	OK(cuEventDestroy(b));
	OK(cuStreamDestroy(s));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
	OK(cuMemFree(d));
}

static atomic_int called, order;

static void with_status(CUstream s, CUresult status, void *p)
{
	(void)s;
	if (status == CUDA_SUCCESS && p == &called && atomic_load(&called) == atomic_load(&order))
		atomic_fetch_add(&called, 1);
}

static void plain(void *p)
{
	if (p == &order)
		atomic_fetch_add(&order, 1);
}

static void callbacks(void)
{
	CUstream s;
	OK(cuStreamCreate(&s, 0));
	for (int i = 0; i < 200; i++) {
		OK(cuStreamAddCallback(s, with_status, &called, 0));
		OK(cuLaunchHostFunc(s, plain, &order));
	}
	OK(cuStreamSynchronize(s));
	CLAIM(called == 200 && order == 200);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(s, NULL, NULL, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(s, with_status, NULL, 1));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(s, NULL, NULL));
	OK(cuStreamDestroy(s));
}

static CUcontext shared;

/* More threads than reply slots, each with its own default stream. */
static void *thread(void *p)
{
	CUdeviceptr d;
	uint32_t want = (uint32_t)(uintptr_t)p, got = 0;
	OK(cuCtxSetCurrent(shared));
	OK(cuMemAlloc(&d, 4096));
	OK(cuMemsetD32Async(d, want, 1024, CU_STREAM_PER_THREAD));
	OK(cuMemcpyDtoHAsync(&got, d + 4092, 4, CU_STREAM_PER_THREAD));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	CLAIM(got == want);
	OK(cuMemFree(d));
	return NULL;
}

static void threads(int count)
{
	pthread_t *id = calloc((size_t)count, sizeof *id);
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 128 << 10);
	for (int i = 0; i < count; i++)
		CLAIM(pthread_create(&id[i], &small, thread, (void *)(uintptr_t)(i + 1)) == 0);
	for (int i = 0; i < count; i++)
		pthread_join(id[i], NULL);
	free(id);
}

static void stack_of_contexts(CUdevice device)
{
	CUcontext c[3], top;
	for (int i = 0; i < 3; i++)
		OK(cuCtxCreate(&c[i], 0, device));
	for (int i = 0; i < 100; i++)
		OK(cuCtxPushCurrent(c[i % 3]));
	for (int i = 99; i >= 0; i--) {
		OK(cuCtxPopCurrent(&top));
		CLAIM(top == c[i % 3]);
	}
	OK(cuCtxDestroy(c[2])); /* current: popped */
	OK(cuCtxGetCurrent(&top));
	CLAIM(top == c[1]);
	OK(cuCtxDestroy(c[0])); /* not current: stays on the stack as a destroyed context */
	OK(cuCtxPopCurrent(&top));
	EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(c[0]));
	OK(cuCtxPopCurrent(&top));
	OK(cuCtxDestroy(c[1]));
}

static void primary(CUdevice device)
{
	CUcontext a, b, before;
	unsigned int flags;
	int active;
	OK(cuCtxGetCurrent(&before));
	OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
	CLAIM(!active && flags == 0);
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(device));
	OK(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC));
	OK(cuDevicePrimaryCtxRetain(&a, device));
	OK(cuDevicePrimaryCtxRetain(&b, device));
	CLAIM(a == b);
	OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
	CLAIM(active && flags == CU_CTX_SCHED_BLOCKING_SYNC);
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(a));
	OK(cuDevicePrimaryCtxRelease(device));
	OK(cuCtxPushCurrent(a));
	OK(cuCtxSynchronize());
	OK(cuCtxPopCurrent(&b));
	OK(cuDevicePrimaryCtxRelease(device));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(a));
	OK(cuDevicePrimaryCtxRetain(&a, device));
	OK(cuDevicePrimaryCtxReset(device));
	OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
	CLAIM(!active);
	OK(cuCtxGetCurrent(&b));
	CLAIM(b == before);
}

int main(void)
{
	CUdevice device;
	OK(cuInit(0));
	OK(cuInit(0));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
	OK(cuDeviceGet(&device, 0));
	primary(device);
	stack_of_contexts(device);
	OK(cuCtxCreate(&shared, CU_CTX_SCHED_BLOCKING_SYNC, device));
	events(shared);
	callbacks();
	threads(300);
	threads(1200);
	OK(cuCtxDestroy(shared));
	puts("order: fine");
	return 0;
}
