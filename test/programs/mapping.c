/* Properties of memory that programs map themselves, and of stream memory waits, one at a time: mapping NAME. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define PAGE (2 * MIB)

static const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

static CUmemAllocationProp device_memory(void)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
}

static CUmemAccessDesc access_of(CUmemAccess_flags flags) { return (CUmemAccessDesc){.location = here, .flags = flags}; }

static CUcontext begin(CUfunction *step)
{
	CUcontext c;
	CUmodule m;
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(step, m, "step"));
	return c;
}

static CUmemGenericAllocationHandle create(size_t bytes)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = device_memory();
	CHECK(cuMemCreate(&h, bytes, &prop, 0));
	return h;
}

static void allow(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags)
{
	CUmemAccessDesc desc = access_of(flags);
	CHECK(cuMemSetAccess(at, bytes, &desc, 1));
}

static CUstream aside(void)
{
	CUstream s;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

static size_t used(void)
{
	size_t free, total;
	CHECK(cuMemGetInfo(&free, &total));
	return total - free;
}

/* Two adjacent mappings behave as one, in every operation; the quota counts physical memory. */
static void seam(void)
{
	CUfunction step;
	CUdeviceptr at, again;
	int can;
	size_t granule;
	CUmemAllocationProp prop = device_memory();
	begin(&step);
	CHECK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	CLAIM(can == 1);
	CHECK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CLAIM(granule == PAGE);
	size_t before = used();
	CHECK(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
	CLAIM(used() == before);
	CUmemGenericAllocationHandle a = create(2 * PAGE), b = create(PAGE);
	CLAIM(used() == before + 3 * PAGE);
	CHECK(cuMemMap(at + PAGE, PAGE, PAGE, a, 0)); /* its second half */
	CHECK(cuMemMap(at + 2 * PAGE, PAGE, 0, b, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at + PAGE, 1, 16)); /* no access is set yet */
	allow(at + PAGE, 2 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	unsigned *host = malloc(2 * PAGE);
	CHECK(cuMemcpyDtoH(host, at + PAGE, 2 * PAGE));
	for (size_t i = 0; i < 2 * PAGE / 4; i++)
		CLAIM(host[i] == 0);
	CHECK(cuMemsetD32(at + PAGE, 3, 2 * PAGE / 4));
	CHECK(cuMemsetD32(at + 2 * PAGE - 4, 5, 2));
	launch_step(step, NULL, at + 2 * PAGE - 4, 7, 1);
	launch_step(step, NULL, at + 2 * PAGE, 7, 2);
	CHECK(cuMemcpyDtoH(host, at + PAGE, 2 * PAGE));
	CLAIM(host[PAGE / 4 - 1] == 36 && host[PAGE / 4] == 37 && host[0] == 3 && host[2 * PAGE / 4 - 1] == 3);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, at + PAGE, 2 * PAGE + 1));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, at + PAGE - 1, 2));

	/* One allocation at two addresses. */
	CHECK(cuMemMap(at + 8 * PAGE, PAGE, 0, b, 0));
	allow(at + 8 * PAGE, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CHECK(cuMemcpyDtoH(host, at + 8 * PAGE, 8));
	CLAIM(host[0] == 37 && host[1] == 3);

	/* Released memory lives while it is mapped, and its handle can be retained again by its address. */
	CUmemGenericAllocationHandle held;
	CHECK(cuMemRelease(b));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(b));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, PAGE, 0, b, 0));
	CHECK(cuMemRetainAllocationHandle(&held, (void *)(uintptr_t)(at + 8 * PAGE + 77)));
	CLAIM(held == b);
	CHECK(cuMemUnmap(at + 8 * PAGE, PAGE));
	CHECK(cuMemRelease(held));
	CLAIM(used() == before + 3 * PAGE);
	unsigned long long flags;
	CHECK(cuMemGetAccess(&flags, &here, at + PAGE));
	CLAIM(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CHECK(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at + 2 * PAGE + 5));
	CLAIM(again == at + 2 * PAGE);
	CHECK(cuMemUnmap(at + PAGE, 2 * PAGE));
	CLAIM(used() == before + 2 * PAGE);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at + PAGE, 1, 16));
	CHECK(cuMemMap(at, 2 * PAGE, 0, a, 0));
	allow(at, 2 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CHECK(cuMemcpyDtoH(host, at + PAGE, 4));
	CLAIM(host[0] == 3);
	CHECK(cuMemUnmap(at, 2 * PAGE));
	CHECK(cuMemRelease(a));
	CLAIM(used() == before);
	CHECK(cuMemAddressFree(at, 64 * MIB));
}

