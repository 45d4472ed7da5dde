/* Properties of the API in corner cases that unmodified programs rely on, one at a time: semantics NAME. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static CUcontext new_context(CUfunction *step)
{
	CUcontext c;
	CUmodule m;
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(step, m, "step"));
	return c;
}

static void launch_fault(CUfunction step) { launch_step(step, NULL, 16, 1, 1); }

/* --- contexts --- */

static void primary(void)
{
	CUcontext p, again, current;
	CUdeviceptr memory;
	unsigned flags;
	int active;
	CHECK(cuDevicePrimaryCtxRetain(&p, 0));
	CHECK(cuCtxSetCurrent(p));
	CHECK(cuMemAlloc(&memory, 4));
	CHECK(cuDevicePrimaryCtxRelease(0));
	CHECK(cuCtxGetCurrent(&current));
	CLAIM(current == p); /* unlike cuCtxDestroy, a release pops nothing */
	EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree(memory));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));

	/* A reset destroys the context, but does not release it. */
	CHECK(cuDevicePrimaryCtxRetain(&p, 0));
	CHECK(cuDevicePrimaryCtxRetain(&p, 0));
	CHECK(cuDevicePrimaryCtxReset(0));
	CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CLAIM(!active);
	CHECK(cuDevicePrimaryCtxRelease(0));
	CHECK(cuDevicePrimaryCtxRetain(&again, 0));
	CHECK(cuCtxSetCurrent(again));
	CHECK(cuCtxSynchronize());
	CHECK(cuDevicePrimaryCtxRelease(0));
	CHECK(cuCtxSynchronize());
	CHECK(cuDevicePrimaryCtxRelease(0));
	EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
}

/*
 * A primary context has one permanent handle: programs that hold it, also on a stack, continue with the context after a
 * reset.
 */
static void primary_again(void)
{
	CUcontext p, again, current;
	CUdevice device;
	CUmodule m;
	CUfunction step;
	CUstream s;
	CUevent e;
	CUgraph g;
	CUgraphExec x;
	CUgraphNode n;
	CUdeviceptr at;
	CHECK(cuDevicePrimaryCtxRetain(&p, 0));
	CHECK(cuCtxSetCurrent(p));
	for (int i = 0; i < 4; i++) {
		CHECK(cuModuleLoadData(&m, step_ptx));
		CHECK(cuModuleGetFunction(&step, m, "step"));
		CHECK(cuStreamCreate(&s, 0));
		CHECK(cuEventCreate(&e, 0));
		CHECK(cuMemAlloc(&at, 4));
		CHECK(cuMemsetD32Async(at, 1, 1, CU_STREAM_PER_THREAD));
		launch_step(step, CU_STREAM_PER_THREAD, at, 2, 3);
		CHECK(cuGraphCreate(&g, 0));
		CHECK(cuGraphAddEmptyNode(&n, g, NULL, 0));
		CHECK(cuGraphInstantiate(&x, g, 0));
		CHECK(cuGraphLaunch(x, s));
		CHECK(cuCtxSynchronize());
		unsigned value;
		CHECK(cuMemcpyDtoH(&value, at, 4));
		CLAIM(value == 5);

		if (i % 2)
			CHECK(cuDevicePrimaryCtxReset(0));
		CHECK(cuDevicePrimaryCtxRelease(0));
		/* Until then it can be current, but only its device can be queried. */
		device = -1;
		CHECK(cuCtxGetDevice(&device));
		CLAIM(device == 0);
		CHECK(cuCtxPushCurrent(p));
		EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
		CHECK(cuCtxPopCurrent(&current));
		CLAIM(current == p);
		CHECK(cuCtxSetCurrent(p));
		CHECK(cuDevicePrimaryCtxRetain(&again, 0));
		CHECK(cuCtxGetCurrent(&current));
		CLAIM(again == p && current == p);
		CHECK(cuCtxGetDevice(&device));

		/* It has none of the other context's objects. */
		void *args[] = {&at, &value, &value};
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(e, NULL));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(m));
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(at));
		EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuGraphLaunch(x, NULL));
		CHECK(cuGraphExecDestroy(x));
		CHECK(cuCtxSynchronize());
	}
}

static void CUDA_CB increment(void *number) { ++*(unsigned *)number; }

/*
 * A stream determines its context: NVIDIA's driver (580, on an H200) launches a context's function in a stream of the
 * same context while another context is current, or none is. A function and a stream of two contexts are rejected.
 */
static void elsewhere(void)
{
	CUfunction step, other;
	CUcontext a = new_context(&step), b;
	CUstream s, foreign;
	CUevent event, strange;
	CUdeviceptr at;
	unsigned one = 1, two = 2, value = 7, called = 0;
	void *args[] = {&at, &two, &one};
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&event, 0));
	CHECK(cuMemAlloc(&at, 4));
	b = new_context(&other);
	CHECK(cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&strange, 0));
	CUlaunchConfig config = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = s,
	};

	CHECK(cuMemcpyHtoDAsync(at, &value, 4, s));
	CHECK(cuMemsetD32Async(at, 1, 1, s));
	CHECK(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	CHECK(cuLaunchKernelEx(&config, step, args, NULL));
	CHECK(cuLaunchCooperativeKernel(step, 1, 1, 1, 1, 1, 1, 0, s, args));
	CHECK(cuMemcpyDtoHAsync(&value, at, 4, s));
	CHECK(cuLaunchHostFunc(s, increment, &called));
	CHECK(cuEventRecord(event, s));
	CHECK(cuStreamWaitEvent(foreign, event, 0));
	CHECK(cuStreamSynchronize(foreign));
	CHECK(cuStreamSynchronize(s));
	CHECK(cuStreamQuery(s));
	CLAIM(value == 15 && called == 1);

	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(other, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchCooperativeKernel(other, 1, 1, 1, 1, 1, 1, 0, s, args));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernelEx(&config, other, args, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL)); /* the current context's */
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, foreign, args, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(strange, s));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, foreign));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL));
	CHECK(cuCtxDestroy(b));
	CHECK(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	CHECK(cuCtxPopCurrent(&b));
	CLAIM(b == a);
	CHECK(cuMemsetD32Async(at, 1, 1, s));
	CHECK(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	CHECK(cuLaunchKernelEx(&config, step, args, NULL));
	CHECK(cuLaunchCooperativeKernel(step, 1, 1, 1, 1, 1, 1, 0, s, args));
	CHECK(cuMemcpyDtoHAsync(&value, at, 4, s));
	CHECK(cuStreamSynchronize(s));
	CLAIM(value == 15);
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
}

/* A context's work continues while the current one, an unrelated context, has failed. */
static void healthy(void)
{
	CUfunction step, other;
	CUstream s;
	CUdeviceptr at;
	unsigned value;
	new_context(&step);
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&at, 4));
	new_context(&other);
	launch_fault(other);
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	CHECK(cuMemsetD32Async(at, 1, 1, s));
	launch_step(step, s, at, 2, 3);
	CUDA_MEMCPY2D box = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at, .srcPitch = 4, .dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = &value, .dstPitch = 4, .WidthInBytes = 4, .Height = 1,
	};
	CHECK(cuMemcpy2DAsync(&box, s));
	CHECK(cuStreamSynchronize(s));
	CLAIM(value == 5);
}

