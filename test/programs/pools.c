/* Properties of memory pools, one at a time: pools NAME. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void wait_at_gate(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
}

/* Blocks a stream until the gate is unlocked. */
static void hold(CUstream s)
{
	pthread_mutex_lock(&gate);
	CHECK(cuLaunchHostFunc(s, wait_at_gate, NULL));
}

static void let_go(void) { pthread_mutex_unlock(&gate); }

static CUcontext begin(void)
{
	CUcontext c;
	CHECK(cuCtxCreate(&c, 0, 0));
	return c;
}

static CUmemoryPool small_pool(size_t most)
{
	CUmemoryPool p;
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .maxSize = most,
	};
	CHECK(cuMemPoolCreate(&p, &props));
	return p;
}

static CUmemoryPool new_pool(void) { return small_pool(0); }

static uint64_t number(CUmemoryPool p, CUmemPool_attribute what)
{
	cuuint64_t n;
	CHECK(cuMemPoolGetAttribute(p, what, &n));
	return n;
}

static void turn(CUmemoryPool p, CUmemPool_attribute what, int on) { CHECK(cuMemPoolSetAttribute(p, what, &on)); }

static void keep(CUmemoryPool p, uint64_t bytes)
{
	cuuint64_t n = bytes;
	CHECK(cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &n));
}

static CUstream aside(void)
{
	CUstream s;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

/* Memory freed in a stream is free for it at once, and for other streams when they are ordered after it. */
static void reuse(void)
{
	CUmemoryPool p;
	CUdeviceptr a, b;
	CUstream one, other;
	CUevent e;
	begin();
	one = aside();
	other = aside();
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	p = new_pool();
	keep(p, UINT64_MAX);

	hold(one);
	CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, p, one)); /* the pool's largest size */
	CHECK(cuMemsetD32Async(a, 7, 1024, one));
	CHECK(cuMemFreeAsync(a, one));
	CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, p, one));
	CLAIM(a == b);
	CHECK(cuMemFreeAsync(b, one));
	CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, p, other)); /* it is not ordered after the free */
	CLAIM(a != b);
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 4 * MIB);
	CHECK(cuMemFreeAsync(b, one));
	CHECK(cuEventRecord(e, one));
	CHECK(cuStreamWaitEvent(other, e, 0));
	turn(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
	turn(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, p, other)); /* now it is */
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 4 * MIB);
	CHECK(cuMemFreeAsync(a, other));
	turn(p, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
	CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, p, other)); /* its own memory */
	CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, p, other)); /* the pool must not use events */
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) > 4 * MIB);
	CHECK(cuMemFreeAsync(a, one));
	CHECK(cuMemFreeAsync(b, one));
	let_go();
	CHECK(cuCtxSynchronize());
	turn(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1);
	uint64_t reserved = number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	for (int i = 0; i < 100; i++) { /* all work has completed, which is detected sooner or later */
		CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, p, other));
		CHECK(cuMemFreeAsync(b, i % 2 ? one : other));
		CHECK(cuCtxSynchronize());
	}
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= reserved + 32 * MIB);

	/* Streams that synchronise with the legacy stream are ordered with it. */
	CUmemoryPool q = new_pool();
	CUstream orderly;
	turn(q, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
	CHECK(cuStreamCreate(&orderly, 0));
	hold(orderly);
	CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, q, orderly));
	CHECK(cuMemFreeAsync(a, orderly));
	CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, q, NULL));
	CLAIM(a == b);
	CHECK(cuMemFreeAsync(b, NULL));
	CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, q, orderly));
	CLAIM(a == b);
	CHECK(cuMemFreeAsync(b, NULL));
	CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, q, one));
	CLAIM(a != b);
	let_go();
}