/* Read-only memory is not written; a kernel that writes it faults. */
static void reading(void)
{
	CUfunction step;
	CUdeviceptr at, plain;
	unsigned word;
	begin(&step);
	CHECK(cuMemAlloc(&plain, 4));
	CHECK(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
	CUmemGenericAllocationHandle a = create(PAGE);
	CHECK(cuMemMap(at, PAGE, 0, a, 0));
	allow(at, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CHECK(cuMemsetD32(at, 9, 1));
	allow(at, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ); /* waits for the fill, which is asynchronous */
	CHECK(cuMemcpyDtoH(&word, at, 4));
	CLAIM(word == 9);
	launch_step(step, NULL, at, 1, 1);
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

/* Work queued before access is taken away ends first, in all streams. */
static void lessened(void)
{
	CUfunction step;
	CUdeviceptr at;
	unsigned word;
	begin(&step);
	CUstream s = aside();
	CHECK(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
	CUmemGenericAllocationHandle a = create(PAGE);
	CHECK(cuMemMap(at, PAGE, 0, a, 0));
	for (unsigned i = 0; i < 100; i++) {
		allow(at, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		CHECK(cuMemsetD32Async(at, i, PAGE / 4, s));
		launch_step(step, s, at + PAGE - 4, 3, 1);
		allow(at, PAGE, i % 2 ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE);
		CHECK(cuStreamQuery(s));
		allow(at, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ);
		CHECK(cuMemcpyDtoH(&word, at + PAGE - 4, 4));
		CLAIM(word == 3 * i + 1);
	}
}

/* Kernels that use memory unmapped under them fail, and nothing else does. */
static void torn(void)
{
	CUcontext c;
	CUfunction step;
	CUdeviceptr at;
	c = begin(&step);
	CHECK(cuMemAddressReserve(&at, 8 * PAGE, 0, 0, 0));
	for (int i = 0; i < 100; i++) {
		CUmemGenericAllocationHandle a = create(PAGE);
		CHECK(cuMemMap(at + i % 8 * PAGE, PAGE, 0, a, 0));
		allow(at + i % 8 * PAGE, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		CHECK(cuMemRelease(a));
		for (int k = 0; k < 10; k++)
			launch_step(step, NULL, at + i % 8 * PAGE, 1, 1);
		CHECK(cuMemUnmap(at + i % 8 * PAGE, PAGE));
	}
	launch_step(step, NULL, at, 1, 1);
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	CHECK(cuCtxDestroy(c));
	begin(&step);
	CHECK(cuMemAddressFree(at, 8 * PAGE));
}

static void wrong(void)
{
	CUfunction step;
	CUdeviceptr at, b;
	CUmemGenericAllocationHandle h, none = 0x1234;
	CUmemAllocationProp prop = device_memory();
	CUmemAccessDesc both = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	size_t n;
	begin(&step);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, PAGE + 1000, 0, 0, 0));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&at, (size_t)-4096, 0, 0, 0));
	CHECK(cuMemAddressReserve(&at, PAGE + 4096, 0, 0, 0)); /* whole pages of the host suffice */
	CHECK(cuMemAddressReserve(&b, 4096, 0, 0, 0));
	h = create(2 * PAGE);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, 2 * PAGE, 0, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(b, PAGE, 0, h, 0));
	CHECK(cuMemMap(at, PAGE, 0, h, 0));
	CHECK(cuMemUnmap(at, PAGE));
	CHECK(cuMemRelease(h));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 2 * PAGE));
	CHECK(cuMemAddressFree(at, PAGE + 4096));
	CHECK(cuMemAddressFree(b, 4096));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, 0, 0, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, PAGE, 3, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(NULL, PAGE, 0, 0, 0));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&at, (size_t)1 << 50, 0, 0, 0));
	CHECK(cuMemAddressReserve(&at, 4 * PAGE, 128 * MIB, 0, 0));
	CLAIM(at % (128 * MIB) == 0);
	CHECK(cuMemAddressReserve(&b, 64 * MIB, 0, at + 1024 * MIB, 0)); /* a hint, which may be granted */
	CHECK(cuMemAddressFree(b, 64 * MIB));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(b, 64 * MIB));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at + PAGE, PAGE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, PAGE - 1, &prop, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, 0, &prop, 0));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&h, (size_t)1 << 45, &prop, 0));
	prop.location.id = 9;
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&h, PAGE, &prop, 0));
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&h, PAGE, &prop, 0));
	prop = device_memory();
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&n, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	h = create(2 * PAGE);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, PAGE, 0, none, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, PAGE, 2 * PAGE, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, 2 * PAGE, PAGE, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 3 * PAGE, 2 * PAGE, 0, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 4096, PAGE, 0, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + (1u << 30), PAGE, 0, h, 0));
	CHECK(cuMemMap(at + PAGE, 2 * PAGE, 0, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * PAGE, PAGE, 0, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, 2 * PAGE, 0, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, 3 * PAGE, &both, 1));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at + PAGE, PAGE, &both, 1)); /* half a mapping */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + PAGE, PAGE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, 4 * PAGE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 4 * PAGE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(at));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(at + PAGE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(at + PAGE, NULL));
	int fd;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)); /* no export was requested */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&h, (void *)(intptr_t)0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(cuMemUnmap(at + PAGE, 2 * PAGE));
	CHECK(cuMemRelease(h));
	/* All memory, repeatedly: released memory is available to the next allocation. */
	size_t free, total;
	CHECK(cuMemGetInfo(&free, &total));
	size_t most = free / PAGE * PAGE;
	for (int i = 0; i < 3; i++) {
		h = create(most);
		EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&none, most, &prop, 0));
		CHECK(cuMemRelease(h));
	}
}