/* A failure is confined to its context. */
static void neighbours(void)
{
	CUfunction step;
	void *pinned;
	CUdeviceptr managed;
	new_context(&step);
	launch_fault(step);
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	new_context(&step);
	CHECK(cuMemHostAlloc(&pinned, 4096, 0));
	CHECK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	launch_step(step, NULL, managed, 0, 7);
	launch_step(step, NULL, (CUdeviceptr)(uintptr_t)pinned, 0, 8);
	CHECK(cuCtxSynchronize());
	CLAIM(*(unsigned *)(uintptr_t)managed == 7 && *(unsigned *)pinned == 8);
	CHECK(cuMemFree(managed));
	CHECK(cuMemFreeHost(pinned));
}

/* The failure of a kernel is visible as soon as the event behind it is complete. */
static void failed_event(void)
{
	for (int i = 0; i < 150; i++) {
		CUfunction step;
		CUcontext c = new_context(&step);
		CUevent e;
		CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
		launch_fault(step);
		CUresult r = cuEventRecord(e, NULL); /* the context may have failed already */
		while (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY) {
			r = cuEventQuery(e);
			CLAIM(r != CUDA_SUCCESS);
		}
		EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, r);
		CHECK(cuCtxDestroy(c));
	}
}

/* --- callbacks --- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void CUDA_CB wait_at_gate(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
}

static CUresult inside[4];
static CUcontext callersContext;

static void CUDA_CB calls_back(void *stream)
{
	CUdeviceptr at;
	inside[0] = cuStreamSynchronize(stream);
	inside[1] = cuMemAlloc(&at, 4);
	inside[2] = cuCtxDestroy(callersContext);
	inside[3] = cuGetErrorName(CUDA_SUCCESS, &(const char *){NULL});
}

/* A callback that waited for its own stream would deadlock. */
static void permission(void)
{
	CUfunction step;
	CUstream s;
	callersContext = new_context(&step);
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuLaunchHostFunc(s, calls_back, s));
	CHECK(cuStreamSynchronize(s));
	for (int i = 0; i < 3; i++)
		EXPECT(CUDA_ERROR_NOT_PERMITTED, inside[i]);
	EXPECT(CUDA_SUCCESS, inside[3]);
	CHECK(cuCtxSynchronize());
}

static int callbacks;
static CUresult status;

static void CUDA_CB count(CUstream s, CUresult r, void *unused)
{
	(void)s, (void)unused;
	callbacks++;
	status = r;
}

/* Callbacks of a destroyed context run all the same, or their memory would never be freed. */
static void farewell(void)
{
	CUfunction step;
	CUcontext c = new_context(&step);
	CUstream s;
	CHECK(cuStreamCreate(&s, 0));
	pthread_mutex_lock(&gate);
	CHECK(cuLaunchHostFunc(s, wait_at_gate, NULL));
	for (int i = 0; i < 5; i++)
		CHECK(cuStreamAddCallback(s, count, NULL, 0));
	CHECK(cuLaunchHostFunc(s, calls_back, s)); /* not run after an error */
	CHECK(cuCtxDestroy(c));
	pthread_mutex_unlock(&gate);
	CLAIM(callbacks == 5);
	EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, status);
}

static void CUDA_CB late(CUstream s, CUresult r, void *work)
{
	(void)s;
	CHECK(r);
	*(volatile int *)work += 1;
}

/*
 * A program that ends without waiting, as OpenACC programs do: its streams, and then the context, are destroyed while
 * kernels run. The callbacks queued behind the kernels, which free their resources, receive no error, however late the
 * kernels get a processor.
 */
static void leaving(void)
{
	for (int round = 0; round < 3; round++) {
		CUfunction step;
		CUcontext c = new_context(&step);
		CUstream s[4];
		int done[4] = {0};
		CUdeviceptr at;
		CHECK(cuMemAlloc(&at, 4096));
		for (int i = 0; i < 4; i++) {
			CHECK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
			for (int k = 0; k < 40; k++) {
				launch_step(step, s[i], at + 4 * (unsigned)i, 1, 1);
				CHECK(cuStreamAddCallback(s[i], late, &done[i], 0));
			}
		}
		for (int i = 0; i < 4; i++)
			CHECK(cuStreamDestroy(s[i]));
		CHECK(cuCtxDestroy(c));
		for (int i = 0; i < 4; i++)
			CLAIM(done[i] == 40);
	}
}

static _Atomic int counted, queued, held;

static void CUDA_CB count_one(void *unused)
{
	(void)unused;
	counted++;
}

/* Keeps the gate closed while more callbacks fit. */
static void *hold_gate(void *unused)
{
	int before = -1;
	pthread_mutex_lock(&gate);
	held = 1;
	while (queued != before) {
		before = queued;
		usleep(300000);
	}
	pthread_mutex_unlock(&gate);
	return unused;
}

/* A program that queues more callbacks than there is room for waits until some have run. */
static void throng(void)
{
	enum { ALL = 70000 };
	CUfunction step;
	CUstream s;
	pthread_t other;
	new_context(&step);
	CHECK(cuStreamCreate(&s, 0));
	CLAIM(pthread_create(&other, NULL, hold_gate, NULL) == 0);
	while (!held)
		usleep(1000);
	CHECK(cuLaunchHostFunc(s, wait_at_gate, NULL));
	for (; queued < ALL; queued++)
		CHECK(cuLaunchHostFunc(s, count_one, NULL));
	CHECK(cuStreamSynchronize(s));
	CLAIM(counted == ALL);
	CLAIM(pthread_join(other, NULL) == 0);
}

/* Waiting for an event of another context blocks only the stream, not its caller. */
static void across(void)
{
	CUfunction step, other;
	CUcontext a = new_context(&step);
	CUstream s, t;
	CUevent e;
	CUdeviceptr at;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, 0));
	pthread_mutex_lock(&gate);
	CHECK(cuLaunchHostFunc(s, wait_at_gate, NULL));
	CHECK(cuEventRecord(e, s));
	new_context(&other);
	CHECK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&at, 4));
	CHECK(cuStreamWaitEvent(t, e, 0));
	launch_step(other, t, at, 0, 9);
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(t));
	pthread_mutex_unlock(&gate);
	CHECK(cuStreamSynchronize(t));
	CHECK(cuEventQuery(e));
	unsigned v = 0;
	CHECK(cuMemcpyDtoH(&v, at, 4));
	CLAIM(v == 9);
	CHECK(cuCtxDestroy(a));
}

