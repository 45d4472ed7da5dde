/* Properties of streams, memory and arrays that the CUDA runtime queries or relies on, one at a time: corners PART. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static CUcontext context;

#define PRIORITY ((CUstreamAttrID)CU_LAUNCH_ATTRIBUTE_PRIORITY)

/* --- streams --- */

static void attributes(void)
{
	CUstream s, other, of_other;
	CUstreamAttrValue v, got;
	CUcontext second;
	CHECK(cuStreamCreateWithPriority(&s, 0, -1));
	CHECK(cuStreamCreate(&other, 0));
	CHECK(cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	CLAIM(got.syncPolicy == CU_SYNC_POLICY_AUTO);
	v.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
	CHECK(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	memset(&v, 0, sizeof v);
	v.accessPolicyWindow = (CUaccessPolicyWindow){.num_bytes = 4096, .hitRatio = 0.5f, .hitProp = CU_ACCESS_PROPERTY_PERSISTING};
	CHECK(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	CHECK(cuStreamCopyAttributes(other, s));
	CHECK(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
	CLAIM(got.accessPolicyWindow.num_bytes == 4096 && got.accessPolicyWindow.hitProp == CU_ACCESS_PROPERTY_PERSISTING);
	CHECK(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	CLAIM(got.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);
	CHECK(cuStreamSynchronize(other));
	CHECK(cuStreamGetAttribute(s, PRIORITY, &got));
	CLAIM(got.priority == -1);
	CHECK(cuStreamSetAttribute(s, PRIORITY, &got));
	int priority = 0;
	got.priority = -2;
	CHECK(cuStreamSetAttribute(s, PRIORITY, &got));
	got.priority = 0;
	CHECK(cuStreamGetAttribute(s, PRIORITY, &got));
	CHECK(cuStreamGetPriority(s, &priority));
	CLAIM(got.priority == -2 && priority == -2);
	v.accessPolicyWindow.hitRatio = 1.5f;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	v.syncPolicy = (CUsynchronizationPolicy)9;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, (CUstreamAttrID)CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamGetAttribute((CUstream)77, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));

	/* The default streams have attributes of their own, too. */
	v.syncPolicy = CU_SYNC_POLICY_YIELD;
	CHECK(cuStreamSetAttribute(NULL, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	CHECK(cuStreamGetAttribute(CU_STREAM_LEGACY, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	CLAIM(got.syncPolicy == CU_SYNC_POLICY_YIELD);
	CHECK(cuStreamGetAttribute(CU_STREAM_PER_THREAD, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	CLAIM(got.syncPolicy == CU_SYNC_POLICY_AUTO);
	CHECK(cuStreamCopyAttributes(CU_STREAM_PER_THREAD, NULL));
	CHECK(cuStreamGetAttribute(CU_STREAM_PER_THREAD, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	CLAIM(got.syncPolicy == CU_SYNC_POLICY_YIELD);

	CHECK(cuCtxCreate(&second, 0, 0));
	CHECK(cuStreamCreate(&of_other, 0));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamCopyAttributes(of_other, s));
}

static void questions(void)
{
	CUstream s;
	CUcontext c, c2;
	CUgreenCtx green = (CUgreenCtx)&s;
	CUdevice device = 9;
	CUstreamCaptureStatus status = 9;
	cuuint64_t id = 5;
	size_t count = 6;
	CUgraph graph;
	const CUgraphNode *nodes;
	const CUgraphEdgeData *edges;
	unsigned flags;
	CHECK(cuStreamCreate(&s, 0));
	CHECK(cuStreamGetDevice(s, &device));
	CLAIM(device == 0);
	CHECK(cuStreamGetCtx_v2(s, &c, &green));
	CHECK(cuStreamGetCtx(s, &c2));
	/* In the reported CUDA, 12.4, that function has two parameters. */
	CLAIM(c == context && c2 == context && green == (CUgreenCtx)&s);
	CHECK(cuStreamGetCaptureInfo(s, &status, &id, NULL, NULL, NULL));
	CLAIM(status == CU_STREAM_CAPTURE_STATUS_NONE && id == 5);
	status = 9;
	CHECK(cuStreamGetCaptureInfo_v3(s, &status, &id, &graph, &nodes, &edges, &count));
	CLAIM(status == CU_STREAM_CAPTURE_STATUS_NONE && count == 6);
	CHECK(cuStreamGetCaptureInfo_v2_ptsz(NULL, &status, NULL, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamGetCaptureInfo(s, NULL, &id, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamGetDevice((CUstream)99, &device));

	CHECK(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC));
	CHECK(cuCtxGetFlags(&flags));
	CLAIM(flags == CU_CTX_SCHED_BLOCKING_SYNC);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxSetFlags(3));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxSetFlags(1 << 20));
	CHECK(cuStreamSynchronize(s));
	int active;
	CHECK(cuDevicePrimaryCtxRetain(&c, 0));
	CHECK(cuCtxSetCurrent(c));
	CHECK(cuCtxSetFlags(CU_CTX_SCHED_YIELD));
	CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CLAIM(flags == CU_CTX_SCHED_YIELD && active);
	CHECK(cuCtxSetCurrent(NULL));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetFlags(0));
}

/* --- memory --- */

static int asked(CUdeviceptr at, size_t n, CUmem_range_attribute what)
{
	int value = 12345;
	CHECK(cuMemRangeGetAttribute(&value, sizeof value, what, at, n));
	return value;
}

static void advice(void)
{
	enum { PAGE = 4096, N = 16 * PAGE };
	CUdeviceptr m, other, plain;
	int by[3], values[2];
	CHECK(cuMemAllocManaged(&m, N, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemAllocManaged(&other, N, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemAlloc(&plain, N));
	CLAIM(asked(m, N, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 0);
	CLAIM(asked(m, N, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == CU_DEVICE_INVALID);
	CLAIM(asked(m, N, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION) == CU_DEVICE_INVALID);

	CHECK(cuMemAdvise(m, N, CU_MEM_ADVISE_SET_READ_MOSTLY, 77)); /* the device doesn't matter */
	CHECK(cuMemAdvise(other, N, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	CLAIM(asked(m, N, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 1);
	CHECK(cuMemAdvise(m + 5 * PAGE + 7, 10, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
	CLAIM(asked(m, N, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 0);
	CLAIM(asked(m, 5 * PAGE, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 1);
	CLAIM(asked(m + 5 * PAGE, PAGE, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 0);
	CLAIM(asked(m + 6 * PAGE, 10 * PAGE, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 1);
	CLAIM(asked(m + 4 * PAGE, 1 + PAGE, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 0);

	CHECK(cuMemAdvise(m, 2 * PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
	CHECK(cuMemAdvise(m + 2 * PAGE, 2 * PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
	CLAIM(asked(m, 2 * PAGE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == 0);
	CLAIM(asked(m + 2 * PAGE, PAGE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == CU_DEVICE_CPU);
	CLAIM(asked(m, 4 * PAGE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == CU_DEVICE_INVALID);
	CLAIM(asked(m, PAGE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE) == CU_MEM_LOCATION_TYPE_DEVICE);
	CHECK(cuMemAdvise(m, N, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
	CLAIM(asked(m, PAGE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == CU_DEVICE_INVALID);
	CHECK(cuMemAdvise_v2(m, N, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}));
	CLAIM(asked(m, N, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE) == CU_MEM_LOCATION_TYPE_HOST_NUMA);

	CHECK(cuMemAdvise(m, N, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
	CHECK(cuMemAdvise(m, PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
	CHECK(cuMemRangeGetAttribute(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, N));
	CLAIM(by[0] == 0 && by[1] == CU_DEVICE_INVALID && by[2] == CU_DEVICE_INVALID);
	CHECK(cuMemRangeGetAttribute(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, 1));
	CLAIM(by[0] == CU_DEVICE_CPU && by[1] == 0 && by[2] == CU_DEVICE_INVALID);
	CHECK(cuMemAdvise(m, N, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 0));
	CHECK(cuMemRangeGetAttribute(by, 4, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, N));
	CLAIM(by[0] == CU_DEVICE_INVALID);

	CHECK(cuMemPrefetchAsync(m, N, 0, NULL));
	CHECK(cuMemPrefetchAsync_v2_ptsz(m + PAGE, N - PAGE, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}, 0, NULL));
	void *data[] = {&values[0], &values[1]};
	size_t sizes[] = {4, 4};
	CUmem_range_attribute what[] = {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};
	CHECK(cuMemRangeGetAttributes(data, sizes, what, 2, m, PAGE));
	CLAIM(values[0] == 0 && values[1] == 1);
	CHECK(cuMemRangeGetAttributes(data, sizes, what, 2, m + PAGE, PAGE));
	CLAIM(values[0] == CU_DEVICE_CPU);

	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(plain, N, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(m, N + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(m, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(m, N, (CUmem_advise)7, 0));
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise(m, N, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 5));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise_v2(m, N, CU_MEM_ADVISE_SET_ACCESSED_BY, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}));
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(m, N, 5, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMemPrefetchAsync(m, N, 0, (CUstream)77));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync_v2(m, N, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, 1, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(by, 3, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, N));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(by, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, N));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(by, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, N));

	CUstream s;
	CHECK(cuStreamCreate(&s, 0));
	CHECK(cuStreamAttachMemAsync(s, m, 0, CU_MEM_ATTACH_SINGLE));
	CHECK(cuStreamAttachMemAsync(s, m, N, CU_MEM_ATTACH_HOST));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(NULL, m, 0, CU_MEM_ATTACH_SINGLE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(s, m, PAGE, CU_MEM_ATTACH_HOST));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(s, plain, 0, CU_MEM_ATTACH_GLOBAL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(s, m, 0, 3));

	/* Advice is removed with its memory, and only then. */
	CHECK(cuMemFree(m));
	CLAIM(asked(other, N, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 1);
	for (int i = 0; i < 8; i++) {
		CHECK(cuMemAllocManaged(&m, N, CU_MEM_ATTACH_GLOBAL));
		CLAIM(asked(m, N, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 0);
		CLAIM(asked(m, N, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION) == CU_DEVICE_INVALID);
	}
}

/* With synchronous memory operations, copies within the device are also complete when a synchronous call returns. */
static void complete(void)
{
	CUmodule m;
	CUfunction spin;
	CUdeviceptr a, b;
	CUcontext other;
	unsigned steps = 5000000, yes = 1, no = 0, got;
	void *args[] = {&steps};
	CHECK(cuMemAlloc(&a, 4096));
	CHECK(cuMemAlloc(&b, 4096));
	CHECK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	CLAIM(got == 0);
	CHECK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a + 100));
	CHECK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	CLAIM(got == 1);
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&spin, m, "spin"));
	CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemcpyDtoD(b, a, 4096));
	CHECK(cuStreamQuery(NULL));
	CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemsetD8(a, 1, 4096));
	CHECK(cuStreamQuery(NULL));
	CHECK(cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)(uintptr_t)&yes));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));

	CHECK(cuCtxCreate(&other, CU_CTX_SYNC_MEMOPS, 0));
	CHECK(cuMemAlloc(&a, 4096));
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&spin, m, "spin"));
	CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemsetD32(a, 1, 1024));
	CHECK(cuStreamQuery(NULL));
}

/* --- functions and arrays --- */

static void clusters(void)
{
	CUmodule m;
	CUfunction f;
	size_t count;
	int n, blocks, processors;
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&f, m, "step"));
	CHECK(cuFuncGetParamCount(f, &count));
	CLAIM(count == 3);
	CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}};
	CUlaunchConfig config = {.gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1, .attrs = &a, .numAttrs = 1};
	CHECK(cuOccupancyMaxPotentialClusterSize(&n, f, &config));
	if (n != 1) /* the device has clusters */
		return;
	CHECK(cuOccupancyMaxActiveClusters(&n, f, &config));
	CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 64, 0));
	CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CLAIM(n == blocks * processors);
	a.value.clusterDim.x = 2;
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuOccupancyMaxActiveClusters(&n, f, &config));
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, f, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	config.blockDimX = 0;
	a.value.clusterDim.x = 1;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveClusters(&n, f, &config));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuOccupancyMaxPotentialClusterSize(&n, NULL, &config));
}

/* On a device with clusters, launches use the requested ones, in graphs as well. */
static void clustered(void)
{
	CUmodule m;
	CUfunction move;
	CUdeviceptr at;
	CUstream s;
	CUgraph g;
	CUgraphExec x;
	int n, blocks, processors;
	unsigned word;
	CHECK(cuModuleLoadData(&m, step_ptx));
	CHECK(cuModuleGetFunction(&move, m, "move"));
	CHECK(cuStreamCreate(&s, 0));
	CHECK(cuMemAlloc(&at, 8));
	CUdeviceptr from = at + 4;
	void *args[] = {&at, &from};
	CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}};
	CUlaunchConfig config = {
		.gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = s, .attrs = &a, .numAttrs = 1,
	};
	for (unsigned side = 2; side <= 16; side += 14) {
		CHECK(cuMemsetD32(at + 4, side, 1));
		config.gridDimX = a.value.clusterDim.x = side;
		CHECK(cuLaunchKernelEx(&config, move, args, NULL));
		CHECK(cuStreamSynchronize(s));
		CHECK(cuMemcpyDtoH(&word, at, 4));
		CLAIM(word == side);
	}
	CHECK(cuMemsetD32(at + 4, 77, 1));
	config.gridDimX = a.value.clusterDim.x = 2;
	CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuLaunchKernelEx(&config, move, args, NULL));
	CHECK(cuStreamEndCapture(s, &g));
	CHECK(cuGraphInstantiate(&x, g, 0));
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuStreamSynchronize(s));
	CHECK(cuMemcpyDtoH(&word, at, 4));
	CLAIM(word == 77);
	config.gridDimX = 3; /* not a multiple of the cluster */
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, move, args, NULL));
	config.gridDimX = a.value.clusterDim.x = 17;
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, move, args, NULL));
	config.gridDimX = a.value.clusterDim.x = 1000;
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, move, args, NULL));
	a.value.clusterDim.x = 2;
	CHECK(cuOccupancyMaxPotentialClusterSize(&n, move, &config));
	CLAIM(n == 8);
	CHECK(cuOccupancyMaxActiveClusters(&n, move, &config));
	CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, move, 1, 0));
	CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CLAIM(n == blocks * processors / 2);
	CHECK(cuFuncSetAttribute(move, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
}

/* Tensor maps equal the driver's, for all parameters. */
static void tensors(void)
{
	CUtensorMap m, old;
	const cuuint64_t dims[] = {64, 32, 16, 8, 4}, strides[] = {128, 4096, 65536, 524288};
	const cuuint32_t box[] = {8, 7, 6, 5, 4}, steps[] = {1, 2, 3, 4, 5};
	const int lower[] = {-1, -2, -3}, upper[] = {1, 2, 3};
	const cuuint64_t tiled[16] = {0x1000, 5, 64, 4, 128, 524288, 8, 4, 1, 5, 6, 1, 2, 3, 1, 1};
	const cuuint64_t columns[16] = {0x2000, 4, 8, 65536, (cuuint64_t)-1, 2, 64, 32, 4, 7, 0, 1, 2, 0, 2, 2};
	CHECK(cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 5, (void *)0x1000, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_16B,
		CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA));
	CLAIM(memcmp(m.opaque, tiled, sizeof tiled) == 0);
	CHECK(cuTensorMapReplaceAddress(&m, (void *)0x3000));
	CLAIM(m.opaque[0] == 0x3000 && memcmp(m.opaque + 1, tiled + 1, sizeof tiled - 8) == 0);
	CHECK(cuTensorMapEncodeIm2col(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, (void *)0x2000, dims, strides, lower, upper, 64, 32, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
		CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
	CLAIM(memcmp(m.opaque, columns, sizeof columns) == 0);
	old = m;
#define TILED(map, rank, d, s, b, t) \
	cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, NULL, d, s, b, t, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, \
		CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
	EXPECT(CUDA_ERROR_INVALID_VALUE, TILED(NULL, 2, dims, strides, box, steps));
	EXPECT(CUDA_ERROR_INVALID_VALUE, TILED(&m, 0, dims, strides, box, steps));
	EXPECT(CUDA_ERROR_INVALID_VALUE, TILED(&m, 6, dims, strides, box, steps));
	EXPECT(CUDA_ERROR_INVALID_VALUE, TILED(&m, 2, NULL, strides, box, steps));
	EXPECT(CUDA_ERROR_INVALID_VALUE, TILED(&m, 2, dims, NULL, box, steps));
	EXPECT(CUDA_ERROR_INVALID_VALUE, TILED(&m, 2, dims, strides, NULL, steps));
	EXPECT(CUDA_ERROR_INVALID_VALUE, TILED(&m, 2, dims, strides, box, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(NULL, NULL));
	CLAIM(memcmp(&m, &old, sizeof m) == 0);
	/* An H200's driver writes it to any address. */
	static struct {
		CUtensorMap aligned, rest;
	} room;
	void *askew = (char *)&room + 8;
	CHECK(TILED(&m, 2, dims, strides, box, steps));
	CHECK(TILED(askew, 2, dims, strides, box, steps));
	CLAIM(memcmp(askew, &m, sizeof m) == 0);
	CHECK(cuTensorMapReplaceAddress(&m, (void *)0x3000));
	CHECK(cuTensorMapReplaceAddress(askew, (void *)0x3000));
	CLAIM(memcmp(askew, &m, sizeof m) == 0);
}

static void mipmaps(void)
{
	CUmipmappedArray m, one;
	CUarray level, plane;
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 20, .Height = 6, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}, got;
	const size_t widths[] = {20, 10, 5, 2, 1}, heights[] = {6, 3, 1, 1, 1};
	CHECK(cuMipmappedArrayCreate(&m, &d, 99)); /* as many levels as possible */
	for (unsigned i = 0; i < 5; i++) {
		CHECK(cuMipmappedArrayGetLevel(&level, m, i));
		CHECK(cuArray3DGetDescriptor(&got, level));
		CLAIM(got.Width == widths[i] && got.Height == heights[i] && got.Depth == 0);
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, m, 5));
	CHECK(cuMipmappedArrayGetLevel(&level, m, 1));
	float up[30], down[30] = {0};
	for (int i = 0; i < 30; i++)
		up[i] = (float)i;
	CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = up, .srcPitch = 40, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstArray = level, .WidthInBytes = 40, .Height = 3};
	CHECK(cuMemcpy2D(&c));
	c = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = level, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = down,
		.dstPitch = 40, .WidthInBytes = 40, .Height = 3};
	CHECK(cuMemcpy2D(&c));
	CLAIM(memcmp(up, down, sizeof up) == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayGetPlane(&plane, level, 0));

	CUtexObject t;
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, .res.mipmap.hMipmappedArray = m};
	CUDA_TEXTURE_DESC how = {0};
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&t, &r, &how, NULL));
	CHECK(cuMipmappedArrayCreate(&one, &d, 1));
	r.res.mipmap.hMipmappedArray = one;
	CHECK(cuTexObjectCreate(&t, &r, &how, NULL));
	CHECK(cuTexObjectDestroy(t));
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = level};
	CHECK(cuTexObjectCreate(&t, &r, &how, NULL));
	CHECK(cuTexObjectDestroy(t));
	/* On an H200 this returned success. Here the level lives on until its mipmapped array is destroyed. */
	CHECK(cuArrayDestroy(level));
	CHECK(cuArrayDestroy(level));
	memset(down, 0, sizeof down);
	CHECK(cuMemcpy2D(&c));
	CLAIM(memcmp(up, down, sizeof up) == 0);
	CHECK(cuMipmappedArrayDestroy(m));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(m));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayGetLevel(&level, m, 0));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor(&got, level));

	d.Flags = CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_SURFACE_LDST;
	d.Width = d.Height = 8;
	d.Depth = 6;
	CHECK(cuMipmappedArrayCreate(&m, &d, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, m, 1));
	CHECK(cuMipmappedArrayDestroy(m));
	CHECK(cuMipmappedArrayCreate(&m, &d, 3));
	CHECK(cuMipmappedArrayGetLevel(&level, m, 2));
	CHECK(cuArray3DGetDescriptor(&got, level));
	CLAIM(got.Width == 2 && got.Height == 2 && got.Depth == 6);
	d.Depth = 5;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayCreate(&m, &d, 3));
	CHECK(cuCtxDestroy(context));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(m));
}