/* Memory of one process, passed to another by a file descriptor. */
static void given(void)
{
	int pair[2], fd = -1;
	CLAIM(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	pid_t child = fork();
	CLAIM(child >= 0);
	CHECK(cuInit(0));
	CUfunction step;
	CUdeviceptr at;
	char byte = 0, control[CMSG_SPACE(sizeof fd)];
	struct iovec one = {&byte, 1};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = device_memory(), got;
	unsigned word;
	begin(&step);
	CHECK(cuMemAddressReserve(&at, 4 * PAGE, 0, 0, 0));
	if (child == 0) {
		CLAIM(recvmsg(pair[1], &m, 0) == 1);
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
		CHECK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		close(fd);
		CHECK(cuMemMap(at + PAGE, 2 * PAGE, 0, h, 0));
		allow(at + PAGE, 2 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		CHECK(cuMemcpyDtoH(&word, at + 3 * PAGE - 4, 4));
		CLAIM(word == 41);
		launch_step(step, NULL, at + 3 * PAGE - 4, 1, 1);
		CHECK(cuCtxSynchronize());
		CLAIM(write(pair[1], "", 1) == 1);
		CLAIM(read(pair[1], &byte, 1) == 1); /* the other one has released it */
		CHECK(cuMemcpyDtoH(&word, at + PAGE, 4));
		CLAIM(word == 7);
		_exit(0);
	}
	size_t before = used();
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CHECK(cuMemCreate(&h, 2 * PAGE, &prop, 0));
	CHECK(cuMemGetAllocationPropertiesFromHandle(&got, h));
	CLAIM(got.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CHECK(cuMemMap(at, 2 * PAGE, 0, h, 0));
	allow(at, 2 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CHECK(cuMemcpyDtoH(&word, at, 4));
	CLAIM(word == 0);
	CHECK(cuMemsetD32(at + 2 * PAGE - 4, 41, 1));
	CHECK(cuMemsetD32(at, 7, 1));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
	CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
	CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof fd);
	CLAIM(sendmsg(pair[0], &m, 0) == 1);
	CLAIM(read(pair[0], &byte, 1) == 1);
	CHECK(cuMemcpyDtoH(&word, at + 2 * PAGE - 4, 4));
	CLAIM(word == 42);
	CHECK(cuMemUnmap(at, 2 * PAGE));
	CHECK(cuMemRelease(h));
	CLAIM(used() == before + 2 * PAGE); /* the other one has it */
	CLAIM(write(pair[0], "", 1) == 1);
	int status;
	CLAIM(waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < 3000 && used() != before; i++) /* after its worker has ended */
		usleep(10000);
	CLAIM(used() == before);
	/* It was freed with its last user: the descriptor is useless now. */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

/*
 * A program may request exportable handles for all its memory without ever exporting: only a limited number of
 * allocations can be exported.
 */
static void many(void)
{
	CUfunction step;
	CUmemGenericAllocationHandle h[64];
	CUmemAllocationProp prop = device_memory();
	int fd, exported = 0;
	begin(&step);
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	size_t before = used();
	for (int i = 0; i < 64; i++)
		CHECK(cuMemCreate(&h[i], PAGE, &prop, 0));
	CLAIM(used() == before + 64 * PAGE);
	for (int i = 0; i < 64; i++) {
		CUresult r = cuMemExportToShareableHandle(&fd, h[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_SUPPORTED);
		exported += r == CUDA_SUCCESS;
		if (r == CUDA_SUCCESS)
			close(fd);
	}
	CLAIM(exported == 16);
	for (int i = 0; i < 64; i++)
		CHECK(cuMemRelease(h[i]));
	CLAIM(used() == before);
}

/*
 * An allocation waits for memory that is being freed, but not behind another stream's memory wait, which may depend on
 * the program.
 */
static void starved(void)
{
	CUfunction step, spin;
	CUmodule m;
	CUdeviceptr at;
	CUmemGenericAllocationHandle h, none;
	CUmemAllocationProp prop = device_memory();
	volatile unsigned *flag;
	unsigned steps = 5000000;
	void *args[] = {&steps};
	size_t free, total;
	begin(&step);
	CUstream s = aside();
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&spin, m, "spin"));
	CHECK(cuMemAllocHost((void **)&flag, 4096));
	CHECK(cuMemGetInfo(&free, &total));
	size_t most = free / PAGE * PAGE;
	for (int shared = 0; shared < 2; shared++) {
		prop.requestedHandleTypes = shared ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
		CHECK(cuMemAlloc(&at, most));
		CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
		CHECK(cuMemFree(at));
		CHECK(cuMemCreate(&h, most, &prop, 0));
		flag[0] = 0;
		CHECK(cuStreamWaitValue32(s, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
		EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&none, most, &prop, 0));
		flag[0] = 1;
		CHECK(cuStreamSynchronize(s));
		CHECK(cuMemRelease(h));
	}
}

/* Results of queries by address: of reserved addresses, and of the mappings there. */
static void asked(void)
{
	CUfunction step;
	CUdeviceptr at, base;
	size_t size;
	int mapped, access;
	begin(&step);
	CHECK(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
	CUmemGenericAllocationHandle a = create(2 * PAGE);
	CHECK(cuMemMap(at + PAGE, 2 * PAGE, 0, a, 0));
	const struct {
		CUdeviceptr at;
		int mapped;
		CUmemAccess_flags access;
	} all[] = {
		{at + 5, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE}, {at + PAGE, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE},
		{at + 2 * PAGE + 7, 1, CU_MEM_ACCESS_FLAGS_PROT_READ}, {at + 2 * PAGE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{at + 3 * PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (all[i].mapped)
			allow(at + PAGE, 2 * PAGE, all[i].access);
		CUresult want = all[i].mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		EXPECT(want, cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, all[i].at));
		EXPECT(want, cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, all[i].at));
		EXPECT(want, cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, all[i].at));
		EXPECT(want, cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, all[i].at));
		CLAIM(!all[i].mapped || (mapped && access == (int)all[i].access && base == at && size == 64 * MIB));
		EXPECT(want, cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, all[i].at));
		EXPECT(want, cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, all[i].at));
		CLAIM(!all[i].mapped || (base == at + PAGE && size == 2 * PAGE));
		int allowed = all[i].access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
		EXPECT(allowed ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, all[i].at));
		CLAIM(!allowed || (base == at + PAGE && size == 2 * PAGE));
		CUpointer_attribute both[] = {CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
		void *to[] = {&mapped, &size};
		CHECK(cuPointerGetAttributes(2, both, to, all[i].at));
		CLAIM(mapped == all[i].mapped && size == (all[i].mapped ? 2 * PAGE : 0));
	}
}