/* A pool at its limit makes a stream wait for another; one that may not do that either has no memory. */
static void dependencies(void)
{
	CUmemoryPool p;
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .maxSize = 4 * MIB,
	};
	CUdeviceptr a, b, c;
	CUstream one, two, other;
	unsigned word;
	begin();
	one = aside();
	two = aside();
	other = aside();
	CHECK(cuMemPoolCreate(&p, &props));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, 5 * MIB, p, one));
	CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, p, one));
	CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, p, two));
	hold(one);
	CHECK(cuMemsetD32Async(a, 1, 2 * MIB / 4, one)); /* completes late */
	CHECK(cuMemFreeAsync(a, one));
	turn(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&c, MIB, p, other));
	turn(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
	CHECK(cuMemAllocFromPoolAsync(&c, MIB, p, other));
	CHECK(cuMemsetD32Async(c, 2, MIB / 4, other)); /* completes later */
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	let_go();
	CHECK(cuStreamSynchronize(other));
	CHECK(cuMemcpyDtoH(&word, c + MIB - 4, 4));
	CLAIM(word == 2);
	CHECK(cuMemFreeAsync(c, other));
	CHECK(cuMemFreeAsync(b, two));
}

/* A pool returns memory to the host when the program synchronises, beyond its release threshold. */
static void returns(void)
{
	CUmemoryPool p = NULL;
	CUdeviceptr at[8], whole;
	size_t free, before, total;
	begin();
	p = new_pool();
	CHECK(cuMemGetInfo(&before, &total));
	CHECK(cuMemAllocFromPoolAsync(&at[0], 10 * MIB, p, NULL));
	CHECK(cuMemAllocFromPoolAsync(&at[1], 700, p, NULL));
	CLAIM(at[0] % 512 == 0 && at[1] % 512 == 0);
	CLAIM(number(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 10 * MIB + KIB);
	CHECK(cuMemFreeAsync(at[0], NULL));
	CHECK(cuMemFreeAsync(at[1], NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(at[1], NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(at[1], 0, 1));
	CLAIM(number(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
	CLAIM(number(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 10 * MIB + KIB);
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 10 * MIB);
	CHECK(cuStreamSynchronize(NULL));
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 10 * MIB);
	cuuint64_t zero = 0, one = 1;
	CHECK(cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	CHECK(cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
	CLAIM(number(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0 && number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 0);
	CHECK(cuMemGetInfo(&free, &total));
	CLAIM(free == before);

	keep(p, 8 * MIB);
	for (int i = 0; i < 8; i++)
		CHECK(cuMemAllocFromPoolAsync(&at[i], 4 * MIB, p, NULL));
	for (int i = 0; i < 8; i++)
		CHECK(cuMemFreeAsync(at[i], NULL));
	CHECK(cuCtxSynchronize());
	uint64_t kept = number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	CLAIM(kept <= 8 * MIB);
	CHECK(cuMemPoolTrimTo(p, 0));
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);

	/* Other allocations get it on demand. */
	keep(p, UINT64_MAX);
	CHECK(cuMemGetInfo(&free, &total));
	CHECK(cuMemAllocFromPoolAsync(&at[0], free / 4 * 3, p, NULL));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&at[1], free / 2, p, NULL));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&whole, free / 2));
	CHECK(cuMemFreeAsync(at[0], NULL));
	CHECK(cuMemAlloc(&whole, free / 2));
	CHECK(cuMemFreeAsync(whole, NULL)); /* of no pool */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(whole));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemGetInfo(&free, &total));
	CLAIM(free == before);
}