/* --- host memory, and empty allocations --- */

static void hostly(void)
{
	static uint8_t own[3 * 4096];
	void *p;
	unsigned flags;
	int value;
	CHECK(cuMemFree(0));
	CHECK(cuMemFreeHost(NULL));
	CHECK(cuMemHostAlloc(&p, 0, 0));
	CHECK(cuMemHostAlloc(&p, 100, 0));
	CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
	CHECK(cuMemHostGetFlags(&flags, p));
	CLAIM(!value || flags == CU_MEMHOSTALLOC_DEVICEMAP);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(p));
	CHECK(cuMemFreeHost(p));

	/* Registered memory need not begin at a page, and may share its pages. */
	CHECK(cuMemHostRegister(own + 100, 5000, 0));
	EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(own + 4096, 100, 0));
	CHECK(cuMemHostRegister(own + 5100, 20, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(own + 4096));
	CHECK(cuMemHostUnregister(own + 100));
	CHECK(cuMemHostUnregister(own + 5100));
	EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(own + 100));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(NULL));
	CHECK(cuMemHostRegister(own, sizeof own, CU_MEMHOSTREGISTER_PORTABLE));
	CHECK(cuMemHostUnregister(own));

	/* Only memory that is mapped completely can be registered. */
	uint8_t *room = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(room != MAP_FAILED);
	CHECK(cuMemHostRegister(room + 1, (64 << 20) - 1, 0));
	CHECK(cuMemHostUnregister(room + 1));
	CLAIM(munmap(room + (63 << 20), 4096) == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(room + 1, (64 << 20) - 1, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(room + (63 << 20) + 100, 1, 0));
	CHECK(cuMemHostRegister(room, 63 << 20, 0));
	CHECK(cuMemHostUnregister(room));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister((void *)(uintptr_t)4096, 4096, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister((void *)(uintptr_t)4096, SIZE_MAX / 2, 0));

	/* A device is no peer of itself, for any attribute. */
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)9999, 0, 0));
}

