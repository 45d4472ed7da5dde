/* Properties of memory and events that processes share by IPC handles, one at a time: ipc NAME. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS /* the only flags that cuIpcOpenMemHandle accepts */

static CUcontext context;

static CUfunction begin(void)
{
	CUmodule m;
	CUfunction f;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&f, m, "step"));
	return f;
}

/* Two processes, which start independently, and the messages between them. */
static int other;
static bool child;
static pid_t pid;

static void two(void)
{
	int pair[2];
	CLAIM(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	pid = fork();
	CLAIM(pid >= 0);
	child = pid == 0;
	other = pair[child];
	close(pair[!child]);
}

static void tell(const void *what, size_t n) { CLAIM(write(other, what, n) == (ssize_t)n); }
static void hear(void *what, size_t n) { CLAIM(recv(other, what, n, MSG_WAITALL) == (ssize_t)n); }
static void nod(void) { tell("", 1); }
static void await(void)
{
	char c;
	hear(&c, 1);
}

static void end(void)
{
	int status;
	if (child)
		_exit(0);
	CLAIM(waitpid(pid, &status, 0) == pid && status == 0);
}

static unsigned word(CUdeviceptr at)
{
	unsigned w;
	CHECK(cuMemcpyDtoH(&w, at, 4));
	return w;
}

static size_t used(void)
{
	size_t free, total;
	CHECK(cuMemGetInfo(&free, &total));
	return total - free;
}

static int capable(CUdeviceptr at)
{
	int is;
	CHECK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
	return is;
}

/* Shared memory keeps its address and its contents; kernels of both processes use it. */
static void memory(void)
{
	static const size_t sizes[] = {512, 1000, 5 * MIB, 96 * MIB, 4096};
	enum { N = sizeof sizes / sizeof *sizes };
	CUipcMemHandle h[N];
	CUdeviceptr at[N], base;
	size_t size;
	two();
	CUfunction step = begin();
	if (child) {
		hear(h, sizeof h);
		for (int i = 0; i < N; i++) {
			CHECK(cuIpcOpenMemHandle(&at[i], h[i], LAZY));
			CHECK(cuMemGetAddressRange(&base, &size, at[i] + 100));
			CLAIM(base == at[i] && size >= sizes[i] && size < sizes[i] + 512);
			CLAIM(word(at[i]) == (unsigned)i + 10 && word(at[i] + sizes[i] - 4) == (unsigned)i + 20);
			launch_step(step, NULL, at[i] + sizes[i] - 4, 2, 1);
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(at[i] - 512, 0, 1));
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(at[i] + size, 0, 1));
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(at[i]));
		}
		CHECK(cuCtxSynchronize());
		nod();
		await();
		for (int i = 0; i < N; i++) {
			CUdeviceptr again;
			CHECK(cuIpcOpenMemHandle(&again, h[i], LAZY)); /* the same address, and needs one more close */
			CLAIM(again == at[i]);
			CHECK(cuIpcCloseMemHandle(again));
			CLAIM(word(at[i]) == 77);
			CHECK(cuIpcCloseMemHandle(at[i]));
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(at[i]));
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(at[i], 0, 1));
		}
		nod();
		end();
	}
	for (int i = 0; i < N; i++) {
		CHECK(cuMemAlloc(&at[i], sizes[i]));
		CHECK(cuMemsetD32(at[i], (unsigned)i + 10, 1));
		CHECK(cuMemsetD32(at[i] + sizes[i] - 4, (unsigned)i + 20, 1));
	}
	for (int i = 0; i < N; i++)
		CHECK(cuIpcGetMemHandle(&h[i], at[i] + (i == 2 ? MIB : 0))); /* any address within stands for the whole allocation */
	tell(h, sizeof h);
	await();
	for (int i = 0; i < N; i++) {
		CLAIM(word(at[i] + sizes[i] - 4) == 2 * ((unsigned)i + 20) + 1);
		CHECK(cuMemsetD32(at[i], 77, 1));
	}
	CHECK(cuCtxSynchronize());
	nod();
	await();
	for (int i = 0; i < N; i++) {
		CUdeviceptr again;
		CHECK(cuMemFree(at[i]));
		CHECK(cuMemAlloc(&again, sizes[i]));
		CLAIM(word(again) == 0 && word(again + sizes[i] - 4) == 0);
		CHECK(cuMemFree(again));
	}
	end();
}