/* --- memory words --- */

static void words(void)
{
	CUfunction step;
	CUdeviceptr at;
	CUstream a, b;
	volatile unsigned *host;
	unsigned word;
	uint64_t wide;
	CUcontext c = begin(&step);
	a = aside();
	b = aside();
	CHECK(cuMemAlloc(&at, 4096));
	CHECK(cuMemsetD32(at, 0, 1024));
	CHECK(cuMemAllocHost((void **)&host, 4096));
	memset((void *)host, 0, 4096);

	CHECK(cuStreamWaitValue32(a, at, 5, CU_STREAM_WAIT_VALUE_GEQ));
	CHECK(cuStreamWriteValue32(a, at + 4, 1, 0));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
	CHECK(cuStreamWriteValue32(b, at, 4, 0)); /* does not satisfy the wait */
	CHECK(cuStreamSynchronize(b));
	usleep(3000);
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
	launch_step(step, b, at, 1, 1); /* a kernel makes it 5 */
	CHECK(cuStreamSynchronize(a));
	CHECK(cuMemcpyDtoH(&word, at + 4, 4));
	CLAIM(word == 1);

	/* 64-bit words, written by the host's processor. */
	CHECK(cuStreamWaitValue64(a, (CUdeviceptr)(uintptr_t)host, (uint64_t)3 << 40, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuStreamWriteValue64(a, at + 8, (uint64_t)7 << 33, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
	*(volatile uint64_t *)host = (uint64_t)3 << 40;
	CHECK(cuStreamSynchronize(a));
	CHECK(cuMemcpyDtoH(&wide, at + 8, 8));
	CLAIM(wide == (uint64_t)7 << 33);

	/* Each condition: a satisfied one does not wait, another one waits for the write that satisfies it. */
	const struct {
		unsigned flags, value, not, then;
	} all[] = {
		{CU_STREAM_WAIT_VALUE_GEQ, 0x80000000, 0x7fffffff, 0x80000005}, {CU_STREAM_WAIT_VALUE_EQ, 9, 8, 9},
		{CU_STREAM_WAIT_VALUE_AND, 6, 9, 4}, {CU_STREAM_WAIT_VALUE_NOR, 0xffff0000, 0x0000ffff, 0x0000fffe},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		host[0] = all[i].not;
		CHECK(cuStreamWaitValue32(a, (CUdeviceptr)(uintptr_t)host, all[i].value, all[i].flags));
		usleep(2000);
		EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
		host[0] = all[i].then;
		CHECK(cuStreamSynchronize(a));
		CHECK(cuStreamWaitValue32(a, (CUdeviceptr)(uintptr_t)host, all[i].value, all[i].flags));
		CHECK(cuStreamSynchronize(a));
	}

	/* A handshake of two streams, many times. */
	CHECK(cuMemsetD32(at, 0, 2));
	CHECK(cuCtxSynchronize());
	for (unsigned i = 1; i <= 200; i++) {
		CUstreamBatchMemOpParams ping[2], pong[2];
		memset(ping, 0, sizeof ping);
		memset(pong, 0, sizeof pong);
		ping[0].operation = pong[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		ping[1].operation = pong[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
		ping[0].writeValue.address = pong[0].waitValue.address = at;
		ping[1].waitValue.address = pong[1].writeValue.address = at + 4;
		ping[0].writeValue.value = pong[0].waitValue.value = ping[1].waitValue.value = pong[1].writeValue.value = i;
		ping[1].waitValue.flags = pong[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
		CHECK(cuStreamBatchMemOp(a, 2, ping, 0));
		CHECK(cuStreamBatchMemOp(b, 2, pong, 0));
	}
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(&word, at + 4, 4));
	CLAIM(word == 200);

	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(a, at + 2, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue64(a, at + 4, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(a, 4096, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(a, at, 0, 4));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue32(a, at, 0, CU_STREAM_WAIT_VALUE_FLUSH));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(a, at, 0, 2));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(a, 257, NULL, 0));
	CHECK(cuCtxSynchronize());
	/* A wait that is never satisfied ends with its context. */
	CHECK(cuStreamWaitValue32(a, at, 12345, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuCtxDestroy(c));
}

/*
 * Work behind a wait cannot be waited for, so however much of it is queued, the write that ends the wait may be queued
 * behind it.
 */
static void behind(void)
{
	CUfunction step;
	CUdeviceptr at;
	unsigned word;
	begin(&step);
	CUstream a = aside(), b = aside();
	CHECK(cuMemAlloc(&at, 4096));
	CHECK(cuMemsetD32(at, 0, 1024));
	CHECK(cuStreamWaitValue32(a, at, 1, CU_STREAM_WAIT_VALUE_EQ));
	for (int i = 0; i < 2000; i++)
		launch_step(step, a, at + 4, 1, 1);
	CHECK(cuStreamWriteValue32(b, at, 1, 0));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(&word, at + 4, 4));
	CLAIM(word == 2000);
}

/* Destroying a context waits for no other context's work. */
static void apart(void)
{
	CUfunction step;
	CUcontext one = begin(&step), other;
	volatile unsigned *flag;
	void *pinned;
	CUstream s = aside();
	CHECK(cuMemAllocHost((void **)&flag, 4096));
	flag[0] = 0;
	CHECK(cuStreamWaitValue32(s, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuCtxCreate(&other, 0, 0));
	CHECK(cuMemAllocHost(&pinned, 4096));
	CHECK(cuCtxDestroy(other));
	flag[0] = 1;
	CHECK(cuCtxSetCurrent(one));
	CHECK(cuStreamSynchronize(s));
}

/* --- batches --- */

static void batches(void)
{
	CUfunction step;
	CUdeviceptr at, managed;
	CUstream s;
	unsigned from[4] = {1, 2, 3, 4}, to[4] = {0};
	size_t failed = 0;
	begin(&step);
	s = aside();
	CHECK(cuMemAlloc(&at, 4096));
	CUdeviceptr dsts[] = {at, at + 8, at + 16}, srcs[] = {(CUdeviceptr)(uintptr_t)from, (CUdeviceptr)(uintptr_t)(from + 2), at};
	size_t sizes[] = {8, 8, 16}, first = 0;
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	CHECK(cuMemcpyBatchAsync(dsts, srcs, sizes, 3, &attributes, &first, 1, &failed, s));
	CHECK(cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 3, &attributes, &first, 1, s));
	CHECK(cuStreamSynchronize(s));
	CHECK(cuMemcpyDtoH(to, at + 16, 16));
	CLAIM(memcmp(from, to, sizeof to) == 0);
	srcs[1] = at + 5000;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(dsts, srcs, sizes, 3, &attributes, &first, 1, &failed, s));
	CLAIM(failed == 1);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(dsts, srcs, sizes, 3, &attributes, &first, 1, &failed, NULL));
	CLAIM(failed == SIZE_MAX);
	attributes.srcAccessOrder = 0;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyWithAttributesAsync(at, at + 64, 4, &attributes, s));
	CUDA_MEMCPY3D_BATCH_OP op = {
		.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = (CUdeviceptr)(uintptr_t)from, .rowLength = 8}},
		.dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = at + 64, .rowLength = 4}},
		.extent = {4, 2, 1}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
	};
	CHECK(cuMemcpy3DBatchAsync(1, &op, &failed, 0, s));
	CHECK(cuStreamSynchronize(s));
	CHECK(cuMemcpyDtoH(to, at + 64, 8));
	CLAIM(to[0] == 1 && to[1] == 3);
	/* Through an array: its extents are in elements. */
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR d = {.Width = 4, .Height = 1, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
	CHECK(cuArrayCreate(&array, &d));
	CUDA_MEMCPY3D_BATCH_OP there = {
		.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = (CUdeviceptr)(uintptr_t)from}},
		.dst = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .op.array = {.array = array, .offset = {1, 0, 0}}},
		.extent = {3, 1, 1}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	}, back = {
		.src = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .op.array = {.array = array, .offset = {2, 0, 0}}},
		.dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = (CUdeviceptr)(uintptr_t)to}},
		.extent = {2, 1, 1}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};
	CHECK(cuMemcpy3DBatchAsync_v2(1, &there, 0, s));
	CHECK(cuMemcpy3DWithAttributesAsync(&back, 0, s));
	CHECK(cuStreamSynchronize(s));
	CLAIM(to[0] == 2 && to[1] == 3);
	int can;
	CHECK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
	CLAIM(can == 1);
	CHECK(cuMemAllocManaged(&managed, 8192, CU_MEM_ATTACH_GLOBAL));
	CUdeviceptr parts[] = {managed, managed + 4096};
	size_t each[] = {4096, 4096};
	CUmemLocation where = here;
	CHECK(cuMemPrefetchBatchAsync(parts, each, 2, &where, &first, 1, 0, s));
	CHECK(cuMemDiscardBatchAsync(parts, each, 2, 0, s));
	CHECK(cuMemDiscardAndPrefetchBatchAsync(parts, each, 2, &where, &first, 1, 0, s));
	parts[1] = at;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(parts, each, 2, 0, s));
}

