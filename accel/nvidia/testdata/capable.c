/*
 * A driver for tests that can what our own library can't and NVIDIA's can: memory
 * mapped at addresses of the caller's, streams that wait for a word, and host memory
 * that is registered. It stands before our library and plays these with what that
 * has. It is strict: what a driver would refuse, or what would go wrong later, ends
 * the process with a line that says why.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define EXPORT __attribute__((visibility("default")))
#define PAGE ((size_t)2 << 20)

static void wrong(const char *what)
{
	fprintf(stderr, "the driver was misused: %s\n", what);
	abort();
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice d)
{
	switch ((int)a) {
	case 19: /* can map host memory */
	case 41: /* unified addressing */
	case 91: /* registered memory by its own address */
	case 99: /* host register */
	case 102: /* virtual memory management */
	case 122: /* stream memory operations */
		*value = 1;
		return CUDA_SUCCESS;
	}
	return NEXT(cuDeviceGetAttribute)(value, a, d);
}

/* --- memory that is mapped: one allocation of a context of our own holds all addresses --- */

static CUcontext own;
static CUdeviceptr base;
static size_t bytes;
static struct mapping {
	CUdeviceptr at;
	size_t bytes;
	CUmemGenericAllocationHandle handle;
	int readable;
} mappings[4096];
static CUmemGenericAllocationHandle handles;