/*
 * A process may go on using shared memory after its owner has ended, though not its contents; all of it is freed with
 * both.
 */
static void survivor(void)
{
	CUipcMemHandle h;
	CUdeviceptr at;
	two();
	begin();
	if (child) { /* the child is the owner */
		CHECK(cuMemAlloc(&at, 3 * MIB));
		CHECK(cuMemsetD32(at, 5, 3 * MIB / 4));
		CHECK(cuIpcGetMemHandle(&h, at));
		tell(&h, sizeof h);
		await();
		end();
	}
	size_t before = used(); /* may include the other one's by then */
	hear(&h, sizeof h);
	CHECK(cuIpcOpenMemHandle(&at, h, LAZY));
	nod();
	end();
	CLAIM(word(at) == 5 || word(at) == 0);
	CHECK(cuMemsetD32(at, 6, 1));
	CLAIM(word(at) == 6);
	CHECK(cuIpcCloseMemHandle(at));
	for (int i = 0; i < 500 && cuIpcOpenMemHandle(&at, h, LAZY) == CUDA_SUCCESS; i++) { /* the host detects the end a little later */
		CHECK(cuIpcCloseMemHandle(at));
		usleep(10000);
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&at, h, LAZY)); /* its allocation no longer exists */
	for (int i = 0; i < 500 && used() > before; i++)
		usleep(10000);
	CLAIM(used() <= before);
}

/* Other threads go on using memory that is being lent, and their writes are not lost. */
static _Atomic bool over;

static void *write_on(void *unused)
{
	CUmodule m;
	CUfunction step;
	CUdeviceptr at;
	CUstream s;
	unsigned n = 0;
	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&step, m, "step"));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&at, 4096));
	CHECK(cuMemsetD32Async(at, 0, 1, s));
	for (; !over || n < 100; n++) {
		launch_step(step, s, at, 1, 1);
		if (n % 50 == 0) {
			CUdeviceptr more;
			CHECK(cuMemAlloc(&more, 300 * KIB));
			CHECK(cuMemsetD32Async(more, 0xdddddddd, 300 * KIB / 4, s));
			CHECK(cuMemFree(more));
			CHECK(cuMemAlloc(&more, 300 * KIB));
			CLAIM(word(more) == 0 && word(more + 300 * KIB - 4) == 0);
			CHECK(cuMemFree(more));
			CHECK(cuStreamSynchronize(s));
		}
	}
	CHECK(cuStreamSynchronize(s));
	CLAIM(word(at) == n);
	return NULL;
}

static void busy(void)
{
	pthread_t t;
	CUipcMemHandle h;
	begin();
	CLAIM(pthread_create(&t, NULL, write_on, NULL) == 0);
	for (int i = 0; i < 12; i++) {
		CUdeviceptr at[2];
		CHECK(cuMemAlloc(&at[0], (size_t)(i % 2 ? 70 : 1) * MIB));
		CHECK(cuMemAlloc(&at[1], 700));
		CHECK(cuMemsetD32(at[0], 42, 1));
		CHECK(cuIpcGetMemHandle(&h, at[i % 3 == 0]));
		CLAIM(word(at[0]) == 42);
		CHECK(cuMemFree(at[0]));
		CHECK(cuMemFree(at[1]));
	}
	over = true;
	pthread_join(t, NULL);
}

/* A host function that runs meanwhile is waited for, as by any blocking call. */
static void CUDA_CB slowly(void *unused)
{
	(void)unused;
	usleep(50000);
}

