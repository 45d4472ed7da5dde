/*
 * A driver for tests that registers host memory, as NVIDIA's driver does and our library does not. It is loaded before
 * our library, and implements this with our library's functions. Memory that it creates contains bytes of other
 * processes. A call that a driver would refuse, or that would fail later, ends the process, and a line on stderr gives
 * the reason.
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

/* An operation fails if a file of its name exists in the folder of the variable PEGASUS_TEST_FAULTS. */
static int faulty(const char *what)
{
	const char *folder = getenv("PEGASUS_TEST_FAULTS");
	char path[4096];
	return folder && snprintf(path, sizeof path, "%s/%s", folder, what) < (int)sizeof path && access(path, F_OK) == 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice d)
{
	switch ((int)a) {
	case 19: /* can map host memory */
	case 41: /* unified addressing */
	case 91: /* registered memory by its own address */
	case 99: /* host register */
		*value = 1;
		return CUDA_SUCCESS;
	}
	return NEXT(cuDeviceGetAttribute)(value, a, d);
}

/* --- memory that is mapped --- */

EXPORT CUresult cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags o)
{
	if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		wrong("granularity of something else than device memory");
	return NEXT(cuMemGetAllocationGranularity)(n, p, o);
}

static struct { unsigned long long from, to; } mapped_before[4096];
static int mapped_count;

EXPORT CUresult cuInit(unsigned flags)
{
	FILE *f = mapped_count ? NULL : fopen("/proc/self/maps", "re");
	char line[4096];
	while (f && mapped_count < 4096 && fgets(line, sizeof line, f))
		if (sscanf(line, "%llx-%llx", &mapped_before[mapped_count].from, &mapped_before[mapped_count].to) == 2)
			mapped_count++;
	if (f)
		fclose(f);
	return NEXT(cuInit)(flags);
}

static int was_mapped(CUdeviceptr at, size_t n)
{
	for (int i = 0; i < mapped_count; i++)
		if (at < mapped_before[i].to && mapped_before[i].from < at + n)
			return 1;
	return 0;
}

/*
 * cuFuncLoad and cuModuleGetFunction load a function. Before that, queries of its limits of threads, constants and local
 * memory fail.
 */
static CUfunction loaded[4096];

static CUfunction *loaded_place(CUfunction f)
{
	size_t i = ((size_t)f >> 4) % 4096;
	while (loaded[i] && loaded[i] != f)
		i = (i + 1) % 4096;
	return &loaded[i];
}

EXPORT CUresult cuFuncLoad(CUfunction f)
{
	pthread_mutex_lock(&lock);
	*loaded_place(f) = f;
	pthread_mutex_unlock(&lock);
	return NEXT(cuFuncLoad)(f);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
	CUresult r = NEXT(cuModuleGetFunction)(f, m, name);
	return r == CUDA_SUCCESS ? cuFuncLoad(*f) : r;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute a, CUfunction f)
{
	pthread_mutex_lock(&lock);
	int is = *loaded_place(f) == f;
	pthread_mutex_unlock(&lock);
	if (!is && (a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK || a == CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES || a == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES))
		return CUDA_ERROR_FUNCTION_NOT_LOADED;
	return NEXT(cuFuncGetAttribute)(value, a, f);
}

static int reserved; /* ranges of addresses: each device of a test has one, and once more for a moment, to see whether there would be room */

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *at, size_t n, size_t align, CUdeviceptr wish, unsigned long long flags)
{
	if (n == 0 || n % PAGE || align || flags || wish % PAGE || reserved >= (wish ? 4 : 5))
		wrong("addresses reserved again and again, or not in pages");
	if (wish && was_mapped(wish, n))
		wrong("NVIDIA's driver never grants addresses that were mapped when it started");
	CUresult r = NEXT(cuMemAddressReserve)(at, n, align, wish, flags);
	reserved += r == CUDA_SUCCESS;
	return r;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr at, size_t n)
{
	if (NEXT(cuMemAddressFree)(at, n) != CUDA_SUCCESS)
		wrong("addresses given back that weren't reserved so, or where something is mapped");
	reserved--;
	return CUDA_SUCCESS;
}

#define MUST(call) \
	do { \
		if ((call) != CUDA_SUCCESS) \
			wrong(#call); \
	} while (0)

/* Others' bytes. */
static void soil(CUmemGenericAllocationHandle h, size_t n, CUmemLocation where)
{
	static CUcontext own;
	CUcontext before;
	CUdeviceptr at;
	const CUmemAccessDesc access = {.location = where, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	pthread_mutex_lock(&lock);
	if (own)
		MUST(NEXT(cuCtxPushCurrent_v2)(own));
	else
		MUST(NEXT(cuCtxCreate_v2)(&own, 0, 0));
	MUST(NEXT(cuMemAddressReserve)(&at, n, 0, 0, 0));
	MUST(NEXT(cuMemMap)(at, n, 0, h, 0));
	MUST(NEXT(cuMemSetAccess)(at, n, &access, 1));
	MUST(NEXT(cuMemsetD8_v2)(at, 0xdd, n));
	MUST(NEXT(cuCtxSynchronize)());
	MUST(NEXT(cuMemUnmap)(at, n));
	MUST(NEXT(cuMemAddressFree)(at, n));
	MUST(NEXT(cuCtxPopCurrent_v2)(&before));
	pthread_mutex_unlock(&lock);
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long flags)
{
	if (n == 0 || n % PAGE || flags || p->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		wrong("memory that is not of whole pages");
	if (faulty("create"))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = NEXT(cuMemCreate)(h, n, p, flags);
	if (r == CUDA_SUCCESS)
		soil(*h, n, p->location);
	return r;
}

EXPORT CUresult cuMemMap(CUdeviceptr at, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
	MUST(NEXT(cuMemMap)(at, n, offset, h, flags));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr at, size_t n, const CUmemAccessDesc *a, size_t count)
{
	MUST(NEXT(cuMemSetAccess)(at, n, a, count));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t n)
{
	if (faulty("unmap"))
		return CUDA_ERROR_NOT_PERMITTED;
	MUST(NEXT(cuMemUnmap)(at, n));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
	MUST(NEXT(cuMemRelease)(h));
	return CUDA_SUCCESS;
}

/* --- linking: outputs go where the options' values were, as long as it lasts --- */

static void **linking, *linkLog;

EXPORT CUresult cuLinkCreate_v2(unsigned n, CUjit_option *o, void **values, CUlinkState *l)
{
	CUresult r = NEXT(cuLinkCreate_v2)(n, o, values, l);
	linking = r == CUDA_SUCCESS && n > 0 ? values : NULL;
	linkLog = linking ? *linking : NULL;
	return r;
}

EXPORT CUresult cuLinkAddData_v2(CUlinkState l, CUjitInputType t, void *data, size_t bytes, const char *name, unsigned n, CUjit_option *o, void **values)
{
	if (linking && *(void *volatile *)linking != linkLog)
		wrong("the values of a link's options are gone before it has ended");
	return NEXT(cuLinkAddData_v2)(l, t, data, bytes, name, n, o, values);
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
	if (faulty("copy-in"))
		return CUDA_ERROR_NOT_PERMITTED;
	if (!ours(from))
		return NEXT(cuMemcpyHtoDAsync_v2)(to, from, n, s);
	char *by = pinned(n);
	CUresult r = queue(s, (struct job){by, from, n, 1, 1, 0, 0});
	return r == CUDA_SUCCESS ? NEXT(cuMemcpyHtoDAsync_v2)(to, by, n, s) : r;
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s)
{
	if (faulty("copy-out"))
		return CUDA_ERROR_NOT_PERMITTED;
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
