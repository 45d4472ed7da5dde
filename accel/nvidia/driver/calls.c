#include "calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POINTER(name, params, args) __typeof__(&name) name;
static struct {
	void *handle;
	BARE(POINTER)
	IN_CONTEXT(POINTER)
} driver;

#define BARE_CALL(name, params, args) \
	CUresult call_##name params { return driver.name ? driver.name args : CUDA_ERROR_NOT_SUPPORTED; }
#define CONTEXT_CALL(name, params, args) \
	CUresult call_##name params \
	{ \
		if (!driver.name) \
			return CUDA_ERROR_NOT_SUPPORTED; \
		CUresult r = driver.cuCtxSetCurrent(c); \
		return r == CUDA_SUCCESS ? driver.name args : r; \
	}
BARE(BARE_CALL)
IN_CONTEXT(CONTEXT_CALL)

const char *load_driver(const char *path)
{
	if (driver.handle)
		return NULL;
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return dlerror();
#define FIND(name, params, args) *(void **)&driver.name = dlsym(handle, #name);
	BARE(FIND)
	IN_CONTEXT(FIND)
	if (!driver.cuInit || !driver.cuCtxCreate_v2 || !driver.cuCtxSetCurrent || !driver.cuLaunchKernel)
		return "it is no CUDA driver: cuInit, cuCtxCreate_v2, cuCtxSetCurrent or cuLaunchKernel is missing";
	driver.handle = handle;
	setvbuf(stdout, NULL, _IONBF, 0); /* device printf output is passed on without buffering */
	return NULL;
}

int driver_has(const char *name) { return driver.handle && dlsym(driver.handle, name); }

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

CUresult poll_event(CUcontext c, CUevent e, long long ns)
{
	CUresult r;
	long long end = now() + ns;
	while ((r = call_cuEventQuery(c, e)) == CUDA_ERROR_NOT_READY && now() < end)
		for (int i = 0; i < 20; i++) /* a query holds a lock of the driver that submitting threads need */
			__builtin_ia32_pause();
	return r;
}

CUresult await_event(CUcontext c, CUevent base, CUevent begin, CUevent end, float *began, float *ended)
{
	CUresult r = call_cuEventSynchronize(c, end);
	if (r != CUDA_SUCCESS || !base)
		return r;
	if (begin)
		r = call_cuEventElapsedTime(c, began, base, begin);
	return r == CUDA_SUCCESS ? call_cuEventElapsedTime(c, ended, base, end) : r;
}

static CUresult launch_clusters(CUcontext c, CUfunction f, const unsigned g[3], const unsigned b[3], const unsigned n[3], unsigned shared, CUstream s,
	int cooperative, void **extra)
{
	CUlaunchAttribute a[] = {
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {n[0], n[1], n[2]}}, {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1},
	};
	const CUlaunchConfig config = {
		.gridDimX = g[0], .gridDimY = g[1], .gridDimZ = g[2], .blockDimX = b[0], .blockDimY = b[1], .blockDimZ = b[2], .sharedMemBytes = shared,
		.hStream = s, .attrs = a, .numAttrs = cooperative ? 2 : 1,
	};
	return call_cuLaunchKernelEx(c, &config, f, NULL, extra);
}

CUresult launch(CUcontext c, CUfunction f, const unsigned g[3], const unsigned b[3], const unsigned cluster[3], unsigned shared, CUstream s, int cooperative,
	char *params, size_t bytes, const unsigned *offsets, unsigned count)
{
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	if (cluster[0])
		return launch_clusters(c, f, g, b, cluster, shared, s, cooperative, bytes ? extra : NULL);
	if (!cooperative) {
		return call_cuLaunchKernel(c, f, g[0], g[1], g[2], b[0], b[1], b[2], shared, s, NULL, bytes ? extra : NULL);
	}
	void **each = malloc((count + 1) * sizeof *each);
	if (!each)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < count; i++)
		each[i] = params + offsets[i];
	CUresult r = call_cuLaunchCooperativeKernel(c, f, g[0], g[1], g[2], b[0], b[1], b[2], shared, s, each);
	free(each);
	return r;
}

CUresult captured(CUcontext c, CUstream s, CUgraph *g, CUgraphNode *last)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *after = NULL;
	size_t n = 0;
	CUresult r = call_cuStreamGetCaptureInfo_v2(c, s, &status, NULL, g, &after, &n);
	if (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r == CUDA_SUCCESS)
		*last = n == 1 ? after[0] : NULL;
	return r;
}

static void futex(unsigned *word, int op, unsigned value) { syscall(SYS_futex, word, op, value, NULL, NULL, 0); }

static void CUDA_CB hold(void *data)
{
	unsigned *word = data;
	while (atomic_load((_Atomic unsigned *)word) == 0)
		futex(word, FUTEX_WAIT_PRIVATE, 0);
}

CUresult hold_stream(CUcontext c, CUstream s, unsigned *word) { return call_cuLaunchHostFunc(c, s, hold, word); }

void release_word(unsigned *word)
{
	atomic_store((_Atomic unsigned *)word, 1);
	futex(word, FUTEX_WAKE_PRIVATE, 1);
}

static void *number(unsigned n) { return (void *)(uintptr_t)n; }

CUresult load_module(CUcontext c, CUmodule *m, const void *image, char *log, unsigned logBytes)
{
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, number(logBytes)};
	return call_cuModuleLoadDataEx(c, m, image, 2, options, values);
}