/* Sources that must have been read on return have been, whatever their stream waits for. */
static void ephemeral(void)
{
	enum { WORDS = 4096 };
	CUfunction step;
	CUmodule m;
	CUdeviceptr at, other;
	volatile unsigned *flag;
	unsigned *pinned, steps = 5000000, word[3];
	size_t first[] = {0, 1};
	CUmemcpyAttributes attributes[] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}, {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL}};
	begin(&step);
	CUstream s = aside(), beside = aside();
	CHECK(cuMemAlloc(&at, 16 * WORDS));
	CHECK(cuMemAlloc(&other, 4 * WORDS));
	CHECK(cuMemAllocHost((void **)&flag, 4096));
	CHECK(cuMemAllocHost((void **)&pinned, 4 * WORDS));
	flag[0] = 0;
	for (int i = 0; i < WORDS; i++)
		pinned[i] = 7;
	CHECK(cuStreamWaitValue32(s, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuMemcpyWithAttributesAsync(at, (CUdeviceptr)(uintptr_t)pinned, 4 * WORDS, &attributes[1], s));
	CUdeviceptr dsts[] = {at + 4 * WORDS, at + 8 * WORDS}, srcs[] = {(CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)pinned};
	size_t sizes[] = {4 * WORDS, 4};
	CHECK(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, first, 2, NULL, s));
	CUDA_MEMCPY3D_BATCH_OP op = {
		.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = (CUdeviceptr)(uintptr_t)(pinned + 1), .rowLength = 64}},
		.dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = at + 12 * WORDS}},
		.extent = {32, 4, 1}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
	};
	CHECK(cuMemcpy3DBatchAsync(1, &op, NULL, 0, s));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	for (int i = 0; i < WORDS; i++)
		pinned[i] = 9;
	flag[0] = 1;
	CHECK(cuStreamSynchronize(s));
	CHECK(cuMemcpyDtoH(&word[0], at + 4 * WORDS - 4, 4));
	CHECK(cuMemcpyDtoH(&word[1], at + 8 * WORDS, 4));
	CHECK(cuMemcpyDtoH(&word[2], at + 12 * WORDS + 124, 4));
	CLAIM(word[0] == 7 && word[1] == 7 && word[2] == 7);
	CHECK(cuMemcpyDtoH(&word[0], at + 4 * WORDS, 4));
	CLAIM(word[0] == 9); /* in stream order */

	/* The same for memory that only the device can access. */
	CUfunction spin;
	void *args[] = {&steps};
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&spin, m, "spin"));
	CHECK(cuMemsetD32(other, 5, WORDS));
	CHECK(cuCtxSynchronize());
	CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	CHECK(cuMemcpyWithAttributesAsync(at, other, 4 * WORDS, &attributes[1], s));
	CHECK(cuMemsetD32Async(other, 6, WORDS, beside));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(&word[0], at + 4 * WORDS - 4, 4));
	CLAIM(word[0] == 5);
}

