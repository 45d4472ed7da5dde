/*
 * mix SECONDS: four threads of one process mix blocking and queued calls, and each checks its results. It ends by
 * itself; a thread that is stuck for 30 s ends the process with an error.
 */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { Threads = 4, Words = 4096 };

static CUcontext context;
static CUfunction step;
static double until;
static atomic_long progress[Threads];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void wrong(const char *what)
{
	fprintf(stderr, "wrong result: %s\n", what);
	exit(1);
}

static void one_round(uint64_t *seed, CUstream s, CUevent e, uint32_t *pinned)
{
	static _Thread_local uint32_t pageable[Words], back[Words];
	CUdeviceptr a, b;
	uint32_t want;

	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	uint32_t v = (uint32_t)(*seed >> 33);
	size_t n = 1 + v % Words;

	CHECK(cuMemAlloc(&a, n * 4));
	CHECK(cuMemAlloc(&b, n * 4));
	for (size_t i = 0; i < n; i++)
		pageable[i] = v + (uint32_t)i;
	CHECK(cuMemcpyHtoDAsync(a, pageable, n * 4, s));
	memset(pageable, 0, n * 4); /* its source was read at return */
	CHECK(cuMemcpyDtoDAsync(b, a, n * 4, s));
	want = v;
	for (unsigned i = 0; i < v % 7; i++) {
		launch_step(step, s, b, 3, i);
		want = want * 3 + i;
	}
	CHECK(cuEventRecord(e, s));
	if (v % 3 == 0) {
		CHECK(cuEventSynchronize(e));
	} else if (v % 3 == 1) {
		CUresult r;
		while ((r = cuEventQuery(e)) == CUDA_ERROR_NOT_READY)
			usleep(50);
		CHECK(r);
	}
	CHECK(cuMemcpyDtoHAsync(pinned, b, n * 4, s));
	CHECK(cuStreamSynchronize(s));
	if (pinned[0] != want)
		wrong("a computed word");
	CHECK(cuMemcpyDtoH(back, a, n * 4));
	for (size_t i = 0; i < n; i++)
		if (back[i] != v + (uint32_t)i || (i && pinned[i] != back[i]))
			wrong("a copied word");
	CHECK(cuMemFree(a));
	CHECK(cuMemFree(b));
}

static void *thread(void *arg)
{
	int id = (int)(intptr_t)arg;
	uint64_t seed = (uint64_t)getpid() * 31 + (uint64_t)id;
	uint32_t *pinned;
	CUstream s;
	CUevent e;

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAllocHost((void **)&pinned, Words * 4));
	for (long round = 0; now() < until; round++) {
		if (round % 64 == 0) {
			CHECK(cuStreamCreate(&s, id % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
			CHECK(cuEventCreate(&e, CU_EVENT_DEFAULT));
		}
		one_round(&seed, s, e, pinned);
		atomic_fetch_add(&progress[id], 1);
		if (round % 64 == 63) {
			CHECK(cuStreamDestroy(s));
			CHECK(cuEventDestroy(e));
		}
	}
	CHECK(cuMemFreeHost(pinned));
	return NULL;
}

static void *watchdog(void *unused)
{
	long seen[Threads] = { 0 };
	(void)unused;

	for (;;) {
		sleep(30);
		for (int i = 0; i < Threads; i++) {
			long p = atomic_load(&progress[i]);
			if (p == seen[i] && now() < until) {
				fprintf(stderr, "thread %d is stuck after %ld rounds\n", i, p);
				_exit(3);
			}
			seen[i] = p;
		}
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[Threads], watch;
	CUmodule module;
	CUdevice device;
	long sum = 0;

	until = now() + (argc > 1 ? atof(argv[1]) : 2);
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, step_ptx));
	CHECK(cuModuleGetFunction(&step, module, "step"));
	if (pthread_create(&watch, NULL, watchdog, NULL))
		abort();
	for (intptr_t i = 0; i < Threads; i++)
		if (pthread_create(&threads[i], NULL, thread, (void *)i))
			abort();
	for (int i = 0; i < Threads; i++) {
		pthread_join(threads[i], NULL);
		sum += atomic_load(&progress[i]);
	}
	CHECK(cuCtxDestroy(context));
	printf("%ld rounds\n", sum);
	return 0;
}