CUresult begin_link(CUcontext c, CUlinkState *l, struct link_log *log)
{
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	log->values[0] = log->text;
	log->values[1] = number(sizeof log->text - 1);
	return call_cuLinkCreate_v2(c, sizeof options / sizeof *options, options, log->values, l);
}

static int shareable;

void make_shareable(int yes) { shareable = yes; }

static CUmemAllocationProp on_device(CUdevice d)
{
	CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	if (shareable)
		p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	p.location.id = d;
	return p;
}

CUresult device_granularity(CUcontext c, CUdevice d, size_t *bytes)
{
	CUmemAllocationProp p = on_device(d);
	return call_cuMemGetAllocationGranularity(c, bytes, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

CUresult create_memory(CUcontext c, CUdevice d, size_t bytes, CUmemGenericAllocationHandle *h)
{
	CUmemAllocationProp p = on_device(d);
	CUresult r = call_cuMemCreate(c, h, bytes, &p, 0);
	if (r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY && shareable) { /* the driver reports more support than it has: create memory that can't be exported */
		p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
		r = call_cuMemCreate(c, h, bytes, &p, 0);
	}
	return r;
}

CUresult set_access(CUcontext c, CUdevice d, CUdeviceptr at, size_t bytes, unsigned flags)
{
	CUmemAccessDesc access = {.location = on_device(d).location, .flags = (CUmemAccess_flags)flags};
	return call_cuMemSetAccess(c, at, bytes, &access, 1);
}

CUresult map_memory(CUcontext c, CUdevice d, CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle *h)
{
	CUresult r = create_memory(c, d, bytes, h);
	if (r != CUDA_SUCCESS)
		return r;
	r = call_cuMemMap(c, at, bytes, 0, *h, 0);
	if (r == CUDA_SUCCESS) {
		r = set_access(c, d, at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		if (r == CUDA_SUCCESS)
			return r;
		call_cuMemUnmap(c, at, bytes);
	}
	call_cuMemRelease(c, *h);
	return r;
}

CUresult import_memory(CUcontext c, CUmemGenericAllocationHandle *h, int fd)
{
	return call_cuMemImportFromShareableHandle(c, h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static size_t element_bytes(const struct texture *t)
{
	return t->channels * (t->format == CU_AD_FORMAT_UNSIGNED_INT8 || t->format == CU_AD_FORMAT_SIGNED_INT8 ? 1
		: t->format == CU_AD_FORMAT_UNSIGNED_INT32 || t->format == CU_AD_FORMAT_SIGNED_INT32 || t->format == CU_AD_FORMAT_FLOAT ? 4 : 2);
}

CUresult make_texture(CUcontext c, const struct texture *t, int surface, unsigned long long *handle)
{
	CUDA_RESOURCE_DESC d = {.resType = CU_RESOURCE_TYPE_ARRAY};
	if (t->array) {
		d.res.array.hArray = t->array;
	} else if (t->pitch) {
		d.resType = CU_RESOURCE_TYPE_PITCH2D;
		d.res.pitch2D.devPtr = t->at;
		d.res.pitch2D.format = (CUarray_format)t->format;
		d.res.pitch2D.numChannels = t->channels;
		d.res.pitch2D.width = t->width;
		d.res.pitch2D.height = t->height;
		d.res.pitch2D.pitchInBytes = t->pitch;
	} else {
		d.resType = CU_RESOURCE_TYPE_LINEAR;
		d.res.linear.devPtr = t->at;
		d.res.linear.format = (CUarray_format)t->format;
		d.res.linear.numChannels = t->channels;
		if (__builtin_mul_overflow(t->width, element_bytes(t), &d.res.linear.sizeInBytes))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return surface ? call_cuSurfObjectCreate(c, handle, &d) : call_cuTexObjectCreate(c, handle, &d, &t->as, NULL);
}

CUresult tensor_map(CUcontext c, const struct tensor *t, unsigned long long map[16])
{
	CUtensorMap m;
	_Static_assert(sizeof m.opaque == sizeof t->old && sizeof(cuuint64_t) == sizeof *map, "a description is as long as it is");
	memcpy(m.opaque, t->old, sizeof m.opaque);
	void *at = (void *)(uintptr_t)t->address;
	cuuint64_t dims[5], strides[4];
	memcpy(dims, t->dims, sizeof dims);
	memcpy(strides, t->strides, sizeof strides);
	CUresult r;
	switch (t->form) {
	case 0:
		r = call_cuTensorMapEncodeTiled(c, &m, (CUtensorMapDataType)t->type, t->rank, at, dims, strides, t->box, t->steps, (CUtensorMapInterleave)t->interleave,
			(CUtensorMapSwizzle)t->swizzle, (CUtensorMapL2promotion)t->promotion, (CUtensorMapFloatOOBfill)t->fill);
		break;
	case 1:
		r = call_cuTensorMapEncodeIm2col(c, &m, (CUtensorMapDataType)t->type, t->rank, at, dims, strides, t->lower, t->upper, t->channels, t->pixels, t->steps,
			(CUtensorMapInterleave)t->interleave, (CUtensorMapSwizzle)t->swizzle, (CUtensorMapL2promotion)t->promotion, (CUtensorMapFloatOOBfill)t->fill);
		break;
	default:
		r = call_cuTensorMapReplaceAddress(c, &m, at);
	}
	memcpy(map, m.opaque, sizeof m.opaque);
	return r;
}