/* --- events of a whole context --- */

static void contexts(void)
{
	CUfunction step;
	CUdeviceptr at;
	CUcontext c = begin(&step), d;
	CUstream a = aside(), b = aside(), orderly, later;
	CUevent e;
	volatile unsigned *host;
	unsigned word;
	CHECK(cuStreamCreate(&orderly, 0));
	CHECK(cuMemAlloc(&at, 4096));
	CHECK(cuMemAllocHost((void **)&host, 4096));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CUstream all[] = {a, b, orderly};
	for (int i = 0; i < 3; i++) { /* whichever stream is blocked, the event is */
		host[0] = 0;
		CHECK(cuStreamWaitValue32(all[i], (CUdeviceptr)(uintptr_t)host, 1, CU_STREAM_WAIT_VALUE_EQ));
		CHECK(cuCtxRecordEvent(c, e));
		usleep(3000);
		EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
		host[0] = 1;
		CHECK(cuEventSynchronize(e));
	}
	host[0] = 0;
	CHECK(cuStreamWaitValue32(a, (CUdeviceptr)(uintptr_t)host, 1, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuEventRecord(e, a));
	CHECK(cuCtxWaitEvent(c, e));
	CHECK(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemsetD32Async(at, 1, 1, b));
	CHECK(cuMemsetD32Async(at + 4, 2, 1, orderly));
	CHECK(cuMemsetD32Async(at + 8, 3, 1, later));
	CUstream held[] = {b, orderly, later, NULL};
	usleep(3000);
	for (int i = 0; i < 4; i++)
		EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(held[i]));
	host[0] = 1;
	CHECK(cuCtxSynchronize());
	for (unsigned i = 0; i < 3; i++) {
		CHECK(cuMemcpyDtoH(&word, at + 4 * i, 4));
		CLAIM(word == i + 1);
	}
	CHECK(cuCtxCreate(&d, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent(d, e));
	CHECK(cuCtxWaitEvent(d, e));
	CHECK(cuCtxDestroy(d));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent(c, NULL));
}

