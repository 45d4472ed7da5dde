/*
 * order ROUNDS: threads of one process launch into one stream, record and wait for events, and free and reuse each
 * other's memory. The processor computes the same sum in the order of the calls; the results must agree.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { Threads = 4, CheckEvery = 512 };

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static CUcontext context;
static CUfunction step, move;
static CUstream main_stream, side_stream;
static CUevent main_done, side_done;
static CUdeviceptr cell, copied; /* the shared sum, and its copy on the side stream */
static uint32_t expected, expected_copy;
static long rounds, next_round;

static uint32_t random32(uint64_t *s)
{
	*s = *s * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*s >> 33);
}

static void compare(const char *what, CUdeviceptr at, uint32_t want, CUstream s)
{
	uint32_t got;

	CHECK(cuMemcpyDtoHAsync(&got, at, sizeof got, s));
	CHECK(cuStreamSynchronize(s));
	if (got != want) {
		fprintf(stderr, "round %ld: %s is %u, the order of calls gives %u\n", next_round, what, got, want);
		exit(1);
	}
}

/* Moves the sum to another allocation; the old one is freed at once, with work that uses it still queued. */
static void move_house(void)
{
	CUdeviceptr fresh;

	CHECK(cuMemAlloc(&fresh, 256));
	launch_move(move, main_stream, fresh, cell);
	CHECK(cuMemFree(cell));
	cell = fresh;
}

/* The side stream copies the sum at this position in the order, and the main stream waits for the copy. */
static void copy_aside(void)
{
	CHECK(cuEventRecord(main_done, main_stream));
	CHECK(cuStreamWaitEvent(side_stream, main_done, 0));
	launch_move(move, side_stream, copied, cell);
	CHECK(cuEventRecord(side_done, side_stream));
	CHECK(cuStreamWaitEvent(main_stream, side_done, 0));
	expected_copy = expected;
}

static void round_in_order(uint64_t *seed)
{
	unsigned a = random32(seed) | 1, b = random32(seed);

	launch_step(step, main_stream, cell, a, b);
	expected = expected * a + b;
	switch (random32(seed) % 16) {
	case 0:
		move_house();
		break;
	case 1:
		copy_aside();
		break;
	case 2:
		b = random32(seed);
		CHECK(cuMemsetD32Async(cell, b, 1, main_stream));
		expected = b;
		break;
	}
	if (next_round % CheckEvery == 0) {
		compare("the account", cell, expected, main_stream);
		compare("the copy", copied, expected_copy, side_stream);
	}
}

static void *thread(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 977;
	unsigned mine = 0;
	CUdeviceptr own;

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc(&own, 4));
	CHECK(cuMemsetD32Async(own, 0, 1, main_stream)); /* work of the null stream would not be ordered with it */
	for (bool more = true; more;) {
		pthread_mutex_lock(&order);
		more = next_round++ < rounds;
		if (more)
			round_in_order(&seed);
		pthread_mutex_unlock(&order);
		/* outside of the lock, a sum of the thread's own in the same stream */
		unsigned a = random32(&seed) | 1;
		launch_step(step, main_stream, own, a, 1);
		mine = mine * a + 1;
	}
	compare("a thread's own account", own, mine, main_stream);
	CHECK(cuMemFree(own));
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[Threads];
	CUmodule module;
	CUdevice device;

	rounds = argc > 1 ? atol(argv[1]) : 10000;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, step_ptx));
	CHECK(cuModuleGetFunction(&step, module, "step"));
	CHECK(cuModuleGetFunction(&move, module, "move"));
	CHECK(cuStreamCreate(&main_stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&side_stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&main_done, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&side_done, CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAlloc(&cell, 256));
	CHECK(cuMemAlloc(&copied, 256));
	CHECK(cuMemsetD32Async(cell, 0, 1, main_stream));
	CHECK(cuMemsetD32(copied, 0, 1));
	for (uintptr_t i = 0; i < Threads; i++)
		if (pthread_create(&threads[i], NULL, thread, (void *)(i + 1)))
			abort();
	for (int i = 0; i < Threads; i++)
		pthread_join(threads[i], NULL);
	compare("the account", cell, expected, main_stream);
	compare("the copy", copied, expected_copy, side_stream);
	CHECK(cuCtxDestroy(context));
	printf("%ld rounds in order\n", rounds);
	return 0;
}
