/*
 * hosts NAME: more work than the device accepts at once is queued behind a host function, and by other threads beside
 * it; none of it may be lost.
 */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static CUcontext context;
static CUfunction step;
static CUdeviceptr at;
static CUstream s, beside;

static void set_up(void)
{
	CUmodule m;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&step, m, "step"));
	CHECK(cuMemAlloc(&at, 8));
	CHECK(cuMemsetD32(at, 0, 2));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	CHECK(cuCtxSynchronize());
}

static void CUDA_CB rest(void *ms) { usleep((useconds_t)(1000 * *(int *)ms)); }

static void steps(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		launch_step(step, s, at, 1, 1);
}

static void expect_steps(unsigned n)
{
	unsigned v = 0;
	CHECK(cuStreamSynchronize(s));
	CHECK(cuMemcpyDtoH(&v, at, sizeof v));
	if (v != n)
		fprintf(stderr, "%u of %u kernels ran\n", v, n);
	CLAIM(v == n);
}

/* A slow host function. */
static void slow(void)
{
	int ms = 3000;
	CHECK(cuLaunchHostFunc(s, rest, &ms));
	steps(9000);
	expect_steps(9000);
}

/* It is behind slow work. */
static void late(void)
{
	int ms = 3000, none = 0;
	CHECK(cuLaunchHostFunc(beside, rest, &ms));
	CUevent e;
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(e, beside));
	CHECK(cuStreamWaitEvent(s, e, 0));
	CHECK(cuLaunchHostFunc(s, rest, &none));
	steps(9000);
	expect_steps(9000);
}

/* More work behind it than the host reads ahead, and than the ring holds. */
static void deep(void)
{
	int ms = 4000;
	CHECK(cuLaunchHostFunc(s, rest, &ms));
	steps(100000);
	expect_steps(100000);
}

/* And many host functions in sequence. */
static void many(void)
{
	int ms = 100;
	for (int i = 0; i < 30; i++) {
		CHECK(cuLaunchHostFunc(s, rest, &ms));
		steps(300);
	}
	expect_steps(9000);
}

static void *others(void *unused)
{
	CUdeviceptr p;
	unsigned v = 0;
	CHECK(cuCtxSetCurrent(context));
	sleep(1);
	CHECK(cuMemAlloc(&p, 4096));
	CHECK(cuMemcpyDtoHAsync(&v, at + 4, sizeof v, beside));
	CHECK(cuStreamSynchronize(beside));
	CHECK(cuMemFree(p));
	return unused;
}

/* Other threads call meanwhile, for other streams. */
static void crowd(void)
{
	int ms = 4000;
	pthread_t t;
	CLAIM(pthread_create(&t, NULL, others, NULL) == 0);
	CHECK(cuLaunchHostFunc(s, rest, &ms));
	steps(20000);
	CLAIM(pthread_join(t, NULL) == 0);
	expect_steps(20000);
}

static void *say(void *unused)
{
	sleep(4);
	puts("waiting");
	fflush(stdout);
	return unused;
}

static CUdeviceptr word;

static void *write_word(void *unused)
{
	CHECK(cuCtxSetCurrent(context));
	sleep(1);
	CHECK(cuStreamWriteValue32(beside, word, 1, 0));
	CHECK(cuStreamSynchronize(beside));
	return unused;
}

/* A stream waits for a word that another thread's stream writes. */
static void words(void)
{
	pthread_t t;
	word = at + 4;
	CHECK(cuMemsetD32(word, 0, 1));
	CLAIM(pthread_create(&t, NULL, write_word, NULL) == 0);
	CHECK(cuStreamWaitValue32(s, word, 1, CU_STREAM_WAIT_VALUE_EQ));
	steps(20000);
	expect_steps(20000); /* the waiting thread is ahead of the write */
	CLAIM(pthread_join(t, NULL) == 0);
}

/* The word is written when the queue is full, or nearly. */
static void brim(void)
{
	unsigned sum = 0;
	word = at + 4;
	for (unsigned n = 8180; n < 8200; n++) {
		CHECK(cuMemsetD32(word, 0, 1));
		CHECK(cuStreamWaitValue32(s, word, 1, CU_STREAM_WAIT_VALUE_EQ));
		steps(n);
		CHECK(cuStreamWriteValue32(beside, word, 1, 0));
		expect_steps(sum += n);
	}
}

static _Atomic(pthread_t) host;
static atomic_uint ran;

static void CUDA_CB careless(void *unused)
{
	(void)unused;
	host = pthread_self();
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
}

static void CUDA_CB count(void *unused)
{
	(void)unused;
	ran++;
}

/* A host function leaves its thread cancellable, and it is cancelled: the next one runs in another thread. */
static void cancelled(void)
{
	CHECK(cuLaunchHostFunc(s, careless, NULL));
	CHECK(cuStreamSynchronize(s));
	usleep(100000);
	CLAIM(pthread_cancel(host) == 0);
	usleep(100000);
	for (unsigned i = 1; i <= 3; i++) {
		CHECK(cuLaunchHostFunc(s, count, NULL));
		CHECK(cuStreamSynchronize(s));
		CLAIM(ran == i);
	}
}

/* A host function that never returns. */
static void hung(void)
{
	int ms = 1000000;
	pthread_t t;
	CLAIM(pthread_create(&t, NULL, say, NULL) == 0);
	CHECK(cuLaunchHostFunc(s, rest, &ms));
	steps(200000);
}

static const struct {
	const char *name;
	void (*run)(void);
} parts[] = {
	{"slow", slow}, {"late", late}, {"deep", deep}, {"many", many}, {"crowd", crowd}, {"words", words}, {"brim", brim}, {"cancelled", cancelled}, {"hung", hung},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++) {
		if (strcmp(parts[i].name, argv[1]) != 0)
			continue;
		alarm(120);
		set_up();
		parts[i].run();
		return 0;
	}
	fprintf(stderr, "usage: %s NAME\n", argv[0]);
	return 2;
}
