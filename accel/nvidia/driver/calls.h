/*
 * The driver's functions that are used, each once: the parameters of its wrapper
 * for Go, and the arguments that the driver's function gets. Wrappers IN_CONTEXT
 * take a context first and make it current on the calling thread, as goroutines
 * move between threads. They set it every time, since that costs a few nanoseconds,
 * while a handle cached per thread may have been reused by another context.
 *
 * The wrapper of a function that the driver lacks returns CUDA_ERROR_NOT_SUPPORTED.
 */
#ifndef PEGASUS_NVIDIA_CALLS_H
#define PEGASUS_NVIDIA_CALLS_H

#define __CUDA_API_VERSION_INTERNAL /* every name stands for the symbol of that name */
#include "cuda.h"

#define BARE(X) \
	X(cuInit, (unsigned flags), (flags)) \
	X(cuDriverGetVersion, (int *version), (version)) \
	X(cuDeviceGetCount, (int *count), (count)) \
	X(cuDeviceGet, (CUdevice *d, int index), (d, index)) \
	X(cuDeviceGetName, (char *name, int bytes, CUdevice d), (name, bytes, d)) \
	X(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice d), (uuid, d)) \
	X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice d), (bytes, d)) \
	X(cuDeviceGetPCIBusId, (char *id, int bytes, CUdevice d), (id, bytes, d)) \
	X(cuDeviceGetAttribute, (int *value, CUdevice_attribute a, CUdevice d), (value, a, d)) \
	X(cuCtxCreate_v2, (CUcontext *c, unsigned flags, CUdevice d), (c, flags, d)) \
	X(cuCtxSetCurrent, (CUcontext c), (c)) \
	X(cuCtxDestroy_v2, (CUcontext c), (c))