static void function(void)
{
	CUipcMemHandle h;
	CUdeviceptr at;
	begin();
	CHECK(cuMemAlloc(&at, MIB));
	CHECK(cuLaunchHostFunc(NULL, slowly, NULL));
	CHECK(cuMemsetD32Async(at, 9, MIB / 4, NULL));
	CHECK(cuIpcGetMemHandle(&h, at));
	CLAIM(word(at + MIB - 4) == 9);
}

/*
 * A process that is notified of an event's record, and makes a stream wait for it, is ordered after the work before it.
 */
static void events(void)
{
	CUipcMemHandle h;
	CUipcEventHandle eh, back;
	CUdeviceptr at;
	CUevent e, mine;
	CUstream s;
	enum { ROUNDS = 20 };
	two();
	CUfunction step = begin();
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	if (child) {
		hear(&h, sizeof h);
		hear(&eh, sizeof eh);
		CHECK(cuIpcOpenMemHandle(&at, h, LAZY));
		CHECK(cuIpcOpenEventHandle(&e, eh));
		CHECK(cuEventQuery(e));
		CHECK(cuEventCreate(&mine, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
		CHECK(cuIpcGetEventHandle(&back, mine));
		tell(&back, sizeof back);
		for (unsigned i = 0; i < ROUNDS; i++) {
			await();
			CHECK(cuStreamWaitEvent(s, e, 0));
			launch_step(step, s, at, 1, 1);
			CHECK(cuEventRecord(i % 2 ? mine : e, s)); /* either may record either */
			nod();
		}
		end();
	}
	CHECK(cuMemAlloc(&at, 4096));
	CHECK(cuMemsetD32(at, 1, 1));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS | CU_EVENT_BLOCKING_SYNC));
	CHECK(cuIpcGetMemHandle(&h, at));
	CHECK(cuIpcGetEventHandle(&eh, e));
	tell(&h, sizeof h);
	tell(&eh, sizeof eh);
	hear(&back, sizeof back);
	CHECK(cuIpcOpenEventHandle(&mine, back));
	unsigned want = 1;
	for (unsigned i = 0; i < ROUNDS; i++) {
		CHECK(cuLaunchHostFunc(s, slowly, NULL)); /* delays the kernel */
		launch_step(step, s, at, 3, 0);
		CHECK(cuEventRecord(e, s));
		nod();
		await();
		CHECK(cuStreamWaitEvent(s, i % 2 ? mine : e, 0));
		want = want * 3 + 1;
	}
	CHECK(cuStreamSynchronize(s));
	CLAIM(word(at) == want);
	CHECK(cuEventDestroy(mine));
	CHECK(cuEventDestroy(e));
	end();
}

/* The same holds for records by a graph. */
static void graphs(void)
{
	CUipcEventHandle eh;
	CUevent e;
	CUgraph g;
	CUgraphExec x;
	CUgraphNode first, n;
	CUstream s;
	const CUDA_HOST_NODE_PARAMS slow = {.fn = slowly};
	begin();
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphAddHostNode(&first, g, NULL, 0, &slow));
	CHECK(cuGraphAddEventRecordNode(&n, g, &first, 1, e));
	CHECK(cuGraphInstantiate(&x, g, 0));
	CHECK(cuGraphLaunch(x, s));
	EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
	CHECK(cuIpcGetEventHandle(&eh, e));
	CHECK(cuEventQuery(e));
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuEventQuery(e));
}