static struct mapping *mapped(CUdeviceptr at)
{
	for (size_t i = 0; i < sizeof mappings / sizeof *mappings; i++)
		if (mappings[i].at == at)
			return &mappings[i];
	return NULL;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags o)
{
	(void)o;
	if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		wrong("granularity of something else than device memory");
	*n = PAGE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *at, size_t n, size_t align, CUdeviceptr wish, unsigned long long flags)
{
	if (n == 0 || n % PAGE || align || flags || base || wish % PAGE)
		wrong("addresses reserved twice, or not in pages");
	CUcontext before;
	NEXT(cuCtxCreate_v2)(&own, 0, 0);
	CUresult r = NEXT(cuMemAlloc_v2)(&base, n);
	NEXT(cuCtxPopCurrent_v2)(&before);
	bytes = n;
	*at = base;
	return r;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr at, size_t n)
{
	if (at != base || n != bytes)
		wrong("other addresses given back than were reserved");
	for (size_t i = 0; i < sizeof mappings / sizeof *mappings; i++)
		if (mappings[i].bytes)
			wrong("addresses given back where something is mapped");
	base = 0;
	return NEXT(cuCtxDestroy_v2)(own);
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long flags)
{
	if (n == 0 || n % PAGE || flags || p->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		wrong("memory that is not of whole pages");
	pthread_mutex_lock(&lock);
	*h = ++handles;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr at, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
	pthread_mutex_lock(&lock);
	if (offset || flags || at < base || at - base > bytes || n > bytes - (at - base) || (at - base) % PAGE)
		wrong("mapped outside of what was reserved");
	for (size_t i = 0; i < sizeof mappings / sizeof *mappings; i++)
		if (mappings[i].bytes && at < mappings[i].at + mappings[i].bytes && mappings[i].at < at + n)
			wrong("mapped where something is already");
	struct mapping *m = mapped(0);
	*m = (struct mapping){at, n, h, 0};
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr at, size_t n, const CUmemAccessDesc *a, size_t count)
{
	pthread_mutex_lock(&lock);
	struct mapping *m = mapped(at);
	if (!m || m->bytes != n || count != 1 || a->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE || a->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		wrong("access to what isn't mapped");
	m->readable = 1;
	pthread_mutex_unlock(&lock);
	CUcontext before;
	NEXT(cuCtxPushCurrent_v2)(own);
	CUresult r = NEXT(cuMemsetD8_v2)(at, 0xdd, n); /* others' bytes */
	NEXT(cuCtxPopCurrent_v2)(&before);
	return r;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t n)
{
	pthread_mutex_lock(&lock);
	struct mapping *m = mapped(at);
	if (!m || m->bytes != n || !m->readable)
		wrong("unmapped what isn't mapped so");
	*m = (struct mapping){0};
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < sizeof mappings / sizeof *mappings; i++)
		if (mappings[i].bytes && mappings[i].handle == h)
			wrong("memory given back that is mapped");
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* --- streams that wait for a word: a host function looks at it --- */

struct look {
	volatile unsigned *word;
	unsigned value;
};

static void look(void *data)
{
	struct look *l = data;
	while ((int)(*l->word - l->value) < 0)
		usleep(50);
	free(l);
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
	if (flags != CU_STREAM_WAIT_VALUE_GEQ || at % 4)
		wrong("a wait for a word of another kind");
	struct look *l = malloc(sizeof *l);
	*l = (struct look){(volatile unsigned *)at, value};
	return NEXT(cuLaunchHostFunc)(s, look, l);
}

/* --- registered host memory: copies of it go by way of pinned memory, in the stream's order --- */

static char *registered;
static size_t registeredBytes;

static int ours(const void *p) { return registered && (const char *)p >= registered && (const char *)p < registered + registeredBytes; }

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	if (registered)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (flags != (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) || (size_t)p % 4096 || n % 4096)
		wrong("registered what is no whole pages");
	registered = p;
	registeredBytes = n;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostUnregister(void *p)
{
	if (p != registered)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	registered = NULL;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *p, unsigned flags)
{
	if (!ours(p))
		return NEXT(cuMemHostGetDevicePointer_v2)(to, p, flags);
	*to = (CUdeviceptr)p;
	return CUDA_SUCCESS;
}

struct job {
	char *to;
	const char *from;
	size_t width, height, depth, pitch, slice;
};

/* Copies rows that lie alike at both ends. */
static void carry(void *data)
{
	struct job *j = data;
	for (size_t z = 0; z < j->depth; z++)
		for (size_t y = 0; y < j->height; y++)
			memcpy(j->to + z * j->slice + y * j->pitch, j->from + z * j->slice + y * j->pitch, j->width);
	free(j);
}

static CUresult queue(CUstream s, struct job of)
{
	struct job *j = malloc(sizeof *j);
	*j = of;
	return NEXT(cuLaunchHostFunc)(s, carry, j);
}

static void *pinned(size_t n)
{
	void *p; /* is lost, as are all in this test's driver */
	if (NEXT(cuMemHostAlloc)(&p, n, 0) != CUDA_SUCCESS)
		wrong("there is no more pinned memory");
	return p;
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
	if (!ours(from))
		return NEXT(cuMemcpyHtoDAsync_v2)(to, from, n, s);
	char *by = pinned(n);
	CUresult r = queue(s, (struct job){by, from, n, 1, 1, 0, 0});
	return r == CUDA_SUCCESS ? NEXT(cuMemcpyHtoDAsync_v2)(to, by, n, s) : r;
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s)
{
	if (!ours(to))
		return NEXT(cuMemcpyDtoHAsync_v2)(to, from, n, s);
	char *by = pinned(n);
	CUresult r = NEXT(cuMemcpyDtoHAsync_v2)(by, from, n, s);
	return r == CUDA_SUCCESS ? queue(s, (struct job){to, by, n, 1, 1, 0, 0}) : r;
}

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *given, CUstream s)
{
	CUDA_MEMCPY3D c = *given;
	struct job j = {.width = c.WidthInBytes, .height = c.Height, .depth = c.Depth};
	if (c.srcMemoryType == CU_MEMORYTYPE_HOST && ours(c.srcHost)) {
		j.pitch = c.srcPitch;
		j.slice = c.srcPitch * c.srcHeight;
		char *by = pinned(j.slice * (j.depth - 1) + j.pitch * (j.height - 1) + j.width);
		j.to = by;
		j.from = c.srcHost;
		c.srcHost = by;
		CUresult r = queue(s, j);
		return r == CUDA_SUCCESS ? NEXT(cuMemcpy3DAsync_v2)(&c, s) : r;
	}
	if (c.dstMemoryType == CU_MEMORYTYPE_HOST && ours(c.dstHost)) {
		j.pitch = c.dstPitch;
		j.slice = c.dstPitch * c.dstHeight;
		char *by = pinned(j.slice * (j.depth - 1) + j.pitch * (j.height - 1) + j.width);
		j.to = c.dstHost;
		j.from = by;
		c.dstHost = by;
		CUresult r = NEXT(cuMemcpy3DAsync_v2)(&c, s);
		return r == CUDA_SUCCESS ? queue(s, j) : r;
	}
	return NEXT(cuMemcpy3DAsync_v2)(given, s);
}