/* A program that has pinned all of the arena can still load modules and copy. */
static void crowded(void)
{
	static char pageable[3 << 20];
	CUfunction step;
	CUdeviceptr at;
	void *p;
	CHECK(cuCtxCreate(&callersContext, 0, 0));
	for (size_t size = 64 << 20; size >= 4096; size /= 4)
		while (cuMemHostAlloc(&p, size, 0) == CUDA_SUCCESS)
			;
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&p, 1, 0));
	new_context(&step);
	CHECK(cuMemAlloc(&at, sizeof pageable));
	CHECK(cuMemcpyHtoD(at, pageable, sizeof pageable));
	launch_step(step, NULL, at, 0, 6);
	CHECK(cuMemcpyDtoH(pageable, at, sizeof pageable));
	CLAIM(pageable[0] == 6);
}

/* --- launches --- */

static void empty_extra(void)
{
	static const char none[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry none()\n{\n	ret;\n}\n";
	CUfunction step, f;
	CUmodule m;
	size_t bytes = 0;
	void *end[] = {CU_LAUNCH_PARAM_END};
	void *sized[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	new_context(&step);
	CHECK(cuModuleLoadData(&m, none));
	CHECK(cuModuleGetFunction(&f, m, "none"));
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, end));
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, sized));
	CHECK(cuCtxSynchronize());
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, end));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, sized));
}

/* --- the process; these call cuInit themselves --- */

/* Output of a program without standard streams reaches no file, and least of all the worker's socket. */
static void bereft_of_streams(void)
{
	report = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 50);
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		close(fd);
	CHECK(cuInit(0));
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		CLAIM(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
	CUfunction step;
	new_context(&step);
	CHECK(cuCtxSynchronize());
}

/* --- events --- */

static void launch_spin(CUfunction spin, unsigned steps)
{
	void *args[] = { &steps };
	CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *wait_for(void *event)
{
	CHECK(cuEventSynchronize(event));
	return NULL;
}

/* A stream without work is ready, although kernels of another stream wait at the host's gate. */
static void ready_beside(void)
{
	CUfunction spin;
	CUcontext c;
	CUmodule m;
	CUstream busy, idle;
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&spin, m, "spin"));
	CHECK(cuStreamCreate(&busy, CU_STREAM_DEFAULT));
	/* Kernels of some 10 ms: of such only one is let in at a time. */
	unsigned steps = 1u << 10;
	void *args[] = { &steps };
	for (int64_t took = 0; took < 10000000; steps *= 2) {
		int64_t begin = now();
		CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, busy, args, NULL));
		CHECK(cuStreamSynchronize(busy));
		took = now() - begin;
	}
	for (int tries = 0; tries < 5; tries++) {
		CHECK(cuStreamCreate(&idle, CU_STREAM_DEFAULT));
		for (int i = 0; i < 4; i++)
			CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, busy, args, NULL));
		CHECK(cuStreamQuery(idle));
		CHECK(cuStreamSynchronize(busy));
		CHECK(cuStreamQuery(busy));
		CHECK(cuStreamDestroy(idle));
	}
}

static atomic_int letGo;

static void CUDA_CB await_leave(void *unused)
{
	(void)unused;
	while (!letGo)
		usleep(1000);
}

/* A stream is ready when its own work has ended, whatever the legacy stream does, and whether or not a call waited for it. */
static void ready_own(void)
{
	CUcontext c;
	CUdeviceptr p;
	CUstream waited, left;
	uint32_t word = 0;
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuMemAlloc(&p, 8));
	CHECK(cuStreamCreate(&waited, CU_STREAM_DEFAULT));
	CHECK(cuStreamCreate(&left, CU_STREAM_DEFAULT));
	CHECK(cuMemsetD32Async(p, 1, 1, waited));
	CHECK(cuStreamSynchronize(waited));
	CHECK(cuMemsetD32Async(p + 4, 1, 1, left));
	CHECK(cuCtxSynchronize());
	CHECK(cuLaunchHostFunc(0, await_leave, NULL));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(0));
	CHECK(cuStreamQuery(waited));
	for (int tries = 0; cuStreamQuery(left) == CUDA_ERROR_NOT_READY; tries++) {
		CLAIM(tries < 5000); /* the host may be late */
		usleep(1000);
	}
	CHECK(cuStreamQuery(left));
	CHECK(cuMemsetD32Async(p, 2, 1, waited)); /* ordered after the legacy stream's work */
	usleep(20000);
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(waited));
	letGo = 1;
	CHECK(cuStreamSynchronize(waited));
	CHECK(cuStreamQuery(0));
	CHECK(cuMemcpyDtoH(&word, p, 4));
	CLAIM(word == 2);
}

static _Atomic(CUstream) shortLived;

static void *capture_them(void *context)
{
	CUgraph g;
	CHECK(cuCtxSetCurrent(context));
	for (CUstream last = NULL, s; (s = shortLived) != CU_STREAM_LEGACY;) {
		if (s == last)
			continue;
		last = s;
		if (cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS)
			cuStreamEndCapture(s, &g);
	}
	return NULL;
}

/* A stream that is destroyed while another thread begins to capture it leaves no capture, which would forbid waits for ever. */
static void captured_and_gone(void)
{
	CUcontext c;
	CUstream s;
	pthread_t thread;
	CHECK(cuCtxCreate(&c, 0, 0));
	CLAIM(pthread_create(&thread, NULL, capture_them, c) == 0);
	for (int64_t until = now() + 1000000000; now() < until;) {
		CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
		shortLived = s;
		for (volatile int i = 0; i < (until - now()) % 1000; i++)
			;
		CHECK(cuStreamDestroy(s));
	}
	shortLived = CU_STREAM_LEGACY;
	CLAIM(pthread_join(thread, NULL) == 0);
	CHECK(cuCtxSynchronize());
}

/*
 * A wait for an event ends when it has completed, although work queued later has not even begun: programs use this for
 * double buffering.
 */