static void wrong(void)
{
	CUipcMemHandle h, twisted;
	CUipcEventHandle eh;
	CUdeviceptr at, pitched, managed, pooled, none;
	CUevent e, plain;
	void *host;
	size_t pitch;
	two();
	if (child) {
		EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuIpcGetMemHandle(&h, 0));
		begin();
		hear(&h, sizeof h);
		hear(&eh, sizeof eh);
		for (size_t i = 0; i < sizeof twisted; i++) { /* a handle with any changed byte is rejected, except in the number of the process */
			twisted = h;
			twisted.reserved[i] ^= 1;
			if (i < 8 || i >= 16)
				EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&at, twisted, LAZY));
		}
		memcpy(&twisted, &eh, sizeof twisted);
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&at, twisted, LAZY));
		memcpy(&eh, &h, sizeof eh);
		EXPECT(CUDA_ERROR_MAP_FAILED, cuIpcOpenEventHandle(&e, eh));
		static const unsigned flags[] = {0, 2, 3}; /* all but the valid one */
		for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&at, h, flags[i]));
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(NULL, h, LAZY));
		CHECK(cuIpcOpenMemHandle(&at, h, LAZY));
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&twisted, at)); /* imported memory cannot be exported */
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(at + 4));
		nod();
		end();
	}
	begin();
	CHECK(cuMemAlloc(&at, 5000));
	CHECK(cuMemAllocPitch(&pitched, &pitch, 100, 10, 4));
	CHECK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemAllocAsync(&pooled, 4096, NULL));
	CHECK(cuMemAllocHost(&host, 4096));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, at));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, managed));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, pooled));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, (CUdeviceptr)(uintptr_t)host));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(at));
	CLAIM(capable(at) && capable(pitched) && !capable(managed) && !capable(pooled));
	CHECK(cuIpcGetMemHandle(&h, pitched));
	CHECK(cuIpcGetMemHandle(&h, at));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&none, h, LAZY)); /* the process's own handle */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&e, CU_EVENT_INTERPROCESS));
	CHECK(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&eh, plain));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&eh, (CUevent)(uintptr_t)at));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(NULL, e));
	CHECK(cuIpcGetEventHandle(&eh, e));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&plain, eh));
	tell(&h, sizeof h);
	tell(&eh, sizeof eh);
	await();
	end();
}

/* --- pools --- */

static void tell_fd(int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec data = {"", 1};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	CLAIM(sendmsg(other, &m, 0) == 1);
}