/* Memory is freed in its own context also without a current one; other calls need a current context. */
static void homeless(void)
{
	CUdeviceptr plain, pooled, managed, more;
	CUdevice device;
	CUcontext popped;
	void *pinned;
	CHECK(cuMemAlloc(&plain, 100));
	CHECK(cuMemAllocAsync(&pooled, 100, NULL));
	CHECK(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemHostAlloc(&pinned, 100, 0));
	CHECK(cuCtxPopCurrent(&popped));
	CHECK(cuMemFree(plain));
	CHECK(cuMemFree(pooled));
	CHECK(cuMemFree(managed));
	CHECK(cuMemFreeHost(pinned));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(plain));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
	CHECK(cuMemFree(0));
	CHECK(cuMemFreeHost(NULL));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&more, 100));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
	CHECK(cuCtxPushCurrent(popped));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(plain));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
}

static void flag_is(bool want, CUresult (*ask)(CUcoredumpSettings, void *, size_t *), CUcoredumpSettings what)
{
	bool got = !want;
	size_t size = sizeof got;
	CHECK(ask(what, &got, &size));
	CLAIM(got == want);
}

/* Core dump settings belong to a context, and start from the process's. */
static void coredumps(void)
{
	char name[1024], expected[1024], host[256], longer[2000];
	size_t size = 0;
	bool on = true, off = false;
	int flags = -1;
	CUcontext second;
	flag_is(false, cuCoredumpGetAttribute, CU_COREDUMP_ENABLE_ON_EXCEPTION);
	flag_is(true, cuCoredumpGetAttribute, CU_COREDUMP_TRIGGER_HOST);
	flag_is(false, cuCoredumpGetAttribute, CU_COREDUMP_LIGHTWEIGHT);
	flag_is(false, cuCoredumpGetAttributeGlobal, CU_COREDUMP_ENABLE_USER_TRIGGER);
	CHECK(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, NULL, &size));
	CLAIM(size == sizeof(bool));
	CHECK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, NULL, &size));
	CLAIM(size == sizeof name && gethostname(host, sizeof host) == 0);
	CHECK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &size));
	snprintf(expected, sizeof expected, "core.cuda.%.200s.%ld", host, (long)getpid());
	CLAIM(strcmp(name, expected) == 0);
	CHECK(cuCoredumpGetAttributeGlobal(CU_COREDUMP_PIPE, name, &size));
	snprintf(expected, sizeof expected, "corepipe.cuda.%.200s.%ld", host, (long)getpid());
	CLAIM(strcmp(name, expected) == 0);
	size = 4;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &size));
	CHECK(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
	CLAIM(flags == CU_COREDUMP_DEFAULT_FLAGS);

	size = sizeof on;
	CHECK(cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &size));
	flag_is(true, cuCoredumpGetAttribute, CU_COREDUMP_ENABLE_ON_EXCEPTION);
	flag_is(false, cuCoredumpGetAttributeGlobal, CU_COREDUMP_ENABLE_ON_EXCEPTION);
	CHECK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &on, &size));
	flag_is(false, cuCoredumpGetAttribute, CU_COREDUMP_LIGHTWEIGHT);
	size = sizeof "/tmp/dump.%p";
	CHECK(cuCoredumpSetAttribute(CU_COREDUMP_FILE, "/tmp/dump.%p", &size));
	size = sizeof name;
	CHECK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &size));
	CLAIM(strcmp(name, "/tmp/dump.%p") == 0);
	CHECK(cuCtxCreate(&second, CU_CTX_COREDUMP_ENABLE, 0));
	flag_is(true, cuCoredumpGetAttribute, CU_COREDUMP_ENABLE_ON_EXCEPTION);
	flag_is(true, cuCoredumpGetAttribute, CU_COREDUMP_LIGHTWEIGHT);
	CHECK(cuCtxDestroy(second));

	memset(longer, 'x', sizeof longer);
	size = sizeof longer;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpSetAttribute(CU_COREDUMP_FILE, longer, &size));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpSetAttribute(CU_COREDUMP_FILE, NULL, &size));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpSetAttribute((CUcoredumpSettings)99, &on, &size));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpGetAttribute((CUcoredumpSettings)99, &on, &size));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &on, NULL));
	flags = 1 << 20;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpSetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
	flags = CU_COREDUMP_SKIP_LOCAL_MEMORY | CU_COREDUMP_SKIP_ABORT;
	CHECK(cuCoredumpSetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
	/* The pipe belongs to the process: it can be set globally only, and while no reader waits for it. */
	size = sizeof on;
	EXPECT(CUDA_ERROR_NOT_PERMITTED, cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_USER_TRIGGER, &on, &size));
	EXPECT(CUDA_ERROR_NOT_PERMITTED, cuCoredumpSetAttribute(CU_COREDUMP_PIPE, "p", &size));
	CHECK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_PIPE, "p", &size));
	CHECK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_USER_TRIGGER, &on, &size));
	EXPECT(CUDA_ERROR_NOT_PERMITTED, cuCoredumpSetAttributeGlobal(CU_COREDUMP_PIPE, "q", &size));
	flag_is(true, cuCoredumpGetAttribute, CU_COREDUMP_ENABLE_USER_TRIGGER);
	CHECK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_TRIGGER_HOST, &off, &size));
	flag_is(false, cuCoredumpGetAttributeGlobal, CU_COREDUMP_TRIGGER_HOST);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{"attributes", attributes}, {"questions", questions}, {"advice", advice}, {"complete", complete}, {"clusters", clusters}, {"clustered", clustered}, {"tensors", tensors},
		{"mipmaps", mipmaps}, {"hostly", hostly}, {"homeless", homeless}, {"coredumps", coredumps},
	};
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc == 2 && strcmp(argv[1], parts[i].name) == 0) {
			parts[i].run();
			return 0;
		}
	fprintf(stderr, "usage: corners PART\n");
	return 2;
}