static void early(void)
{
	CUfunction spin;
	CUcontext c;
	CUmodule m;
	CUevent before, between, after;
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&spin, m, "spin"));
	CHECK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&between, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
	/* Kernels of some 10 ms: of such only one is let in at a time. The first launch compiles, and whatever else goes
	 * on on the machine can only add to the others. */
	unsigned steps = 1u << 10;
	launch_spin(spin, 1);
	CHECK(cuCtxSynchronize());
	for (int64_t least = 0; least < 10000000; steps *= 2) {
		for (int i = 0; i < 3; i++) {
			int64_t begin = now();
			launch_spin(spin, steps);
			CHECK(cuCtxSynchronize());
			int64_t took = now() - begin;
			least = i == 0 || took < least ? took : least;
		}
	}
	int seen = 0;
	for (int tries = 0; seen < 2 && tries < 20; tries++) { /* again, if this thread came late */
		CHECK(cuEventRecord(before, NULL));
		launch_spin(spin, steps);
		CHECK(cuEventRecord(between, NULL));
		launch_spin(spin, steps);
		CHECK(cuEventRecord(after, NULL));
		launch_spin(spin, steps);
		CHECK(cuEventSynchronize(before));
		seen = cuEventQuery(between) == CUDA_ERROR_NOT_READY;
		CHECK(cuEventSynchronize(between));
		seen += cuEventQuery(after) == CUDA_ERROR_NOT_READY;
		CHECK(cuCtxSynchronize());
	}
	CLAIM(seen == 2);

	/* Several threads wait for one event, which is recorded again meanwhile. */
	pthread_t threads[4];
	launch_spin(spin, 1u << 20);
	CHECK(cuEventRecord(after, NULL));
	for (int i = 0; i < 4; i++)
		CLAIM(pthread_create(&threads[i], NULL, wait_for, after) == 0);
	launch_spin(spin, 1u << 20);
	CHECK(cuEventRecord(after, NULL));
	for (int i = 0; i < 4; i++)
		CLAIM(pthread_join(threads[i], NULL) == 0);
	CHECK(cuCtxSynchronize());
	EXPECT(CUDA_SUCCESS, cuEventQuery(after));

	/* A wait for failed work ends, and returns the error. */
	CUdeviceptr nowhere = 16;
	CUfunction step;
	CHECK(cuModuleGetFunction(&step, m, "step"));
	pthread_mutex_lock(&gate); /* until the event is recorded: a call after the failure fails */
	CHECK(cuLaunchHostFunc(NULL, wait_at_gate, NULL));
	launch_spin(spin, 1u << 20);
	launch_step(step, NULL, nowhere, 1, 1);
	CHECK(cuEventRecord(between, NULL));
	pthread_mutex_unlock(&gate);
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventSynchronize(between));
}

static void *expect_gone(void *event)
{
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize(event));
	return NULL;
}

/* A thread that waits for an event that is destroyed does not end up waiting for the event that reuses its slot. */
static void reborn(void)
{
	enum { MANY = 200 };
	CUfunction step;
	CUstream s;
	CUevent rest, old, e;
	pthread_t waiter;
	new_context(&step);
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < MANY; i++) /* after so many, places are used again */
		CHECK(cuEventCreate(&rest, 0));
	pthread_mutex_lock(&gate);
	CHECK(cuLaunchHostFunc(s, wait_at_gate, NULL));
	CHECK(cuEventCreate(&old, CU_EVENT_BLOCKING_SYNC));
	CHECK(cuEventRecord(old, s));
	CLAIM(pthread_create(&waiter, NULL, expect_gone, old) == 0);
	usleep(30000);
	CHECK(cuEventDestroy(old));
	CHECK(cuEventCreate(&e, 0));
	CLAIM(((uintptr_t)e & 0xfffff) == ((uintptr_t)old & 0xfffff));
	CHECK(cuEventRecord(e, s));
	CLAIM(pthread_join(waiter, NULL) == 0);
	EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
	pthread_mutex_unlock(&gate);
	CHECK(cuEventSynchronize(e));
}

/* An elapsed time can be read as soon as a query finds its end event complete. */
static void stopwatch(void)
{
	CUcontext c;
	CUmodule m;
	CUfunction spin;
	CUevent begin, end;
	float took;
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&spin, m, "spin"));
	CHECK(cuEventCreate(&begin, 0));
	CHECK(cuEventCreate(&end, 0));
	for (int64_t until = now() + 1000000000; now() < until;) {
		CHECK(cuEventRecord(begin, NULL));
		launch_spin(spin, 1u << 12); /* long enough for the race with the executor */
		CHECK(cuEventRecord(end, NULL));
		CHECK(cuEventSynchronize(end));
		CHECK(cuEventElapsedTime(&took, begin, end));
		CHECK(cuStreamQuery(NULL));
	}
}

/* A query of the legacy stream is about all that keep order with it, one of another stream only about that one's own work. */
static void in_order(void)
{
	CUfunction step;
	CUstream s, aside;
	CUdeviceptr at;
	new_context(&step);
	CHECK(cuMemAlloc(&at, 4));
	CHECK(cuStreamCreate(&s, 0));
	CHECK(cuStreamCreate(&aside, CU_STREAM_NON_BLOCKING));
	CUstream all[] = {NULL, s, CU_STREAM_PER_THREAD, aside};
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < 4; k++)
			CHECK(cuStreamQuery(all[k]));
		pthread_mutex_lock(&gate);
		CHECK(cuLaunchHostFunc(all[i], wait_at_gate, NULL));
		launch_step(step, all[i], at, 1, 1);
		for (int k = 0; k < 4; k++)
			EXPECT(i == k || (i != 3 && k == 0) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS, cuStreamQuery(all[k]));
		pthread_mutex_unlock(&gate);
		CHECK(cuCtxSynchronize());
	}
	/* Also of those that are gone. */
	CHECK(cuStreamQuery(NULL));
	pthread_mutex_lock(&gate);
	CHECK(cuLaunchHostFunc(s, wait_at_gate, NULL));
	CHECK(cuStreamDestroy(s));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	pthread_mutex_unlock(&gate);
	CHECK(cuStreamSynchronize(NULL));
	CHECK(cuStreamQuery(NULL));
}

static volatile int enough;

static void *keep_busy(void *context)
{
	CUstream s;
	CUevent e;
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	while (!enough)
		CHECK(cuEventRecord(e, s));
	return NULL;
}

/* A program that has waited for a stream finds it ready, whatever other threads queue elsewhere. */
static void ready(void)
{
	CUfunction step;
	CUcontext c = new_context(&step);
	CUstream s;
	CUdeviceptr at;
	pthread_t other;
	CHECK(cuMemAlloc(&at, 4));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CLAIM(pthread_create(&other, NULL, keep_busy, c) == 0);
	for (int64_t until = now() + 1000000000; now() < until;) {
		launch_step(step, s, at, 1, 1);
		CHECK(cuStreamSynchronize(s));
		CHECK(cuStreamQuery(s));
	}
	enough = 1;
	CLAIM(pthread_join(other, NULL) == 0);
}