static int hear_fd(void)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char c;
	int fd;
	struct iovec data = {&c, 1};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
	CLAIM(recvmsg(other, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static CUresult make_pool(CUmemoryPool *pool, CUmemAllocationHandleType type)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = type, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	return cuMemPoolCreate(pool, &props);
}

enum { FILE_DESCRIPTOR = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };

static CUmemoryPool import_pool(int fd)
{
	CUmemoryPool pool;
	CHECK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return pool;
}

/*
 * Allocations of one pool, several of them in a chunk: each is shared by itself, and kernels of both processes use it.
 */
static void pools(void)
{
	static const size_t sizes[] = {512, 1000, 5 * MIB, 40 * MIB, 4096};
	enum { N = sizeof sizes / sizeof *sizes };
	CUmemPoolPtrExportData data[N], wrong;
	CUdeviceptr at[N], base, again, none;
	CUmemoryPool pool, of;
	CUstream stream;
	size_t size;
	int supported, fd;
	two();
	CUfunction step = begin();
	CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
	CLAIM(supported == FILE_DESCRIPTOR);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if (child) {
		pool = import_pool(hear_fd());
		hear(data, sizeof data);
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&none, 512, pool, stream)); /* the pool belongs to another process */
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
		for (int i = 0; i < N; i++) {
			CHECK(cuMemPoolImportPointer(&at[i], pool, &data[i]));
			CHECK(cuMemGetAddressRange(&base, &size, at[i] + 100));
			CLAIM(base == at[i] && size == sizes[i]);
			CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at[i]));
			CLAIM(of == pool && word(at[i]) == (unsigned)i + 10 && word(at[i] + sizes[i] - 4) == (unsigned)i + 20);
			launch_step(step, stream, at[i] + sizes[i] - 4, 2, 1);
			CHECK(cuMemPoolImportPointer(&again, pool, &data[i])); /* the same address, and needs one more free */
			CLAIM(again == at[i]);
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&wrong, at[i])); /* imported memory cannot be exported */
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(at[i]));
		}
		for (size_t i = 0; i < sizeof wrong; i++) {
			wrong = data[1];
			wrong.reserved[i] ^= 1;
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &wrong));
		}
		CHECK(cuStreamSynchronize(stream));
		nod();
		await();
		for (int i = 0; i < N; i++) {
			if (i % 3)
				CHECK(cuMemFree(at[i]));
			else
				CHECK(cuMemFreeAsync(at[i], stream));
			CLAIM(word(at[i]) == 77); /* it was imported twice */
			if (i % 2)
				CHECK(cuMemFree(at[i]));
			else
				CHECK(cuMemFreeAsync(at[i], stream));
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(at[i]));
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(at[i], 0, 1));
		}
		CHECK(cuStreamSynchronize(stream));
		CHECK(cuMemPoolImportPointer(&at[0], pool, &data[0])); /* once more */
		CLAIM(word(at[0]) == 77);
		CHECK(cuMemFree(at[0]));
		CHECK(cuMemPoolDestroy(pool));
		nod();
		end();
	}
	CHECK(make_pool(&of, CU_MEM_HANDLE_TYPE_NONE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(&fd, of, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, make_pool(&of, CU_MEM_HANDLE_TYPE_WIN32));
	CHECK(cuMemAllocFromPoolAsync(&none, 512, of, stream));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&wrong, none));
	CHECK(make_pool(&pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	for (int i = 0; i < N; i++) {
		CHECK(cuMemAllocFromPoolAsync(&at[i], sizes[i], pool, stream));
		CHECK(cuMemsetD32Async(at[i], (unsigned)i + 10, 1, stream));
		CHECK(cuMemsetD32Async(at[i] + sizes[i] - 4, (unsigned)i + 20, 1, stream));
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&wrong, at[0])); /* its pool was not exported */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
	CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	tell_fd(fd);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportFromShareableHandle(&of, (void *)(intptr_t)other, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	for (int i = 0; i < N; i++)
		CHECK(cuMemPoolExportPointer(&data[i], at[i]));
	CHECK(cuStreamSynchronize(stream));
	tell(data, sizeof data);
	await();
	for (int i = 0; i < N; i++) {
		CLAIM(word(at[i] + sizes[i] - 4) == 2 * ((unsigned)i + 20) + 1);
		CHECK(cuMemsetD32(at[i], 77, 1));
	}
	CHECK(cuCtxSynchronize());
	nod();
	await();
	for (int i = 0; i < N; i++)
		CHECK(cuMemFreeAsync(at[i], stream));
	CHECK(cuMemPoolDestroy(pool));
	CHECK(cuCtxSynchronize());
	end();
}

/*
 * A pointer to an allocation that its owner has freed cannot be imported, also while the process has the chunk mapped,
 * and also after another allocation has taken the place.
 */
static void poolstale(void)
{
	CUmemPoolPtrExportData data[2], again, random;
	CUdeviceptr at[2], none;
	CUmemoryPool pool, other_pool;
	int fd, other_fd;
	two();
	begin();
	if (child) {
		pool = import_pool(hear_fd());
		other_pool = import_pool(hear_fd());
		hear(data, sizeof data);
		for (int i = 0; i < 2; i++) {
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, other_pool, &data[i])); /* of another pool */
			CHECK(cuMemPoolImportPointer(&at[i], pool, &data[i]));
		}
		memset(&random, 0, sizeof random);
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &random));
		for (unsigned i = 0, n = 1; i < 1000; i++) {
			for (size_t k = 0; k < sizeof random; k++)
				random.reserved[k] = (unsigned char)((n = n * 1664525 + 1013904223) >> 24);
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &random));
		}
		CHECK(cuMemFree(at[0])); /* the chunk stays mapped for the other one */
		nod();
		await();
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &data[0]));
		CLAIM(word(at[1]) == 2);
		nod();
		hear(&again, sizeof again);
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &data[0]));
		CHECK(cuMemPoolImportPointer(&at[0], pool, &again));
		CLAIM(word(at[0]) == 3);
		CHECK(cuMemFree(at[0]));
		CHECK(cuMemFree(at[1]));
		nod();
		await();
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &again)); /* its owner has destroyed the pool */
		CHECK(cuMemPoolDestroy(pool));
		end();
	}
	CHECK(make_pool(&pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(make_pool(&other_pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(cuMemPoolExportToShareableHandle(&other_fd, other_pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CLAIM(write(fd, "", 1) == -1); /* only the owner changes the table of exported allocations */
	for (unsigned i = 0; i < 2; i++) {
		CHECK(cuMemAllocFromPoolAsync(&at[i], 4096, pool, NULL));
		CHECK(cuMemsetD32(at[i], i + 1, 1));
		CHECK(cuMemPoolExportPointer(&data[i], at[i]));
		CHECK(cuMemPoolExportPointer(&again, at[i] + 100)); /* any address within stands for the whole allocation */
		CLAIM(memcmp(&again, &data[i], sizeof again) == 0);
	}
	CHECK(cuCtxSynchronize());
	tell_fd(fd);
	tell_fd(other_fd);
	tell(data, sizeof data);
	await();
	CHECK(cuMemFreeAsync(at[0], NULL));
	nod();
	await();
	CUdeviceptr place = at[0];
	CHECK(cuMemAllocFromPoolAsync(&at[0], 4096, pool, NULL));
	CLAIM(at[0] == place);
	CHECK(cuMemsetD32(at[0], 3, 1));
	CHECK(cuMemPoolExportPointer(&again, at[0]));
	CHECK(cuCtxSynchronize());
	tell(&again, sizeof again);
	await();
	CHECK(cuMemFreeAsync(at[0], NULL));
	CHECK(cuMemFreeAsync(at[1], NULL));
	CHECK(cuMemPoolDestroy(pool));
	CHECK(cuCtxSynchronize());
	nod();
	end();
}

/* The owner of a pool ends: its allocations stay usable for processes that have imported them, and no others can. */
static void poolorphan(void)
{
	CUmemPoolPtrExportData data[2];
	CUdeviceptr at[2];
	CUmemoryPool pool;
	CUresult r = CUDA_SUCCESS;
	int fd;
	two();
	begin();
	if (child) { /* the child is the owner */
		CHECK(make_pool(&pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		for (unsigned i = 0; i < 2; i++) {
			CHECK(cuMemAllocFromPoolAsync(&at[i], 40 * MIB, pool, NULL)); /* a chunk for each */
			CHECK(cuMemsetD32(at[i], i + 5, 1));
			CHECK(cuMemPoolExportPointer(&data[i], at[i]));
		}
		CHECK(cuCtxSynchronize());
		tell_fd(fd);
		tell(data, sizeof data);
		await();
		end();
	}
	pool = import_pool(hear_fd());
	hear(data, sizeof data);
	CHECK(cuMemPoolImportPointer(&at[0], pool, &data[0]));
	nod();
	end();
	CHECK(cuMemsetD32(at[0], 6, 1));
	CLAIM(word(at[0]) == 6);
	for (int i = 0; i < 500 && (r = cuMemPoolImportPointer(&at[1], pool, &data[1])) == CUDA_SUCCESS; i++) {
		CHECK(cuMemFree(at[1])); /* the host detects the end a little later */
		usleep(10000);
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, r);
	CHECK(cuMemFree(at[0]));
	CHECK(cuMemPoolDestroy(pool));
}

/* Returns the library's own descriptor of the only pool, of which the program has another one. */
static int own_descriptor(int program)
{
	char path[64], name[64];
	for (int fd = 3; fd < 1024; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, name, sizeof name - 1);
		name[n > 0 ? n : 0] = 0;
		if (fd != program && strstr(name, "pegasus-pool"))
			return fd;
	}
	return -1;
}

/* The descriptors of pools: files that are none, descriptors that the program closes, and limits. */
static void poolfiles(void)
{
	const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUmemoryPool pool, none;
	int fd, more, pipes[2];
	uint64_t head[8];
	begin();
	CHECK(make_pool(&pool, type));
	CHECK(cuMemPoolExportToShareableHandle(&fd, pool, type, 0));

	/* Only a file that keeps its size is a table of exports: reading another one may block. */
	CLAIM(pread(fd, head, sizeof head, 0) == sizeof head);
	int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CLAIM(pwrite(loose, head, sizeof head, 0) == sizeof head && pipe(pipes) == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportFromShareableHandle(&none, (void *)(intptr_t)loose, type, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportFromShareableHandle(&none, (void *)(intptr_t)pipes[0], type, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportFromShareableHandle(&none, (void *)(intptr_t)-1, type, 0));

	/* The program reuses the number of the library's descriptor: its own file is neither passed on nor closed. */
	int own = own_descriptor(fd);
	CLAIM(own >= 0 && dup2(pipes[1], own) == own);
	EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuMemPoolExportToShareableHandle(&more, pool, type, 0));
	CHECK(cuMemPoolDestroy(pool));
	CLAIM(fcntl(own, F_GETFD) != -1);

	/* A limit on the size of files is an error, and does not end the program. */
	const struct rlimit least = {4096, RLIM_INFINITY};
	CLAIM(setrlimit(RLIMIT_FSIZE, &least) == 0);
	CHECK(make_pool(&pool, type));
	EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuMemPoolExportToShareableHandle(&more, pool, type, 0));
	CHECK(cuMemPoolDestroy(pool));
}

/* Memory shared with another process is freed when both have released it. */
static void poolends(void)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr at;
	int fd;
	two();
	begin();
	if (child) {
		for (int i = 0; i < 8; i++) {
			pool = import_pool(fd = hear_fd());
			close(fd);
			hear(&data, sizeof data);
			CHECK(cuMemPoolImportPointer(&at, pool, &data));
			CLAIM(word(at) == (unsigned)i);
			if (i == 7)
				_exit(0); /* with it */
			CHECK(cuMemFreeAsync(at, NULL));
			CHECK(cuCtxSynchronize());
			CHECK(cuMemPoolDestroy(pool));
			nod();
		}
	}
	size_t before = used();
	for (int i = 0; i < 8; i++) {
		CHECK(make_pool(&pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		CHECK(cuMemAllocFromPoolAsync(&at, 40 * MIB, pool, NULL));
		CHECK(cuMemsetD32(at, (unsigned)i, 10 * MIB));
		CHECK(cuMemPoolExportPointer(&data, at));
		CHECK(cuCtxSynchronize());
		tell_fd(fd);
		close(fd);
		tell(&data, sizeof data);
		if (i == 7)
			end();
		else
			await();
		CHECK(cuMemFreeAsync(at, NULL));
		CHECK(cuMemPoolDestroy(pool));
		CHECK(cuCtxSynchronize());
		for (int k = 0; used() > before && k < 1000; k++)
			usleep(10000);
		CLAIM(used() <= before);
	}
}

/* Without support it is an error; events need no support by the device. */
static void refused(void)
{
	CUipcMemHandle h;
	CUipcEventHandle eh;
	CUdeviceptr at;
	CUevent e;
	begin();
	int types;
	CUmemoryPool pool;
	CHECK(cuMemAlloc(&at, 4096));
	CHECK(cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
	CLAIM(types == CU_MEM_HANDLE_TYPE_NONE);
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, make_pool(&pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle(&h, at));
	CLAIM(!capable(at));
	CHECK(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CHECK(cuIpcGetEventHandle(&eh, e));
	CHECK(cuEventRecord(e, NULL));
	CHECK(cuEventQuery(e));
}

static const struct { const char *name; void (*run)(void); } parts[] = {
	{"memory", memory}, {"survivor", survivor}, {"busy", busy}, {"function", function}, {"events", events}, {"graphs", graphs},
	{"wrong", wrong}, {"refused", refused}, {"pools", pools}, {"poolstale", poolstale},
	{"poolorphan", poolorphan}, {"poolfiles", poolfiles}, {"poolends", poolends},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++) {
		if (strcmp(parts[i].name, argv[1]) != 0)
			continue;
		alarm(60);
		parts[i].run();
		return 0;
	}
	fprintf(stderr, "usage: %s NAME\n", argv[0]);
	return 2;
}