#define IN_CONTEXT(X) \
	X(cuCtxSetLimit, (CUcontext c, CUlimit limit, size_t value), (limit, value)) \
	X(cuCtxGetLimit, (CUcontext c, size_t *value, CUlimit limit), (value, limit)) \
	X(cuMemGetInfo_v2, (CUcontext c, size_t *left, size_t *total), (left, total)) \
	X(cuMemAlloc_v2, (CUcontext c, CUdeviceptr *at, size_t bytes), (at, bytes)) \
	X(cuMemFree_v2, (CUcontext c, CUdeviceptr at), (at)) \
	X(cuMemHostAlloc, (CUcontext c, void **at, size_t bytes, unsigned flags), (at, bytes, flags)) \
	X(cuMemFreeHost, (CUcontext c, void *at), (at)) \
	X(cuMemHostRegister_v2, (CUcontext c, void *at, size_t bytes, unsigned flags), (at, bytes, flags)) \
	X(cuMemHostUnregister, (CUcontext c, void *at), (at)) \
	X(cuMemHostGetDevicePointer_v2, (CUcontext c, CUdeviceptr *to, void *at, unsigned flags), (to, at, flags)) \
	X(cuMemAddressReserve, (CUcontext c, CUdeviceptr *at, size_t bytes, size_t align, CUdeviceptr wish, unsigned long long flags), \
		(at, bytes, align, wish, flags)) \
	X(cuMemAddressFree, (CUcontext c, CUdeviceptr at, size_t bytes), (at, bytes)) \
	X(cuMemMap, (CUcontext c, CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags), \
		(at, bytes, offset, h, flags)) \
	X(cuMemUnmap, (CUcontext c, CUdeviceptr at, size_t bytes), (at, bytes)) \
	X(cuMemRelease, (CUcontext c, CUmemGenericAllocationHandle h), (h)) \
	X(cuMemGetAllocationGranularity, (CUcontext c, size_t *bytes, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags o), \
		(bytes, p, o)) \
	X(cuMemCreate, (CUcontext c, CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *p, unsigned long long flags), \
		(h, bytes, p, flags)) \
	X(cuTensorMapEncodeTiled, (CUcontext c, CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank, void *at, const cuuint64_t *dims, const cuuint64_t *strides, \
		const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave i, CUtensorMapSwizzle s, CUtensorMapL2promotion p, CUtensorMapFloatOOBfill f), \
		(m, type, rank, at, dims, strides, box, steps, i, s, p, f)) \
	X(cuTensorMapEncodeIm2col, (CUcontext c, CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank, void *at, const cuuint64_t *dims, const cuuint64_t *strides, \
		const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave i, CUtensorMapSwizzle s, \
		CUtensorMapL2promotion p, CUtensorMapFloatOOBfill f), (m, type, rank, at, dims, strides, lower, upper, channels, pixels, steps, i, s, p, f)) \
	X(cuTensorMapReplaceAddress, (CUcontext c, CUtensorMap *m, void *at), (m, at)) \
	X(cuLaunchKernelEx, (CUcontext c, const CUlaunchConfig *config, CUfunction f, void **params, void **extra), (config, f, params, extra)) \
	X(cuMemExportToShareableHandle, (CUcontext c, void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type, unsigned long long flags), \
		(out, h, type, flags)) \
	X(cuMemImportFromShareableHandle, (CUcontext c, CUmemGenericAllocationHandle *h, void *from, CUmemAllocationHandleType type), (h, from, type)) \
	X(cuMemSetAccess, (CUcontext c, CUdeviceptr at, size_t bytes, const CUmemAccessDesc *a, size_t count), (at, bytes, a, count)) \
	X(cuMemcpyHtoDAsync_v2, (CUcontext c, CUdeviceptr to, const void *from, size_t bytes, CUstream s), (to, from, bytes, s)) \
	X(cuMemcpyDtoHAsync_v2, (CUcontext c, void *to, CUdeviceptr from, size_t bytes, CUstream s), (to, from, bytes, s)) \
	X(cuMemcpyDtoDAsync_v2, (CUcontext c, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s), (to, from, bytes, s)) \
	X(cuMemcpy3DAsync_v2, (CUcontext c, const CUDA_MEMCPY3D *copy, CUstream s), (copy, s)) \
	X(cuMemsetD8Async, (CUcontext c, CUdeviceptr at, unsigned char v, size_t n, CUstream s), (at, v, n, s)) \
	X(cuMemsetD16Async, (CUcontext c, CUdeviceptr at, unsigned short v, size_t n, CUstream s), (at, v, n, s)) \
	X(cuMemsetD32Async, (CUcontext c, CUdeviceptr at, unsigned v, size_t n, CUstream s), (at, v, n, s)) \
	X(cuMemsetD2D8Async, (CUcontext c, CUdeviceptr at, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s), (at, pitch, v, w, h, s)) \
	X(cuMemsetD2D16Async, (CUcontext c, CUdeviceptr at, size_t pitch, unsigned short v, size_t w, size_t h, CUstream s), (at, pitch, v, w, h, s)) \
	X(cuMemsetD2D32Async, (CUcontext c, CUdeviceptr at, size_t pitch, unsigned v, size_t w, size_t h, CUstream s), (at, pitch, v, w, h, s)) \
	X(cuArray3DCreate_v2, (CUcontext c, CUarray *a, const CUDA_ARRAY3D_DESCRIPTOR *d), (a, d)) \
	X(cuArrayDestroy, (CUcontext c, CUarray a), (a)) \
	X(cuTexObjectCreate, (CUcontext c, CUtexObject *t, const CUDA_RESOURCE_DESC *d, const CUDA_TEXTURE_DESC *as, const CUDA_RESOURCE_VIEW_DESC *v), \
		(t, d, as, v)) \
	X(cuTexObjectDestroy, (CUcontext c, CUtexObject t), (t)) \
	X(cuSurfObjectCreate, (CUcontext c, CUsurfObject *s, const CUDA_RESOURCE_DESC *d), (s, d)) \
	X(cuSurfObjectDestroy, (CUcontext c, CUsurfObject s), (s)) \
	X(cuLinkCreate_v2, (CUcontext c, unsigned n, CUjit_option *o, void **values, CUlinkState *l), (n, o, values, l)) \
	X(cuLinkAddData_v2, \
		(CUcontext c, CUlinkState l, CUjitInputType t, void *data, size_t bytes, const char *name, unsigned n, CUjit_option *o, void **values), \
		(l, t, data, bytes, name, n, o, values)) \
	X(cuLinkComplete, (CUcontext c, CUlinkState l, void **image, size_t *bytes), (l, image, bytes)) \
	X(cuLinkDestroy, (CUcontext c, CUlinkState l), (l)) \
	X(cuModuleLoadDataEx, (CUcontext c, CUmodule *m, const void *image, unsigned n, CUjit_option *o, void **values), (m, image, n, o, values)) \
	X(cuModuleUnload, (CUcontext c, CUmodule m), (m)) \
	X(cuModuleGetFunctionCount, (CUcontext c, unsigned *n, CUmodule m), (n, m)) \
	X(cuModuleEnumerateFunctions, (CUcontext c, CUfunction *f, unsigned n, CUmodule m), (f, n, m)) \
	X(cuModuleGetFunction, (CUcontext c, CUfunction *f, CUmodule m, const char *name), (f, m, name)) \
	X(cuModuleGetGlobal_v2, (CUcontext c, CUdeviceptr *at, size_t *bytes, CUmodule m, const char *name), (at, bytes, m, name)) \
	X(cuFuncLoad, (CUcontext c, CUfunction f), (f)) \
	X(cuFuncGetName, (CUcontext c, const char **name, CUfunction f), (name, f)) \
	X(cuFuncGetParamInfo, (CUcontext c, CUfunction f, size_t i, size_t *offset, size_t *bytes), (f, i, offset, bytes)) \
	X(cuFuncGetAttribute, (CUcontext c, int *value, CUfunction_attribute a, CUfunction f), (value, a, f)) \
	X(cuFuncSetAttribute, (CUcontext c, CUfunction f, CUfunction_attribute a, int value), (f, a, value)) \
	X(cuLaunchKernel, \
		(CUcontext c, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, \
			void **params, void **extra), \
		(f, gx, gy, gz, bx, by, bz, shared, s, params, extra)) \
	X(cuLaunchCooperativeKernel, \
		(CUcontext c, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, \
			void **params), \
		(f, gx, gy, gz, bx, by, bz, shared, s, params)) \
	X(cuLaunchHostFunc, (CUcontext c, CUstream s, CUhostFn f, void *data), (s, f, data)) \
	X(cuStreamCreateWithPriority, (CUcontext c, CUstream *s, unsigned flags, int priority), (s, flags, priority)) \
	X(cuStreamDestroy_v2, (CUcontext c, CUstream s), (s)) \
	X(cuStreamSynchronize, (CUcontext c, CUstream s), (s)) \
	X(cuStreamWaitEvent, (CUcontext c, CUstream s, CUevent e, unsigned flags), (s, e, flags)) \
	X(cuStreamWaitValue32_v2, (CUcontext c, CUstream s, CUdeviceptr at, cuuint32_t v, unsigned flags), (s, at, v, flags)) \
	X(cuStreamWaitValue64_v2, (CUcontext c, CUstream s, CUdeviceptr at, cuuint64_t v, unsigned flags), (s, at, v, flags)) \
	X(cuStreamWriteValue32_v2, (CUcontext c, CUstream s, CUdeviceptr at, cuuint32_t v, unsigned flags), (s, at, v, flags)) \
	X(cuStreamWriteValue64_v2, (CUcontext c, CUstream s, CUdeviceptr at, cuuint64_t v, unsigned flags), (s, at, v, flags)) \
	X(cuStreamBeginCapture_v2, (CUcontext c, CUstream s, CUstreamCaptureMode m), (s, m)) \
	X(cuStreamEndCapture, (CUcontext c, CUstream s, CUgraph *g), (s, g)) \
	X(cuStreamGetCaptureInfo_v2, \
		(CUcontext c, CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *g, const CUgraphNode **after, size_t *n), \
		(s, status, id, g, after, n)) \
	X(cuStreamUpdateCaptureDependencies, (CUcontext c, CUstream s, CUgraphNode *after, size_t n, unsigned flags), (s, after, n, flags)) \
	X(cuGraphAddEmptyNode, (CUcontext c, CUgraphNode *added, CUgraph g, const CUgraphNode *after, size_t n), (added, g, after, n)) \
	X(cuGraphInstantiateWithFlags, (CUcontext c, CUgraphExec *e, CUgraph g, unsigned long long flags), (e, g, flags)) \
	X(cuGraphLaunch, (CUcontext c, CUgraphExec e, CUstream s), (e, s)) \
	X(cuGraphExecDestroy, (CUcontext c, CUgraphExec e), (e)) \
	X(cuGraphDestroy, (CUcontext c, CUgraph g), (g)) \
	X(cuEventCreate, (CUcontext c, CUevent *e, unsigned flags), (e, flags)) \
	X(cuEventDestroy_v2, (CUcontext c, CUevent e), (e)) \
	X(cuEventRecord, (CUcontext c, CUevent e, CUstream s), (e, s)) \
	X(cuEventQuery, (CUcontext c, CUevent e), (e)) \
	X(cuEventSynchronize, (CUcontext c, CUevent e), (e)) \
	X(cuEventElapsedTime, (CUcontext c, float *ms, CUevent from, CUevent to), (ms, from, to))