/* The library needs few descriptors, and too few are an error that reports this. */
static void few_files(void)
{
	int next = dup(0); /* the lowest free descriptor: some may be inherited */
	close(next);
	struct rlimit few = {(rlim_t)next + 1, 64};
	CHECK(0 == setrlimit(RLIMIT_NOFILE, &few) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
	EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuInit(0));
	few.rlim_cur = (rlim_t)next + 5;
	CHECK(0 == setrlimit(RLIMIT_NOFILE, &few) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
	CHECK(cuInit(0));
	CUfunction step;
	new_context(&step);
	CHECK(cuCtxSynchronize());
}

/* weigh: *at = *at * 3 + the sum of words, each times its place. */
static const char weigh_ptx[] =
	".version 8.1\n.target sm_70\n.address_size 64\n"
	".visible .entry weigh(.param .u64 at, .param .align 4 .b8 words[%d])\n{\n"
	"	.reg .u64 %%p, %%q;\n	.reg .u32 %%v, %%i, %%sum;\n	.reg .pred %%more;\n"
	"	mov.u64 %%q, words;\n	mov.u32 %%i, 0;\n	mov.u32 %%sum, 0;\n"
	"again:\n	ld.param.u32 %%v, [%%q];\n	add.u64 %%q, %%q, 4;\n	add.u32 %%i, %%i, 1;\n	mad.lo.u32 %%sum, %%v, %%i, %%sum;\n"
	"	setp.lt.u32 %%more, %%i, %d;\n	@%%more bra again;\n"
	"	ld.param.u64 %%p, [at];\n	ld.global.u32 %%v, [%%p];\n	mad.lo.u32 %%v, %%v, 3, %%sum;\n	st.global.u32 [%%p], %%v;\n	ret;\n}\n";

enum { WORDS_MOST = 8189 }; /* a kernel may have 32764 bytes of parameters, of which 8 are at */
static struct {
	CUcontext context;
	CUfunction weigh, spin;
	CUdeviceptr at;
	uint32_t words, expected;
	struct {
		CUdeviceptr at;
		uint32_t words[WORDS_MOST];
	} block;
} heavy;

/* Other words each time. */
static void draw_words(void)
{
	static uint32_t last = 1;
	heavy.expected *= 3;
	for (uint32_t i = 0; i < heavy.words; i++) {
		last = last * 1664525 + 1013904223;
		heavy.block.words[i] = last;
		heavy.expected += last * (i + 1);
	}
}

static void weigh(CUstream s, int extra)
{
	void *values[] = {&heavy.block.at, heavy.block.words};
	size_t bytes = 8 + 4 * heavy.words;
	void *block[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &heavy.block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	draw_words();
	CHECK(cuLaunchKernel(heavy.weigh, 1, 1, 1, 1, 1, 1, 0, s, extra ? NULL : values, extra ? block : NULL));
	memset(heavy.block.words, 0xee, sizeof heavy.block.words); /* they are the program's again */
}

static void *weigh_elsewhere(void *nothing)
{
	CHECK(cuCtxSetCurrent(heavy.context));
	weigh(NULL, 0);
	return nothing;
}

static void weigh_all_ways(void)
{
	CUstream s;
	CUgraph g;
	CUgraphExec x;
	CUgraphNode n;
	pthread_t other;
	pthread_attr_t modest;
	unsigned steps = 300000;
	void *spin[] = {&steps};
	uint32_t got, zero = 0;
	heavy.expected = 0;
	heavy.block.at = heavy.at;
	CHECK(cuMemcpyHtoD(heavy.at, &zero, 4));
	CHECK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	weigh(NULL, 0);
	weigh(NULL, 1);

	/* A thread with a small stack. */
	CLAIM(pthread_attr_init(&modest) == 0 && pthread_attr_setstacksize(&modest, 32 << 10) == 0);
	CLAIM(pthread_create(&other, &modest, weigh_elsewhere, NULL) == 0);
	CLAIM(pthread_join(other, NULL) == 0);
	CHECK(cuCtxSynchronize());

	/* More than a ring is full of, behind something that takes its time. */
	CHECK(cuLaunchKernel(heavy.spin, 1, 1, 1, 1, 1, 1, 0, s, spin, NULL));
	for (int i = 0; i < 100; i++)
		weigh(s, i & 1);

	/* Captured, and changed. */
	CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	weigh(s, 0);
	CHECK(cuStreamEndCapture(s, &g));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuGraphLaunch(x, s));
	size_t one = 1;
	CHECK(cuGraphGetNodes(g, &n, &one));
	draw_words();
	void *values[] = {&heavy.block.at, heavy.block.words};
	CUDA_KERNEL_NODE_PARAMS p = {.func = heavy.weigh, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = values};
	CHECK(cuGraphExecKernelNodeSetParams(x, n, &p));
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuStreamSynchronize(s));
	CHECK(cuMemcpyDtoH(&got, heavy.at, 4));
	CLAIM(got == heavy.expected);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
	CHECK(cuStreamDestroy(s));
}

/* Kernels may have many parameters, or large ones: the size of a packet, a ring slot or a stack is no limit. */
static void many_parameters(void)
{
	static const uint32_t sizes[] = {1022, 1023, 1086, 1902, 1903, 8000, WORDS_MOST};
	char text[sizeof weigh_ptx + 32];
	CUmodule m;
	heavy.context = new_context(&heavy.spin);
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&heavy.spin, m, "spin"));
	CHECK(cuMemAlloc(&heavy.at, 4));
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		heavy.words = sizes[i];
		snprintf(text, sizeof text, weigh_ptx, 4 * heavy.words, heavy.words);
		CHECK(cuModuleLoadData(&m, text));
		CHECK(cuModuleGetFunction(&heavy.weigh, m, "weigh"));
		weigh_all_ways();
		CHECK(cuModuleUnload(m));
	}
	snprintf(text, sizeof text, weigh_ptx, 4 * WORDS_MOST + 4, WORDS_MOST + 1);
	EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&m, text));
}

/* --- refusals --- */

/*
 * Shapes of launches, and the expected result for each kernel: big has local memory for 167 threads, and frees needs a
 * heap.
 */
static const char refused_ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
	".visible .entry exact(.param .u64 at) .reqntid 32, 2, 1 { ret; }\n"
	".visible .entry flat(.param .u64 at) .reqntid 48 { ret; }\n"
	".visible .entry most(.param .u64 at) .maxntid 16, 4 { ret; }\n"
	".visible .entry any(.param .u64 at) { ret; }\n"
	".visible .entry big(.param .u64 at) { .local .b8 m[400000]; .reg .u64 %p; .reg .u32 %v;\n"
	"	mov.u64 %p, m; st.local.u32 [%p+399996], 5; ld.local.u32 %v, [%p+399996];\n"
	"	ld.param.u64 %p, [at]; st.global.u32 [%p], %v; ret; }\n"
	".visible .entry frees(.param .u64 at) { .reg .u64 %p;\n"
	"	{ .param .b64 n; .param .b64 r; st.param.b64 [n], 16; call (r), malloc, (n); ld.param.b64 %p, [r]; }\n"
	"	{ .param .b64 p; st.param.b64 [p], %p; call free, (p); } ret; }\n";