/*
 * Recording and waiting for an event of a whole context fails while one of its streams captures, and invalidates the
 * capture; so does a wait of another context for a captured event.
 */
static void capturing(void)
{
	CUfunction step;
	CUgraph g;
	CUcontext c = begin(&step), d;
	CUstream a = aside(), orderly;
	CUevent e, in;
	CHECK(cuStreamCreate(&orderly, 0));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&in, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(e, a));
	CUstream all[] = {a, orderly};
	for (int i = 0; i < 2; i++) {
		CHECK(cuStreamBeginCapture(all[i], CU_STREAM_CAPTURE_MODE_RELAXED));
		EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxRecordEvent(c, e));
		EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(all[i], &g));
		CHECK(cuStreamBeginCapture(all[i], CU_STREAM_CAPTURE_MODE_RELAXED));
		EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxWaitEvent(c, e));
		EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(all[i], &g));
	}
	CHECK(cuCtxCreate(&d, 0, 0)); /* another context may wait for an event that is not captured */
	CHECK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(cuCtxWaitEvent(d, e));
	CHECK(cuEventRecord(in, a));
	EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuCtxWaitEvent(d, in));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &g));
	CHECK(cuCtxRecordEvent(c, e));
	CHECK(cuEventSynchronize(e));
}

static const struct {
	const char *name;
	void (*run)(void);
	int uninitialized;
} parts[] = {
	{"seam", seam, 0}, {"reading", reading, 0}, {"lessened", lessened, 0}, {"torn", torn, 0}, {"wrong", wrong, 0}, {"given", given, 1}, {"many", many, 0}, {"words", words, 0}, {"batches", batches, 0},
	{"contexts", contexts, 0}, {"asked", asked, 0}, {"ephemeral", ephemeral, 0}, {"capturing", capturing, 0},
	{"starved", starved, 0}, {"behind", behind, 0}, {"apart", apart, 0},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++) {
		if (strcmp(parts[i].name, argv[1]) != 0)
			continue;
		alarm(300); /* on a slow and busy machine */
		if (!parts[i].uninitialized)
			CHECK(cuInit(0));
		parts[i].run();
		return 0;
	}
	fprintf(stderr, "usage: %s NAME\n", argv[0]);
	return 2;
}