/* A pool's maximal size is any number, and memory that the pool keeps serves allocations of any size. */
static void limits(void)
{
	CUdeviceptr a, b, c;
	begin();
	CUmemoryPool p = small_pool(1000);
	CHECK(cuMemAllocFromPoolAsync(&a, 512, p, NULL));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&b, 1, p, NULL)); /* pieces have 512 bytes */
	CHECK(cuMemFreeAsync(a, NULL));
	CHECK(cuMemAllocFromPoolAsync(&a, 488, p, NULL));
	CHECK(cuMemFreeAsync(a, NULL));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, 1, small_pool(511), NULL));
	CHECK(cuMemPoolDestroy(p));

	p = small_pool(4 * MIB + 1);
	keep(p, UINT64_MAX);
	CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, p, NULL));
	CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, p, NULL));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&c, 1, p, NULL));
	CHECK(cuMemFreeAsync(a, NULL));
	CHECK(cuStreamSynchronize(NULL));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&c, 3 * MIB, p, NULL));
	CHECK(cuMemFreeAsync(b, NULL));
	CHECK(cuStreamSynchronize(NULL));
	CHECK(cuMemAllocFromPoolAsync(&c, 3 * MIB, p, NULL)); /* more than either of the two pieces */
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 4 * MIB);
	CHECK(cuMemFreeAsync(c, NULL));
}

/* Trimming keeps the requested bytes: it releases whole chunks only, and none that would go below that. */
static void trimmed(void)
{
	CUdeviceptr a, b;
	begin();
	CUmemoryPool p = new_pool();
	keep(p, UINT64_MAX);
	CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, p, NULL));
	CHECK(cuMemAllocFromPoolAsync(&b, 20 * MIB, p, NULL));
	CHECK(cuMemFreeAsync(a, NULL));
	CHECK(cuMemFreeAsync(b, NULL));
	CHECK(cuStreamSynchronize(NULL));
	uint64_t reserved = number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	CHECK(cuMemPoolTrimTo(p, reserved));
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved);
	CHECK(cuMemPoolTrimTo(p, reserved - MIB));
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= reserved - MIB);
	CHECK(cuMemPoolTrimTo(p, 20 * MIB));
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 20 * MIB);
	CHECK(cuMemPoolTrimTo(p, 3 * MIB));
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 3 * MIB);
	CHECK(cuMemPoolTrimTo(p, 0));
	CLAIM(number(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

/* A destroyed pool goes with its last allocation in use. A device's default pool cannot be destroyed. */
static void ends(void)
{
	CUmemoryPool p, q, own, current;
	CUdeviceptr a, b;
	size_t free, before, total;
	CUcontext c = begin(), d;
	CUmemoryPool handle;
	CHECK(cuMemGetInfo(&before, &total));
	CHECK(cuDeviceGetDefaultMemPool(&own, 0));
	CHECK(cuDeviceGetMemPool(&current, 0));
	CLAIM(own == current);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(own));
	p = new_pool();
	CHECK(cuDeviceSetMemPool(0, p));
	CHECK(cuMemAllocAsync(&a, MIB, NULL));
	CHECK(cuPointerGetAttribute(&handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a + 5));
	CLAIM(handle == p);
	CHECK(cuMemPoolDestroy(p));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(p));
	CHECK(cuDeviceGetMemPool(&current, 0));
	CLAIM(own == current);
	CHECK(cuMemsetD32(a, 5, MIB / 4));
	CHECK(cuMemFree(a)); /* any call that frees works */
	CHECK(cuCtxSynchronize());
	CHECK(cuMemGetInfo(&free, &total));
	CLAIM(free == before);

	/* Destroying a context frees its part of a pool. */
	q = new_pool();
	CHECK(cuMemAllocFromPoolAsync(&a, MIB, q, NULL));
	CHECK(cuCtxCreate(&d, 0, 0));
	CHECK(cuMemAllocFromPoolAsync(&b, MIB, q, NULL));
	CHECK(cuCtxDestroy(d));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(b, NULL));
	CLAIM(number(q, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB);
	CHECK(cuMemPoolDestroy(q));
	CHECK(cuCtxDestroy(c));
	CHECK(cuCtxCreate(&d, 0, 0));
	CHECK(cuMemGetInfo(&free, &total));
	CLAIM(free == before);
}