static const struct refusal {
	const char *kernel;
	unsigned grid[3], block[3], shared;
	int cooperative;
	CUresult want;
} refusals[] = {
	{"exact", {1, 1, 1}, {32, 2, 1}, 0, 0, CUDA_SUCCESS},
	{"exact", {1, 1, 1}, {64, 1, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"exact", {1, 1, 1}, {32, 1, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"exact", {1, 1, 1}, {1, 2, 32}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"exact", {1, 1, 1}, {32, 2, 1}, 0, 1, CUDA_SUCCESS},
	{"exact", {1, 1, 1}, {2, 32, 1}, 0, 1, CUDA_ERROR_INVALID_VALUE},
	{"exact", {1, 1, 1}, {32, 2, 2}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"flat", {1, 1, 1}, {48, 1, 1}, 0, 0, CUDA_SUCCESS},
	{"flat", {1, 1, 1}, {1, 48, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"flat", {1, 1, 1}, {47, 1, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"flat", {1, 1, 1}, {49, 1, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"most", {1, 1, 1}, {1, 64, 1}, 0, 0, CUDA_SUCCESS},
	{"most", {1, 1, 1}, {65, 1, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"any", {0, 1, 1}, {1, 1, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"any", {1, 1, 1}, {1025, 1, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"any", {1, 1, 1}, {1, 1, 65}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"any", {1, 65536, 1}, {1, 1, 1}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{"any", {1, 1, 1}, {1, 1, 1}, 1 << 20, 0, CUDA_ERROR_INVALID_VALUE},
	{"any", {1000000, 1, 1}, {64, 1, 1}, 0, 1, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE},
	{"big", {1, 1, 1}, {167, 1, 1}, 0, 0, CUDA_SUCCESS},
	{"big", {1, 1, 1}, {168, 1, 1}, 0, 0, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
	{"big", {3, 1, 1}, {32, 32, 1}, 0, 0, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
	{"frees", {1, 1, 1}, {1, 1, 1}, 0, 0, CUDA_SUCCESS},
};

static CUresult plainly(CUfunction f, CUstream s, const struct refusal *c, void **values)
{
	return (c->cooperative ? cuLaunchCooperativeKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, s, values)
	                       : cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, s, values, NULL));
}

static CUresult by_attributes(CUfunction f, CUstream s, const struct refusal *c, void **values)
{
	CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = c->cooperative};
	CUlaunchConfig config = {
		.gridDimX = c->grid[0], .gridDimY = c->grid[1], .gridDimZ = c->grid[2], .blockDimX = c->block[0], .blockDimY = c->block[1],
		.blockDimZ = c->block[2], .sharedMemBytes = c->shared, .hStream = s, .attrs = &a, .numAttrs = 1,
	};
	return cuLaunchKernelEx(&config, f, values, NULL);
}

/* A launch that is refused ends the capture. */
static CUresult captured(CUfunction f, CUstream s, const struct refusal *c, void **values)
{
	CUgraph g;
	size_t nodes = 7;
	CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CUresult r = plainly(f, s, c, values);
	EXPECT(r == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
	if (r != CUDA_SUCCESS)
		return r;
	CHECK(cuGraphGetNodes(g, NULL, &nodes));
	CLAIM(nodes == 1);
	CHECK(cuGraphDestroy(g));
	return r;
}

/* A node's cooperative attribute is set later: then the graph is rejected. */
static CUresult in_graph(CUfunction f, CUstream s, const struct refusal *c, void **values)
{
	CUgraph g;
	CUgraphNode n;
	CUgraphExec x;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = f, .gridDimX = c->grid[0], .gridDimY = c->grid[1], .gridDimZ = c->grid[2], .blockDimX = c->block[0],
		.blockDimY = c->block[1], .blockDimZ = c->block[2], .sharedMemBytes = c->shared, .kernelParams = values,
	};
	CUkernelNodeAttrValue cooperative = {.cooperative = 1};
	CHECK(cuGraphCreate(&g, 0));
	CUresult r = cuGraphAddKernelNode(&n, g, NULL, 0, &p);
	if (r == CUDA_SUCCESS && c->cooperative)
		CHECK(cuGraphKernelNodeSetAttribute(n, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &cooperative));
	if (r == CUDA_SUCCESS && (r = cuGraphInstantiate(&x, g, 0)) == CUDA_SUCCESS) {
		CHECK(cuGraphLaunch(x, s));
		CHECK(cuStreamSynchronize(s));
		CHECK(cuGraphExecDestroy(x));
	}
	CHECK(cuGraphDestroy(g));
	return r;
}

/* A launch that is refused is refused by the call, in each form of it, and no other call returns that or does less. */
static void refused(void)
{
	static CUresult (*const forms[])(CUfunction, CUstream, const struct refusal *, void **) = {plainly, by_attributes, captured, in_graph};
	CUfunction step;
	CUmodule m;
	CUlibrary l;
	CUkernel k;
	CUstream s, t;
	CUevent e;
	CUdeviceptr at;
	unsigned value = 0, turn = 0;
	int wrong = 0;
	new_context(&step);
	CHECK(cuModuleLoadData(&m, refused_ptx));
	CHECK(cuLibraryLoadData(&l, refused_ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&t, 0));
	CHECK(cuEventCreate(&e, 0));
	CHECK(cuMemAlloc(&at, 4));
	void *values[] = {&at};
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
		for (size_t form = 0; form < sizeof forms / sizeof *forms; form++)
			for (int library = 0; library < 2; library++) {
				const struct refusal *c = &refusals[i];
				CUfunction f;
				CHECK(cuModuleGetFunction(&f, m, c->kernel));
				CHECK(cuLibraryGetKernel(&k, l, c->kernel));
				CUresult r = forms[form](library ? (CUfunction)k : f, s, c, values);
				if (r != c->want) {
					dprintf(report, "%s, case %zu, form %zu, library %d: %d, want %d\n", c->kernel, i, form, library, r, c->want);
					wrong++;
				}
				CHECK(cuMemsetD32(at, ++turn, 1));
				CHECK(cuMemcpyDtoH(&value, at, 4));
				CHECK(cuEventRecord(e, s));
				CHECK(cuEventSynchronize(e));
				CHECK(cuStreamSynchronize(t));
				CHECK(cuStreamSynchronize(s));
				CHECK(cuCtxSynchronize());
				CHECK(cuMemcpyDtoH(&value, at, 4));
				CLAIM(value == turn || (r == CUDA_SUCCESS && value == 5));
			}
	CLAIM(wrong == 0);
	CHECK(cuModuleGetFunction(&step, m, "big"));
	CHECK(cuFuncGetAttribute((int *)&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, step));
	CLAIM(value == 167);
	CHECK(cuFuncSetBlockShape(step, 168, 1, 1));
	EXPECT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, cuLaunchGrid(step, 1, 1));
}

/* The host's description of tiny kernels is longer than their text. */
static void many_kernels(void)
{
	enum { KERNELS = 9000 };
	char *text = malloc(KERNELS * 24 + 100), *at = text, name[16];
	CUfunction f;
	CUmodule m;
	new_context(&f);
	at += sprintf(at, ".version 7.0\n.target sm_50\n.address_size 64\n");
	for (int i = 0; i < KERNELS; i++)
		at += sprintf(at, ".entry k%d(){ret;}\n", i);
	CHECK(cuModuleLoadData(&m, text));
	for (int i = 0; i < KERNELS; i += 1000) {
		snprintf(name, sizeof name, "k%d", i);
		CHECK(cuModuleGetFunction(&f, m, name));
		CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	}
	CHECK(cuCtxSynchronize());
	free(text);
}

/* --- outputs that are left out --- */

static const char offered_ptx[] =
	".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 8 .b8 table[24];\n"
	".visible .entry k(.param .u32 a, .param .u64 b) { ret; }\n";

/* All arguments that the manual calls optional may be null, alone and together; the others are filled in. */
static void left_out(void)
{
	CUfunction step, f;
	CUmodule m;
	CUlibrary l;
	CUkernel k;
	CUstream s;
	CUgraph g;
	CUgraphNode a, b, nodes[2], to[2];
	CUgraphExec x;
	CUlinkState link;
	CUstreamCaptureStatus status;
	CUdeviceptr at, base = 1;
	CUcontext current;
	void *p;
	size_t size = 1, other = 1, *none = NULL;
	int value = 77;
	unsigned flags = 77;
	cuuint64_t id = 1;
	new_context(&step);
	CHECK(cuMemAlloc(&at, 5000));
	CHECK(cuMemGetInfo(NULL, NULL));
	CHECK(cuMemGetInfo(&size, NULL));
	CHECK(cuMemGetInfo(NULL, &other));
	CLAIM(size > 1 && other >= size);
	CHECK(cuMemGetAddressRange(NULL, NULL, at + 7));
	CHECK(cuMemGetAddressRange(&base, NULL, at + 7));
	CHECK(cuMemGetAddressRange(NULL, &size, at + 7));
	CLAIM(base == at && size == 5000);
	CHECK(cuMemGetAddressRange(NULL, NULL, 12345)); /* no output requested */
	EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, NULL, 12345));

	CHECK(cuModuleLoadData(&m, offered_ptx));
	CHECK(cuLibraryLoadData(&l, offered_ptx, NULL, NULL, 0, NULL, NULL, 0));
	for (int library = 0; library < 2; library++) {
#define GLOBAL(address, bytes, name) (library ? cuLibraryGetGlobal(address, bytes, l, name) : cuModuleGetGlobal(address, bytes, m, name))
		base = size = 0;
		EXPECT(CUDA_ERROR_INVALID_VALUE, GLOBAL(NULL, NULL, "table")); /* one of them has to be there */
		CHECK(GLOBAL(&base, NULL, "table"));
		CHECK(GLOBAL(NULL, &size, "table"));
		CLAIM(base != 0 && size == 24);
		EXPECT(CUDA_ERROR_INVALID_VALUE, GLOBAL(NULL, NULL, "chair"));
		EXPECT(CUDA_ERROR_NOT_FOUND, GLOBAL(NULL, &size, "chair"));
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLibraryGetManaged(NULL, NULL, l, "table"));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&base, NULL, l, "table"));
	CHECK(cuModuleGetFunction(&f, m, "k"));
	CHECK(cuLibraryGetKernel(&k, l, "k"));
	CHECK(cuFuncGetParamInfo(f, 1, &size, NULL));
	CHECK(cuKernelGetParamInfo(k, 1, &other, NULL));
	CLAIM(size == 8 && other == 8);

	CHECK(cuCtxGetStreamPriorityRange(NULL, NULL));
	CHECK(cuCtxGetStreamPriorityRange(&value, NULL));
	CHECK(cuCtxGetStreamPriorityRange(NULL, &value));
	CHECK(cuCtxGetCurrent(&current));
	CHECK(cuCtxPopCurrent(NULL));
	CHECK(cuCtxSetCurrent(current));
	CHECK(cuGetProcAddress("cuInit", &p, 12000, 0, NULL));

	CHECK(cuStreamCreate(&s, 0));
	CHECK(cuStreamGetCtx_v2(s, &current, NULL));
	for (int capturing = 0; capturing < 2; capturing++) {
		CHECK(cuStreamGetCaptureInfo(s, &status, NULL, NULL, NULL, NULL));
		CLAIM(status == (capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE));
		CHECK(cuStreamGetCaptureInfo(s, &status, &id, NULL, NULL, NULL));
		CHECK(cuStreamGetCaptureInfo(s, &status, NULL, &g, NULL, none));
		CHECK(cuStreamGetCaptureInfo_v3(s, &status, NULL, NULL, NULL, NULL, NULL));
		if (!capturing)
			CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	}
	CHECK(cuStreamEndCapture(s, &g));
	CHECK(cuGraphAddEmptyNode(&a, g, NULL, 0));
	CHECK(cuGraphAddEmptyNode(&b, g, &a, 1));
	CHECK(cuGraphGetNodes(g, NULL, &size));
	CHECK(cuGraphGetRootNodes(g, NULL, &other));
	CLAIM(size == 2 && other == 1);
	CHECK(cuGraphNodeGetDependencies(b, NULL, &size));
	CHECK(cuGraphNodeGetDependentNodes(a, NULL, &other));
	CLAIM(size == 1 && other == 1);
	CHECK(cuGraphNodeGetDependencies_v2(b, nodes, NULL, &size));
	CHECK(cuGraphNodeGetDependentNodes_v2(a, nodes, NULL, &other));
	CHECK(cuGraphGetEdges(g, NULL, NULL, &size));
	CHECK(cuGraphGetEdges_v2(g, nodes, to, NULL, &other));
	CLAIM(size == 1 && other == 1 && nodes[0] == a && to[0] == b);
	CHECK(cuGraphInstantiate(&x, g, 0));
	CHECK(cuGraphExecGetFlags(x, &id));

	CHECK(cuLinkCreate(0, NULL, NULL, &link));
	CHECK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)offered_ptx, sizeof offered_ptx, NULL, 0, NULL, NULL));
	CHECK(cuLinkComplete(link, &p, NULL));
	CHECK(cuModuleLoadData(&m, p));
	CHECK(cuLinkDestroy(link));

	/* Memory is mapped, and portable only on request. */
	CHECK(cuMemAllocHost(&p, 4096));
	CHECK(cuMemHostGetFlags(&flags, p));
	CHECK(cuMemFreeHost(p));
	CHECK(cuMemFreeHost(NULL));
	CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
	CLAIM(!value || flags == CU_MEMHOSTALLOC_DEVICEMAP);
}