/* call_NAME calls the driver's NAME. */
#define DECLARE(name, params, args) CUresult call_##name params;
BARE(DECLARE)
IN_CONTEXT(DECLARE)
#undef DECLARE

/* Loads the library, in the first call only. Returns an error text, or NULL. */
const char *load_driver(const char *path);
/* Reports whether the driver has a function. */
int driver_has(const char *name);

/* Polls for up to ns nanoseconds whether an event has completed. */
CUresult poll_event(CUcontext c, CUevent e, long long ns);

/*
 * Blocks, asleep, until end has completed; then returns how long after base begin
 * (0: none) and end completed, in milliseconds.
 */
CUresult await_event(CUcontext c, CUevent base, CUevent begin, CUevent end, float *began, float *ended);

/* Launches a kernel with a block of count parameters at these offsets; a cluster width of 0 means no clusters. */
CUresult launch(CUcontext c, CUfunction f, const unsigned grid[3], const unsigned block[3], const unsigned cluster[3], unsigned shared, CUstream s, int cooperative,
	char *params, size_t bytes, const unsigned *offsets, unsigned count);

/* Returns the graph that a stream captures, and the single dependency of the next node, or NULL. */
CUresult captured(CUcontext c, CUstream s, CUgraph *g, CUgraphNode *last);