static void wrong(void)
{
	CUmemoryPool p = NULL, none = (CUmemoryPool)(uintptr_t)0x1234;
	CUdeviceptr a;
	CUmemAccess_flags access;
	int on;
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync(&a, 1, NULL));
	begin();
	int supported;
	CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
	CLAIM(supported == 1);
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 7}};
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&p, &props));
	props.location.id = 0;
	props.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&p, &props));
	static const unsigned elsewhere[] = {CU_MEM_HANDLE_TYPE_WIN32, CU_MEM_HANDLE_TYPE_WIN32_KMT, 16}; /* the last one is invalid on all systems */
	for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
		props.handleTypes = (CUmemAllocationHandleType)elsewhere[i];
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&p, &props));
	}
	props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
	props.location.type = CU_MEM_LOCATION_TYPE_HOST;
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&p, &props));
	p = new_pool();
	a = 1;
	CHECK(cuMemAllocFromPoolAsync(&a, 0, p, NULL));
	CLAIM(a == 0 && number(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
	CHECK(cuMemFreeAsync(a, NULL));
	a = 1;
	CHECK(cuMemAllocAsync(&a, 0, NULL));
	CLAIM(a == 0);
	CHECK(cuMemFree(a));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(NULL, 0, p, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&a, 0, none, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(NULL, 1, p, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&a, 1, none, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMemAllocFromPoolAsync(&a, 1, p, (CUstream)(uintptr_t)0x77));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, (size_t)-1, p, NULL));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, (size_t)1 << 50, p, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(4096, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAttribute(p, 99, &on));
	for (unsigned what = CU_MEMPOOL_ATTR_ALLOCATION_TYPE; what <= CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED; what++) { /* of later CUDA versions */
		cuuint64_t later;
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAttribute(p, (CUmemPool_attribute)what, &later));
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAttribute(none, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
	CHECK(cuMemPoolGetAttribute(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
	CLAIM(on == 1);
	CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CHECK(cuMemPoolSetAccess(p, &desc, 1));
	desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess(p, &desc, 1));
	CHECK(cuMemPoolGetAccess(&access, p, &desc.location));
	CLAIM(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	/* A destroyed stream leaves the memory freed in it usable. */
	CUstream s = aside();
	CHECK(cuMemAllocFromPoolAsync(&a, 4 * KIB, p, s));
	hold(s);
	CHECK(cuMemFreeAsync(a, s));
	CHECK(cuStreamDestroy(s));
	CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, p, NULL));
	let_go();
	CHECK(cuCtxSynchronize());
	CHECK(cuMemFreeAsync(a, NULL));
}

/* Threads allocate, fill, check and free at random: no memory belongs to two threads at the same time. */
enum { Threads = 4, Steps = 3000, Slots = 24 };
static CUmemoryPool crowd;
static CUcontext ours;
static unsigned long seed;

static uint32_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static void *crowded_thread(void *argument)
{
	uint64_t state = seed + (uintptr_t)argument;
	struct { CUdeviceptr at; size_t words; unsigned value; } slot[Slots] = {{0, 0, 0}};
	CUstream s[3];
	CUevent e;
	unsigned *host;
	CHECK(cuCtxSetCurrent(ours));
	for (int i = 0; i < 3; i++)
		CHECK(cuStreamCreate(&s[i], i ? CU_STREAM_NON_BLOCKING : 0));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAllocHost((void **)&host, 256 * KIB));
	for (int step = 0; step < Steps; step++) {
		unsigned i = next(&state) % Slots;
		CUstream in = s[next(&state) % 3], then = s[next(&state) % 3];
		if (!slot[i].at) {
			slot[i].words = 1 + next(&state) % (1u << (2 + next(&state) % 14));
			CHECK(cuMemAllocFromPoolAsync(&slot[i].at, 4 * slot[i].words, crowd, in));
			slot[i].value = next(&state);
			CHECK(cuMemsetD32Async(slot[i].at, slot[i].value, slot[i].words, in));
			CHECK(cuEventRecord(e, in)); /* in whatever stream it is used next */
			for (int k = 0; k < 3; k++)
				CHECK(cuStreamWaitEvent(s[k], e, 0));
			continue;
		}
		if (next(&state) % 4 == 0) {
			CHECK(cuMemcpyDtoHAsync(host, slot[i].at, 4 * slot[i].words, then));
			CHECK(cuStreamSynchronize(then));
			for (size_t w = 0; w < slot[i].words; w++)
				if (host[w] != slot[i].value) {
					fprintf(stderr, "seed %lu: word %zu of %zu is %x, want %x\n", seed, w, slot[i].words, host[w], slot[i].value);
					exit(1);
				}
		}
		CHECK(cuMemsetD8Async(slot[i].at, 0xee, 4 * slot[i].words, then));
		CHECK(cuMemFreeAsync(slot[i].at, then));
		slot[i].at = 0;
		if (next(&state) % 200 == 0) {
			CHECK(cuStreamDestroy(s[2]));
			s[2] = aside();
		}
	}
	for (int i = 0; i < Slots; i++)
		if (slot[i].at)
			CHECK(cuMemFreeAsync(slot[i].at, s[i % 3]));
	return NULL;
}