/* --- kernels at the same time --- */

/* meet: notes that it is there, and waits until its neighbour is: the one whose number differs in the last bit. */
static const char meet_ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry meet(.param .u64 words, .param .u32 mine)\n{\n"
	"	.reg .u64 %w, %a, %b;\n	.reg .u32 %i, %j, %v;\n	.reg .pred %p;\n"
	"	ld.param.u64 %w, [words];\n	ld.param.u32 %i, [mine];\n	xor.b32 %j, %i, 1;\n"
	"	mad.wide.u32 %a, %i, 4, %w;\n	mad.wide.u32 %b, %j, 4, %w;\n"
	"	st.volatile.global.u32 [%a], 1;\n"
	"again:\n	ld.volatile.global.u32 %v, [%b];\n	setp.eq.u32 %p, %v, 0;\n	@%p bra again;\n	ret;\n}\n";

/* Ten kernels of one block on ten streams wait for each other in pairs. So two of them have to run at the same time. */
static void overlap(void)
{
	enum { KERNELS = 10, TIMES = 4 };
	CUfunction step, meet;
	CUmodule m;
	CUstream s[KERNELS];
	CUdeviceptr words;
	unsigned seen[KERNELS];
	int processors;
	CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	if (processors < 2)
		return; /* none overlap */
	new_context(&step);
	CHECK(cuModuleLoadData(&m, meet_ptx));
	CHECK(cuModuleGetFunction(&meet, m, "meet"));
	CHECK(cuMemAlloc(&words, sizeof seen));
	for (int i = 0; i < KERNELS; i++)
		CHECK(cuStreamCreate(&s[i], i % 3 ? CU_STREAM_NON_BLOCKING : 0));
	for (int n = 0; n < TIMES; n++) {
		CHECK(cuMemsetD32(words, 0, KERNELS));
		for (unsigned i = 0; i < KERNELS; i++) {
			void *args[] = { &words, &i };
			CHECK(cuLaunchKernel(meet, 1, 1, 1, 1, 1, 1, 0, s[i], args, NULL));
		}
		for (int i = KERNELS - 1; i >= 0; i--)
			CHECK(cuStreamSynchronize(s[i]));
		CHECK(cuMemcpyDtoH(seen, words, sizeof seen));
		for (int i = 0; i < KERNELS; i++)
			CLAIM(seen[i] == 1);
	}
}

/* A kernel that waits for the clock, in the form of a compiler without optimization. */
static const char delay_ptx[] = ".version 3.1\n.target sm_30\n.address_size 64\n"
	".func (.param.u32 %out)now\n{\n	.reg.u32 %t;\n	.local.align 8 .b8 %frame[8];\n"
	"	mov.u32 %t, %clock;\n	st.local.u32 [%frame], %t;\n	ld.local.u32 %t, [%frame];\n	st.param.u32 [%out], %t;\n	ret;\n}\n"
	".visible .entry delay(.param .u64 words, .param .u32 i, .param .u32 ticks)\n{\n"
	"	.reg .u64 %w, %a;\n	.reg .u32 %i, %n, %v, %t;\n	.reg .pred %p;\n	.local.align 8 .b8 %frame[8];\n"
	"	ld.param.u64 %w, [words];\n	ld.param.u32 %i, [i];\n	ld.param.u32 %n, [ticks];\n"
	"	mad.wide.u32 %a, %i, 4, %w;\n	red.global.add.u32 [%w], 1;\n"
	"	{ .param .u32 r; call (r), now; ld.param.u32 %v, [r]; }\n	st.local.u32 [%frame], %v;\n"
	"again:\n	{ .param .u32 r; call (r), now; ld.param.u32 %t, [r]; }\n"
	"	ld.local.u32 %v, [%frame];\n	sub.u32 %t, %t, %v;\n	st.local.u32 [%frame+4], %t;\n"
	"	ld.local.u32 %t, [%frame+4];\n	setp.lt.u32 %p, %t, %n;\n	@%p bra again;\n"
	"	ld.volatile.global.u32 %v, [%w];\n	st.global.u32 [%a+4], %v;\n	ret;\n}\n";

/* Ten kernels on ten streams count themselves and wait for two seconds each: all begin before the first one ends. */
static void beside_delays(void)
{
	enum { KERNELS = 10 };
	CUfunction step, delay;
	CUmodule m;
	CUstream s[KERNELS];
	CUdeviceptr words;
	unsigned seen[1 + KERNELS];
	int processors, khz;
	CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CHECK(cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 0));
	if (processors < 2)
		return; /* none overlap */
	unsigned ticks = 2000 * (unsigned)khz;
	new_context(&step);
	CHECK(cuModuleLoadData(&m, delay_ptx));
	CHECK(cuModuleGetFunction(&delay, m, "delay"));
	CHECK(cuMemAlloc(&words, sizeof seen));
	CHECK(cuMemsetD32(words, 0, 1 + KERNELS));
	for (int i = 0; i < KERNELS; i++)
		CHECK(cuStreamCreate(&s[i], CU_STREAM_DEFAULT));
	for (unsigned i = 0; i < KERNELS; i++) {
		void *args[] = { &words, &i, &ticks };
		CHECK(cuLaunchKernel(delay, 1, 1, 1, 1, 1, 1, 0, s[i], args, NULL));
	}
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(seen, words, sizeof seen));
	for (int i = 1; i <= KERNELS; i++)
		CLAIM(seen[i] == KERNELS);
}