/* Holds a stream from within the driver until the word is not 0. */
CUresult hold_stream(CUcontext c, CUstream s, unsigned *word);
void release_word(unsigned *word);

/* Loads an image; log receives the driver's errors. */
CUresult load_module(CUcontext c, CUmodule *m, const void *image, char *log, unsigned logBytes);
/* Buffers that the driver writes while it links. They must not move until linking ends: the driver stores the log's length among the options' values. */
struct link_log {
	void *values[2];
	char text[8 << 10];
};
/* Creates a link state. */
CUresult begin_link(CUcontext c, CUlinkState *l, struct link_log *log);

/* The resource of a texture: an array, or with a pitch rows of memory, else one row; a surface always has an array. */
struct texture {
	CUarray array;
	CUdeviceptr at;
	size_t width, height, pitch;
	unsigned format, channels;
	CUDA_TEXTURE_DESC as;
};
CUresult make_texture(CUcontext c, const struct texture *t, int surface, unsigned long long *handle);

/* Physical memory of the device, mapped at a reserved address. */
CUresult device_granularity(CUcontext c, CUdevice d, size_t *bytes);
CUresult create_memory(CUcontext c, CUdevice d, size_t bytes, CUmemGenericAllocationHandle *h);
CUresult set_access(CUcontext c, CUdevice d, CUdeviceptr at, size_t bytes, unsigned flags);
CUresult map_memory(CUcontext c, CUdevice d, CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle *h);

/* The parameters of a tensor map: form 0 is tiled, 1 im2col, 2 the existing map old at another address. */
struct tensor {
	unsigned long long address, dims[5], strides[4], old[16];
	unsigned box[5], steps[5];
	int lower[3], upper[3];
	unsigned form, type, rank, interleave, swizzle, promotion, fill, channels, pixels;
};
CUresult tensor_map(CUcontext c, const struct tensor *t, unsigned long long map[16]);

/* Sets whether memory created from now on can be exported to other processes. */
void make_shareable(int yes);
CUresult import_memory(CUcontext c, CUmemGenericAllocationHandle *h, int fd);

#endif