static void crowded(void)
{
	pthread_t all[Threads];
	seed = (unsigned long)getpid();
	ours = begin();
	crowd = new_pool();
	for (int round = 0; round < 2; round++) { /* the second round keeps its memory */
		for (uintptr_t i = 0; i < Threads; i++)
			CLAIM(pthread_create(&all[i], NULL, crowded_thread, (void *)i) == 0);
		for (int i = 0; i < Threads; i++)
			CLAIM(pthread_join(all[i], NULL) == 0);
		CHECK(cuCtxSynchronize());
		CLAIM(number(crowd, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
		if (round == 0)
			CLAIM(number(crowd, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
		keep(crowd, UINT64_MAX);
	}
	CHECK(cuMemPoolTrimTo(crowd, 0));
	CLAIM(number(crowd, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

/* A pool has a limit, however many threads allocate at the same time; and all of it can be allocated. */
enum { Rushing = 8, Rounds = 50 };
static pthread_barrier_t line;
static _Atomic int had;

static void *rush(void *argument)
{
	CUdeviceptr at;
	CUstream s;
	CHECK(cuCtxSetCurrent(ours));
	s = aside();
	for (int round = 0; round < Rounds; round++) {
		pthread_barrier_wait(&line);
		CUresult r = cuMemAllocFromPoolAsync(&at, 2 * MIB, crowd, s);
		CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
		had += r == CUDA_SUCCESS;
		pthread_barrier_wait(&line);
		if (argument == NULL) {
			CLAIM(number(crowd, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 4 * MIB);
			CLAIM(had == 2);
			had = 0;
		}
		pthread_barrier_wait(&line);
		if (r == CUDA_SUCCESS)
			CHECK(cuMemFreeAsync(at, s));
		CHECK(cuStreamSynchronize(s));
		pthread_barrier_wait(&line);
	}
	return NULL;
}

static void rushed(void)
{
	pthread_t all[Rushing];
	ours = begin();
	crowd = small_pool(4 * MIB);
	CLAIM(pthread_barrier_init(&line, NULL, Rushing) == 0);
	for (uintptr_t i = 0; i < Rushing; i++)
		CLAIM(pthread_create(&all[i], NULL, rush, (void *)i) == 0);
	for (int i = 0; i < Rushing; i++)
		CLAIM(pthread_join(all[i], NULL) == 0);
}

/* --- two threads at once: a lock that is taken late shows which operations may come before --- */

static _Thread_local int locksLeft; /* locks until the one that is taken late */
static _Atomic bool late;

int pthread_mutex_lock(pthread_mutex_t *m)
{
	static int (*real)(pthread_mutex_t *);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	if (locksLeft > 0 && --locksLeft == 0) {
		late = true;
		usleep(200000);
	}
	return real(m);
}

struct thread {
	pthread_t id;
	CUcontext c;
	CUevent e;
	CUstream s;
	int lock;
	_Atomic bool over;
};

/* Starts a thread and waits until it is about to take the late lock. */
static void run_late(struct thread *t, void *(*run)(void *), int lock)
{
	late = t->over = false;
	t->lock = lock;
	CLAIM(pthread_create(&t->id, NULL, run, t) == 0);
	while (!late && !t->over)
		usleep(100);
}

static void *record_late(void *of)
{
	struct thread *t = of;
	CHECK(cuCtxSetCurrent(t->c));
	locksLeft = t->lock;
	CHECK(cuEventRecord(t->e, t->s));
	t->over = true;
	return NULL;
}

/*
 * A stream that waits for an event while another thread records it is ordered after this record or the one before, and
 * gets no memory freed between the two unless it is ordered after that.
 */
static void raced(void)
{
	struct thread t = {.c = begin()};
	CHECK(cuEventCreate(&t.e, CU_EVENT_DISABLE_TIMING));
	for (int lock = 1; lock <= 4; lock++) {
		CUmemoryPool p = new_pool();
		CUdeviceptr a, b;
		CUstream other = aside();
		unsigned word;
		t.s = aside();
		turn(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
		turn(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
		CHECK(cuMemAllocFromPoolAsync(&a, 2 * MIB, p, t.s));
		CHECK(cuEventRecord(t.e, t.s));
		CHECK(cuEventSynchronize(t.e));
		hold(t.s);
		CHECK(cuMemsetD32Async(a, 1, 1024, t.s));
		CHECK(cuMemFreeAsync(a, t.s));
		run_late(&t, record_late, lock);
		CHECK(cuStreamWaitEvent(other, t.e, 0));
		CHECK(cuMemAllocFromPoolAsync(&b, 2 * MIB, p, other));
		CHECK(cuMemsetD32Async(b, 2, 1024, other));
		usleep(100000); /* for an event that must not happen yet */
		let_go();
		pthread_join(t.id, NULL);
		CHECK(cuCtxSynchronize());
		CHECK(cuMemcpyDtoH(&word, b, 4));
		CLAIM(word == 2);
		CHECK(cuMemFreeAsync(b, other));
	}
}

static void *allocate_late(void *of)
{
	struct thread *t = of;
	CUdeviceptr a;
	CHECK(cuCtxSetCurrent(t->c));
	locksLeft = t->lock;
	CHECK(cuMemAllocAsync(&a, 4096, NULL));
	locksLeft = 0;
	CHECK(cuMemFreeAsync(a, NULL));
	t->over = true;
	return NULL;
}

/*
 * The device's current pool may be destroyed while another thread allocates from it: then the memory comes from this
 * pool, or from its successor.
 */
static void replaced(void)
{
	struct thread t = {.c = begin()};
	for (int lock = 1; lock <= 4; lock++) {
		CUmemoryPool p = new_pool();
		CHECK(cuDeviceSetMemPool(0, p));
		run_late(&t, allocate_late, lock);
		CHECK(cuMemPoolDestroy(p));
		pthread_join(t.id, NULL);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} parts[] = {
	{"reuse", reuse}, {"dependencies", dependencies}, {"returns", returns}, {"ends", ends}, {"wrong", wrong}, {"crowded", crowded},
	{"limits", limits}, {"trimmed", trimmed}, {"rushed", rushed}, {"raced", raced}, {"replaced", replaced},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++) {
		if (strcmp(parts[i].name, argv[1]) != 0)
			continue;
		alarm(300); /* on a slow and busy machine */
		CHECK(cuInit(0));
		parts[i].run();
		return 0;
	}
	fprintf(stderr, "usage: %s NAME\n", argv[0]);
	return 2;
}