static const struct {
	const char *name;
	void (*run)(void);
	int uninitialized;
} parts[] = {
	{"primary", primary, 0},       {"elsewhere", elsewhere, 0}, {"neighbours", neighbours, 0},
	{"permission", permission, 0}, {"farewell", farewell, 0},   {"leaving", leaving, 0},   {"across", across, 0},
	{"crowded", crowded, 0},       {"empty-extra", empty_extra, 0}, {"bereft-of-streams", bereft_of_streams, 1}, {"few-files", few_files, 1},
	{"early", early, 0},           {"ready-beside", ready_beside, 0}, {"ready-own", ready_own, 0}, {"captured-and-gone", captured_and_gone, 0}, {"reborn", reborn, 0},       {"stopwatch", stopwatch, 0},
	{"in-order", in_order, 0},     {"ready", ready, 0},         {"primary-again", primary_again, 0},
	{"failed-event", failed_event, 0}, {"throng", throng, 0},       {"many-parameters", many_parameters, 0},
	{"healthy", healthy, 0},
	{"refused", refused, 0}, {"many-kernels", many_kernels, 0}, {"left-out", left_out, 0},
	{"overlap", overlap, 0},       {"beside-delays", beside_delays, 0},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++) {
		if (strcmp(parts[i].name, argv[1]) != 0)
			continue;
		alarm(300); /* on a machine that is slow and has other things to do */
		if (!parts[i].uninitialized)
			CHECK(cuInit(0));
		parts[i].run();
		return 0;
	}
	fprintf(stderr, "usage: %s NAME\n", argv[0]);
	return 2;
}
