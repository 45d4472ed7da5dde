/* graphs PART: graphs and captures, in typical uses. */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { Cells = 1024 };

static CUcontext context;
static CUmodule module;
static CUfunction step, move;
static CUstream stream, other;
static CUdeviceptr cell;

static void start(void)
{
	CUdevice device;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, step_ptx));
	CHECK(cuModuleGetFunction(&step, module, "step"));
	CHECK(cuModuleGetFunction(&move, module, "move"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&cell, Cells * 4));
	CHECK(cuMemsetD32(cell, 0, Cells));
	CHECK(cuCtxSynchronize());
}

static CUdeviceptr at(unsigned i) { return cell + 4 * i; }

static uint32_t value(unsigned i)
{
	uint32_t v;
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuStreamSynchronize(other));
	CHECK(cuMemcpyDtoH(&v, at(i), 4));
	return v;
}

static CUgraphNode add_step(CUgraph g, const CUgraphNode *after, size_t n, unsigned i, unsigned a, unsigned b)
{
	CUdeviceptr p = at(i);
	void *args[] = {&p, &a, &b};
	CUDA_KERNEL_NODE_PARAMS params = {
		.func = step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = args,
	};
	CUgraphNode node;
	CHECK(cuGraphAddKernelNode(&node, g, after, n, &params));
	return node;
}

static CUgraphExec executable(CUgraph g)
{
	CUgraphExec e;
	CHECK(cuGraphInstantiate(&e, g, 0));
	return e;
}

static void run(CUgraphExec e, int times)
{
	for (int i = 0; i < times; i++)
		CHECK(cuGraphLaunch(e, stream));
	CHECK(cuStreamSynchronize(stream));
}

/* A fork and a join: x = x*3+1, then y = x*5 and z = x*7, then x = ... of both; the results show the order. */
static void test_build(void)
{
	CUgraph g;
	CHECK(cuGraphCreate(&g, 0));
	CUgraphNode first = add_step(g, NULL, 0, 0, 3, 1);
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at(0), .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at(1),
		.WidthInBytes = 4, .Height = 1, .Depth = 1,
	};
	CUgraphNode left, right, empty;
	CHECK(cuGraphAddMemcpyNode(&left, g, &first, 1, &c, context));
	CUDA_MEMSET_NODE_PARAMS m = {.dst = at(2), .value = 7, .elementSize = 4, .width = 1, .height = 1};
	CHECK(cuGraphAddMemsetNode(&right, g, NULL, 0, &m, context));
	CUgraphNode both[] = {left, right};
	CHECK(cuGraphAddEmptyNode(&empty, g, both, 2));
	CUgraphNode last = add_step(g, &empty, 1, 1, 5, 2);

	CUgraphNode nodes[8], from[8], to[8];
	size_t count = 0;
	CHECK(cuGraphGetNodes(g, NULL, &count));
	CLAIM(count == 5);
	count = 8;
	CHECK(cuGraphGetNodes(g, nodes, &count));
	CLAIM(count == 5 && nodes[0] == first && nodes[4] == last);
	count = 8;
	CHECK(cuGraphGetRootNodes(g, nodes, &count));
	CLAIM(count == 2 && nodes[0] == first && nodes[1] == right);
	count = 8;
	CHECK(cuGraphGetEdges(g, from, to, &count));
	CLAIM(count == 4 && from[0] == first && to[0] == left);
	count = 8;
	CHECK(cuGraphNodeGetDependencies(empty, nodes, &count));
	CLAIM(count == 2 && nodes[0] == left && nodes[1] == right);
	count = 8;
	CHECK(cuGraphNodeGetDependentNodes(empty, nodes, &count));
	CLAIM(count == 1 && nodes[0] == last);
	CUgraphNodeType type;
	CHECK(cuGraphNodeGetType(right, &type));
	CLAIM(type == CU_GRAPH_NODE_TYPE_MEMSET);

	CUgraphExec e = executable(g);
	run(e, 1);
	CLAIM(value(0) == 1 && value(1) == 7 && value(2) == 7);
	run(e, 2);
	CLAIM(value(0) == 13 && value(1) == 67);
	/* The graph may be destroyed: the executable graph is independent of it. */
	CHECK(cuGraphDestroy(g));
	run(e, 1);
	CLAIM(value(0) == 40 && value(1) == 202);
	CHECK(cuGraphExecDestroy(e));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(e, stream));
}

static void test_edges(void)
{
	CUgraph g;
	CUgraphExec e;
	CHECK(cuGraphCreate(&g, 0));
	CUgraphNode a = add_step(g, NULL, 0, 0, 1, 1), b = add_step(g, &a, 1, 0, 2, 0), c = add_step(g, NULL, 0, 1, 1, 1);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &b, 1)); /* exists already */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &a, 1));
	CHECK(cuGraphAddDependencies(g, &b, &c, 1));
	CHECK(cuGraphAddDependencies(g, &c, &a, 1)); /* a cycle */
	CUgraphNode bad = NULL;
	char log[64] = "?";
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate_v2(&e, g, &bad, log, sizeof log));
	CLAIM(bad == a || bad == b || bad == c);
	CUDA_GRAPH_INSTANTIATE_PARAMS p = {0};
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&e, g, &p));
	CLAIM(p.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE && p.hErrNode_out);
	CHECK(cuGraphRemoveDependencies(g, &c, &a, 1));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(g, &c, &a, 1));
	e = executable(g);
	run(e, 1);
	CLAIM(value(0) == 2 && value(1) == 1);
	CHECK(cuGraphDestroyNode(b));
	size_t count = 0;
	CHECK(cuGraphGetEdges(g, NULL, NULL, &count));
	CLAIM(count == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetDependencies(b, NULL, &count));
	CHECK(cuGraphDestroy(g));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(g));
	/* An empty graph is valid. */
	CHECK(cuGraphCreate(&g, 0));
	e = executable(g);
	run(e, 3);
}

static void CUDA_CB add_three(void *p) { *(uint32_t *)p += 3; }

static void CUDA_CB with_status(CUstream s, CUresult r, void *p) { (void)s, (void)r, (void)p; }

/* Pageable memory is read and written in order, at each launch; a host function sees the copies before it. */
static void test_pageable(void)
{
	CUgraph g;
	uint32_t *in = malloc(4), *out = malloc(4), *back = calloc(1, 4);
	CUgraphNode up, down, host, again, kernel;
	CHECK(cuGraphCreate(&g, 0));
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at(0), .WidthInBytes = 4,
		.Height = 1, .Depth = 1,
	};
	CHECK(cuGraphAddMemcpyNode(&up, g, NULL, 0, &c, context));
	kernel = add_step(g, &up, 1, 0, 10, 1);
	CUDA_MEMCPY3D d = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at(0), .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .WidthInBytes = 4,
		.Height = 1, .Depth = 1,
	};
	CHECK(cuGraphAddMemcpyNode(&down, g, &kernel, 1, &d, context));
	CUDA_HOST_NODE_PARAMS h = {.fn = add_three, .userData = out};
	CHECK(cuGraphAddHostNode(&host, g, &down, 1, &h));
	CUDA_MEMCPY3D f = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = out, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .WidthInBytes = 4, .Height = 1,
		.Depth = 1,
	};
	CHECK(cuGraphAddMemcpyNode(&again, g, &host, 1, &f, context));
	*in = 1000; /* not the value that is copied */
	CUgraphExec e = executable(g);
	for (uint32_t i = 0; i < 20; i++) {
		*in = i;
		run(e, 1);
		CLAIM(*out == i * 10 + 4 && *back == *out);
	}
	CHECK(cuGraphLaunch(e, stream));
	CHECK(cuGraphExecDestroy(e)); /* the launched work still runs */
	CHECK(cuStreamSynchronize(stream));
	CLAIM(*back == 194);
	/* Rows with gaps. */
	uint8_t rows[3][16], got[3][16];
	memset(got, 0, sizeof got);
	for (int i = 0; i < 48; i++)
		((uint8_t *)rows)[i] = (uint8_t)i;
	CUgraph g2;
	CHECK(cuGraphCreate(&g2, 0));
	CUDA_MEMCPY3D r = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = rows, .srcPitch = 16, .srcXInBytes = 2, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = at(8), .dstPitch = 32, .WidthInBytes = 5, .Height = 3, .Depth = 1,
	};
	CHECK(cuGraphAddMemcpyNode(&up, g2, NULL, 0, &r, context));
	CUDA_MEMCPY3D s = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at(8), .srcPitch = 32, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = got,
		.dstPitch = 16, .dstXInBytes = 4, .WidthInBytes = 5, .Height = 3, .Depth = 1,
	};
	CHECK(cuGraphAddMemcpyNode(&down, g2, &up, 1, &s, context));
	run(executable(g2), 1);
	for (int y = 0; y < 3; y++)
		for (int x = 0; x < 16; x++)
			CLAIM(got[y][x] == (x >= 4 && x < 9 ? rows[y][x - 2] : 0));
}

/* A capture of two streams, with all common operations. */
static void test_capture(void)
{
	CUevent fork, join;
	CUgraph g, seen;
	uint32_t *host = calloc(1, 4), *pinned;
	CUstreamCaptureStatus status;
	cuuint64_t id, id2;
	CHECK(cuMemHostAlloc((void **)&pinned, 4096, 0));
	CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	CHECK(cuStreamIsCapturing(stream, &status));
	CLAIM(status == CU_STREAM_CAPTURE_STATUS_NONE);
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuMemsetD32Async(at(0), 5, 1, stream));
	CHECK(cuEventRecord(fork, stream));
	CHECK(cuStreamWaitEvent(other, fork, 0));
	CHECK(cuStreamIsCapturing(other, &status));
	CLAIM(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	launch_step(step, stream, at(0), 2, 1);    /* 11 */
	launch_move(move, other, at(1), at(0));    /* 5 or 11: after the fill */
	launch_step(step, other, at(1), 0, 9);     /* 9 */
	CHECK(cuMemcpyDtoDAsync(at(2), at(1), 4, other));
	CHECK(cuEventRecord(join, other));
	CHECK(cuStreamWaitEvent(stream, join, 0));
	launch_step(step, stream, at(2), 10, 1);   /* 91 */
	CHECK(cuMemcpyDtoHAsync(host, at(2), 4, stream));
	CHECK(cuLaunchHostFunc(stream, add_three, host)); /* 94 */
	CHECK(cuMemcpyHtoDAsync(at(3), host, 4, stream));
	CHECK(cuMemcpyDtoHAsync(pinned, at(3), 4, stream));
	const CUgraphNode *after;
	size_t count;
	CHECK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &seen, &after, &count));
	CLAIM(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1 && seen);
	CHECK(cuStreamGetCaptureInfo_v2(other, &status, &id2, NULL, NULL, NULL));
	CLAIM(id == id2);
	const CUgraphEdgeData *data; /* only beside the dependencies */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamGetCaptureInfo_v3(stream, &status, &id2, NULL, NULL, &data, &count));
	CHECK(cuStreamGetCaptureInfo_v3(stream, &status, &id2, NULL, &after, &data, &count));
	CHECK(cuStreamGetCaptureInfo_v3(stream, &status, &id2, NULL, NULL, NULL, &count));
	CHECK(cuStreamEndCapture(stream, &g));
	CLAIM(g == seen);
	CHECK(cuStreamIsCapturing(other, &status));
	CLAIM(status == CU_STREAM_CAPTURE_STATUS_NONE);
	CLAIM(value(0) == 0 && *host == 0); /* no work has run */
	CHECK(cuGraphGetNodes(g, NULL, &count));
	CLAIM(count == 10);
	CUgraphExec e = executable(g);
	for (int i = 0; i < 5; i++) {
		run(e, 1);
		CLAIM(value(0) == 11 && value(1) == 9 && value(2) == 91 && *host == 94 && *pinned == 94);
		*host = *pinned = 0;
	}
	/* The launch of a graph can't be captured, whatever the mode. */
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphLaunch(e, stream));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &g));
	EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &g));
}

static void begin_again(CUstreamCaptureMode mode) { CHECK(cuStreamBeginCapture(stream, mode)); }

static void end_invalid(void)
{
	CUgraph g = (CUgraph)1;
	CUstreamCaptureStatus status;
	CHECK(cuStreamIsCapturing(stream, &status));
	CLAIM(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &g));
	CLAIM(g == NULL);
}

static void *unsafe_thread(void *mode)
{
	CUdeviceptr p;
	CHECK(cuCtxSetCurrent(context));
	if (mode) {
		CUstreamCaptureMode m = *(CUstreamCaptureMode *)mode;
		CHECK(cuThreadExchangeStreamCaptureMode(&m));
		CLAIM(m == CU_STREAM_CAPTURE_MODE_GLOBAL);
	}
	CUresult r = cuMemAlloc(&p, 512);
	return (void *)(uintptr_t)r;
}

static void *ending_thread(void *unused)
{
	CUgraph g = (CUgraph)1;
	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	CUresult r = cuStreamEndCapture(stream, &g);
	CLAIM(r == CUDA_SUCCESS || g == NULL);
	return (void *)(uintptr_t)r;
}

static void *beginning_thread(void *unused)
{
	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	return (void *)(uintptr_t)cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static CUresult in_thread(void *(*body)(void *), CUstreamCaptureMode *mode)
{
	pthread_t t;
	void *r;
	if (pthread_create(&t, NULL, body, mode))
		abort();
	pthread_join(t, &r);
	return (CUresult)(uintptr_t)r;
}

static void test_refusals(void)
{
	CUevent e, f;
	CUgraph g;
	CUstream third, blocking;
	CUdeviceptr p;
	uint32_t v;
	CHECK(cuEventCreate(&e, 0));
	CHECK(cuEventCreate(&f, 0));
	CHECK(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));

	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD32Async(at(0), 5, 1, stream));
	end_invalid();
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(stream));
	end_invalid();
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED); /* relaxed: unsafe calls are permitted */
	CHECK(cuMemAlloc(&p, 512));
	CHECK(cuMemFree(p));
	CHECK(cuStreamEndCapture(stream, &g));

	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED); /* but not calls that affect all streams */
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
	end_invalid();
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxRecordEvent(context, e));
	end_invalid();
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxWaitEvent(context, e));
	end_invalid();
	CHECK(cuCtxSynchronize());

	/* events */
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK(cuEventRecord(e, stream));
	EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
	end_invalid();
	EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(e));
	CHECK(cuEventRecord(e, stream)); /* outside of the capture it is an ordinary event */
	CHECK(cuEventSynchronize(e));
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, e, 0));
	end_invalid();

	/* a fork without a join; the end in a stream that joined; two captures that would become one */
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK(cuEventRecord(e, stream));
	CHECK(cuStreamWaitEvent(other, e, 0));
	launch_step(step, other, at(0), 1, 1);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(stream, &g));
	CHECK(cuStreamSynchronize(other));
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK(cuEventRecord(e, stream));
	CHECK(cuStreamWaitEvent(other, e, 0));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &g));
	end_invalid();
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK(cuStreamBeginCapture(third, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(cuEventRecord(f, third));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(stream, f, 0));
	end_invalid();
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(third, &g));

	/* the legacy stream waits for streams that synchronise with it */
	CHECK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUstreamCaptureStatus status;
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyDtoH(&v, at(0), 4));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &g));
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED); /* but not for other streams */
	CHECK(cuMemcpyDtoH(&v, at(0), 4));
	CHECK(cuStreamEndCapture(stream, &g));

	/* unsafe calls, by mode and thread */
	begin_again(CU_STREAM_CAPTURE_MODE_GLOBAL);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&p, 512));
	end_invalid();
	begin_again(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CLAIM(in_thread(unsafe_thread, NULL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end_invalid();
	begin_again(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	CLAIM(in_thread(unsafe_thread, NULL) == CUDA_SUCCESS);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&p, 512));
	end_invalid();
	begin_again(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CLAIM(in_thread(unsafe_thread, &mode) == CUDA_SUCCESS);
	CHECK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(cuMemAlloc(&p, 512));
	CHECK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(cuStreamEndCapture(stream, &g));

	/* the end in another thread ends the capture with an error; only a relaxed capture may end in any thread */
	for (unsigned m = CU_STREAM_CAPTURE_MODE_GLOBAL; m <= CU_STREAM_CAPTURE_MODE_RELAXED; m++) {
		begin_again((CUstreamCaptureMode)m);
		CLAIM(in_thread(ending_thread, NULL) == (m == CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
		CHECK(cuStreamIsCapturing(stream, &status));
		CLAIM(status == CU_STREAM_CAPTURE_STATUS_NONE);
		EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &g));
		CHECK(cuMemAlloc(&p, 512));
		CHECK(cuMemFree(p));
	}

	/* a thread that gets the memory of the ended one which began the capture is another thread */
	CLAIM(in_thread(beginning_thread, NULL) == CUDA_SUCCESS);
	CLAIM(in_thread(unsafe_thread, NULL) == CUDA_SUCCESS);
	CLAIM(in_thread(ending_thread, NULL) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);

	/* callbacks with a status cannot be captured */
	begin_again(CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(stream, with_status, NULL, 0));
	end_invalid();

	/* destroying a stream ends its capture */
	CHECK(cuStreamBeginCapture(third, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch_step(step, third, at(0), 1, 1);
	CHECK(cuStreamDestroy(third));
	CHECK(cuMemAlloc(&p, 512));
	CHECK(cuMemFree(p));
}

/* Another graph of the same shape, and single nodes, replace those of an executable graph. */
static void test_update(void)
{
	CUgraph g, h;
	CUgraphNode n[3];
	CHECK(cuGraphCreate(&g, 0));
	n[0] = add_step(g, NULL, 0, 0, 1, 1);
	n[1] = add_step(g, &n[0], 1, 0, 2, 0);
	n[2] = add_step(g, &n[1], 1, 0, 1, 5);
	CUgraphExec e = executable(g);
	run(e, 1);
	CLAIM(value(0) == 7);
	CHECK(cuGraphCreate(&h, 0));
	CUgraphNode m = add_step(h, NULL, 0, 1, 1, 100);
	CUgraphExecUpdateResultInfo info;
	EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(e, h, &info));
	CLAIM(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	m = add_step(h, &m, 1, 1, 3, 0);
	m = add_step(h, &m, 1, 1, 1, 0);
	CHECK(cuGraphExecUpdate(e, h, &info));
	CLAIM(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run(e, 1);
	CLAIM(value(0) == 7 && value(1) == 300);
	unsigned a = 1, b = 1000;
	CUdeviceptr p = at(1);
	void *args[] = {&p, &a, &b};
	CUDA_KERNEL_NODE_PARAMS k;
	CHECK(cuGraphKernelNodeGetParams(n[1], &k));
	CLAIM(k.func == step && *(unsigned *)k.kernelParams[1] == 2);
	k.kernelParams = args;
	CHECK(cuGraphExecKernelNodeSetParams(e, n[1], &k));
	run(e, 1);
	CLAIM(value(1) == 300 + 100 + 1000);
	CHECK(cuGraphNodeSetEnabled(e, n[1], 0));
	unsigned enabled;
	CHECK(cuGraphNodeGetEnabled(e, n[1], &enabled));
	CLAIM(!enabled);
	run(e, 1);
	CLAIM(value(1) == 1500);
	CHECK(cuGraphNodeSetEnabled(e, n[1], 1));
	run(e, 1);
	CLAIM(value(1) == 2600);
	/* Changes of the graph itself are independent. */
	CHECK(cuGraphKernelNodeSetParams(n[2], &k));
	CUgraph clone;
	CUgraphNode twin;
	CHECK(cuGraphClone(&clone, g));
	CHECK(cuGraphNodeFindInClone(&twin, n[2], clone));
	CHECK(cuGraphKernelNodeGetParams(twin, &k));
	CLAIM(*(unsigned *)k.kernelParams[2] == 1000);
	CHECK(cuGraphDestroy(g));
	run(executable(clone), 1);
	CLAIM(value(1) == 3600);
	/* other types of nodes: in another order, which is the reported reason, and in the same */
	for (int chained = 0; chained < 2; chained++) {
		CUgraph other_type;
		CUgraphNode empty = NULL;
		CHECK(cuGraphCreate(&other_type, 0));
		for (int i = 0; i < 3; i++)
			CHECK(cuGraphAddEmptyNode(&empty, other_type, &empty, chained && i > 0));
		EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(e, other_type, &info));
		CLAIM(info.result == (chained ? CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED));
		CHECK(cuGraphDestroy(other_type));
	}
}

/* A child graph's nodes keep their handles, also when another graph has set their parameters. */
static void test_child(void)
{
	CUgraph g, inner, shorter;
	CUgraphNode node, within;
	size_t one = 1;
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphCreate(&inner, 0));
	CHECK(cuGraphCreate(&shorter, 0));
	add_step(inner, NULL, 0, 0, 1, 1);
	CHECK(cuGraphAddChildGraphNode(&node, g, NULL, 0, inner));
	CHECK(cuGraphDestroy(inner));
	CHECK(cuGraphChildGraphNodeGetGraph(node, &inner));
	CHECK(cuGraphGetNodes(inner, &within, &one));
	CUgraphExec e = executable(g);
	run(e, 1);
	CLAIM(value(0) == 1);
	CHECK(cuGraphCreate(&p.graph.graph, 0));
	add_step(p.graph.graph, NULL, 0, 0, 1, 10);
	CHECK(cuGraphExecNodeSetParams(e, node, &p));
	run(e, 1);
	CLAIM(value(0) == 11);
	CUDA_KERNEL_NODE_PARAMS k;
	unsigned a = 1, b = 100;
	CUdeviceptr at0 = at(0);
	void *args[] = {&at0, &a, &b};
	CHECK(cuGraphKernelNodeGetParams(within, &k));
	k.kernelParams = args;
	CHECK(cuGraphExecKernelNodeSetParams(e, within, &k));
	run(e, 1);
	CLAIM(value(0) == 111);
	p.graph.graph = shorter;
	EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecNodeSetParams(e, node, &p));
	EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecChildGraphNodeSetParams(e, node, shorter));
	run(e, 1);
	CLAIM(value(0) == 211);
}

/* Events that graphs record and wait for. */
static void test_events(void)
{
	CUgraph g, h;
	CUevent begin, done;
	CUgraphNode n, r;
	CHECK(cuEventCreate(&begin, 0));
	CHECK(cuEventCreate(&done, 0));
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphAddEventRecordNode(&r, g, NULL, 0, begin));
	n = add_step(g, &r, 1, 0, 1, 1);
	CHECK(cuGraphAddEventRecordNode(&r, g, &n, 1, done));
	CUgraphExec e = executable(g), f;
	for (unsigned i = 1; i <= 20; i++) {
		float ms = -1;
		CHECK(cuGraphLaunch(e, stream));
		CHECK(cuEventSynchronize(done));
		CHECK(cuEventElapsedTime(&ms, begin, done));
		CLAIM(ms >= 0);
		CHECK(cuMemcpyDtoHAsync(&i, at(0), 4, stream));
		CHECK(cuEventQuery(done));
	}
	/* The work that another stream's graph waits for has completed. */
	CHECK(cuGraphCreate(&h, 0));
	CHECK(cuGraphAddEventWaitNode(&r, h, NULL, 0, done));
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at(0), .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at(1),
		.WidthInBytes = 4, .Height = 1, .Depth = 1,
	};
	CHECK(cuGraphAddMemcpyNode(&n, h, &r, 1, &c, context));
	f = executable(h);
	for (unsigned i = 21; i <= 60; i++) {
		CHECK(cuGraphLaunch(e, stream));
		CHECK(cuGraphLaunch(f, other));
		CHECK(cuStreamSynchronize(other));
		uint32_t v;
		CHECK(cuMemcpyDtoH(&v, at(1), 4));
		CLAIM(v == i);
	}
	/* External ones are captured as external nodes. */
	CUgraph x;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, begin, CU_EVENT_WAIT_EXTERNAL)); /* outside of a capture */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(done, stream, CU_EVENT_RECORD_EXTERNAL));
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuStreamWaitEvent(stream, begin, CU_EVENT_WAIT_EXTERNAL));
	CHECK(cuEventRecordWithFlags(done, stream, CU_EVENT_RECORD_EXTERNAL));
	CHECK(cuStreamEndCapture(stream, &x));
	size_t count;
	CHECK(cuGraphGetNodes(x, NULL, &count));
	CLAIM(count == 2);
	run(executable(x), 1);
	CHECK(cuEventSynchronize(done));
	CHECK(cuEventDestroy(done)); /* its record goes with it, the graph's other work continues */
	uint32_t before = value(0);
	run(e, 2);
	CLAIM(value(0) == before + 2);
	CHECK(cuEventQuery(begin));
	run(executable(g), 1);
	CLAIM(value(0) == before + 3);
}

/* Launches of one executable graph run one after the other, in whatever streams. */
static void test_order(void)
{
	CUgraph g;
	CHECK(cuGraphCreate(&g, 0));
	CUgraphNode n = add_step(g, NULL, 0, 0, 3, 1);
	for (int i = 0; i < 30; i++)
		n = add_step(g, &n, 1, 0, (unsigned)(2 * i + 3), (unsigned)i);
	for (int i = 0; i < 60; i++) /* concurrent work in another stream */
		add_step(g, NULL, 0, (unsigned)(i + 1), 1, 1);
	CUgraphExec e = executable(g);
	uint32_t want = 0;
	for (int k = 0; k < 40; k++) {
		CHECK(cuGraphLaunch(e, k % 2 ? stream : other));
		want = want * 3 + 1;
		for (uint32_t i = 0; i < 30; i++)
			want = want * (2 * i + 3) + i;
	}
	CLAIM(value(0) == want);
	for (unsigned i = 1; i <= 60; i++)
		CLAIM(value(i) == 40);
	CHECK(cuGraphExecDestroy(e));
	CHECK(cuGraphDestroy(g));
}

static int destroyed;
static void CUDA_CB count_destroyed(void *p) { destroyed += *(int *)p; }

static void test_objects(void)
{
	static int one = 1;
	CUuserObject o;
	CUgraph g;
	CHECK(cuGraphCreate(&g, 0));
	add_step(g, NULL, 0, 0, 1, 1);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&o, &one, count_destroyed, 1, 0));
	CHECK(cuUserObjectCreate(&o, &one, count_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CHECK(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
	CUgraphExec e = executable(g);
	CHECK(cuGraphDestroy(g));
	CLAIM(destroyed == 0);
	CHECK(cuGraphLaunch(e, stream));
	CHECK(cuGraphExecDestroy(e));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuGraphCreate(&g, 0)); /* whatever comes next */
	CLAIM(destroyed == 1);
	CHECK(cuUserObjectCreate(&o, &one, count_destroyed, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CHECK(cuUserObjectRetain(o, 1));
	CHECK(cuUserObjectRelease(o, 3));
	CLAIM(destroyed == 2);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(o, 1));
}

static volatile int holding;
static void CUDA_CB hold_back(void *p)
{
	(void)p;
	while (holding)
		usleep(1000);
}

static CUuserObject counted(int *n)
{
	CUuserObject o;
	*n = 1;
	CHECK(cuUserObjectCreate(&o, n, count_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	return o;
}

/* A graph that references a user object, with work that only ends when the host permits it. */
static CUgraph keeping(int *n)
{
	CUgraph g;
	CUgraphNode node;
	CUDA_HOST_NODE_PARAMS h = {.fn = hold_back};
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphAddHostNode(&node, g, NULL, 0, &h));
	CHECK(cuGraphRetainUserObject(g, counted(n), 1, CU_GRAPH_USER_OBJECT_MOVE));
	return g;
}

/* User objects of graphs that replace others, and of nested graphs, live as long as the launches that use them. */
static void test_kept(void)
{
	static int n[8];
	CUgraph g = keeping(&n[0]), h = keeping(&n[1]), whole;
	CUgraphExecUpdateResultInfo info;
	CUgraphNode node;
	CUgraphExec e = executable(g);
	CHECK(cuGraphDestroy(g));
	holding = 1;
	CHECK(cuGraphLaunch(e, stream));
	CHECK(cuGraphExecUpdate(e, h, &info));
	CHECK(cuGraphDestroy(h));
	CLAIM(destroyed == 0); /* the first is in use, the second still needed */
	holding = 0;
	CHECK(cuStreamSynchronize(stream));
	run(e, 1);
	CLAIM(destroyed == 1);
	CHECK(cuGraphExecUpdate(e, g = keeping(&n[2]), &info)); /* no work runs, so the second is unused now */
	CLAIM(destroyed == 2);
	CHECK(cuGraphDestroy(g));
	CHECK(cuGraphExecDestroy(e));
	CLAIM(destroyed == 3);

	/* in a child graph */
	CHECK(cuGraphCreate(&whole, 0));
	CHECK(cuGraphAddChildGraphNode(&node, whole, NULL, 0, g = keeping(&n[3])));
	CHECK(cuGraphDestroy(g));
	e = executable(whole);
	CHECK(cuGraphExecChildGraphNodeSetParams(e, node, g = keeping(&n[4])));
	CHECK(cuGraphDestroy(g));
	CLAIM(destroyed == 3); /* the graph's references belong to the graph, too */
	CHECK(cuGraphDestroy(whole));
	CLAIM(destroyed == 4);
	holding = 1;
	CHECK(cuGraphLaunch(e, stream));
	CHECK(cuGraphExecDestroy(e));
	CLAIM(destroyed == 4);
	holding = 0;
	CHECK(cuStreamSynchronize(stream)); /* programs wait for the destructors after this, without another call */
	CLAIM(destroyed == 5);

	/* and with the context */
	e = executable(g = keeping(&n[5]));
	CHECK(cuGraphDestroy(g));
	holding = 1;
	CHECK(cuGraphLaunch(e, stream));
	CHECK(cuGraphExecDestroy(e));
	CLAIM(destroyed == 5);
	holding = 0;
	CHECK(cuCtxDestroy(context));
	CLAIM(destroyed == 6);
}

/* Objects that graphs use may be destroyed before them. */
static void test_gone(void)
{
	CUgraph g;
	CUgraphExec e, never;
	CHECK(cuGraphCreate(&g, 0));
	add_step(g, NULL, 0, 0, 1, 1);
	e = executable(g);
	run(e, 1);
	CHECK(cuModuleUnload(module));
	CHECK(cuGraphLaunch(e, stream)); /* its error is returned later, as of a launch */
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuGraphInstantiate(&never, g, 0));
	CHECK(cuGraphExecDestroy(e));
	CUdeviceptr p;
	CHECK(cuMemAlloc(&p, 1 << 20));
	CHECK(cuGraphDestroy(g));
	CHECK(cuGraphCreate(&g, 0));
	CUgraphNode n;
	CUDA_MEMSET_NODE_PARAMS m = {.dst = p, .value = 7, .elementSize = 4, .width = 16, .height = 1};
	CHECK(cuGraphAddMemsetNode(&n, g, NULL, 0, &m, context));
	e = executable(g);
	CHECK(cuMemFree(p));
	CHECK(cuCtxSynchronize());
	CHECK(cuGraphLaunch(e, stream));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamSynchronize(stream));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&never, g, 0));
	CUgraphNodeParams condition = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraphConditionalHandle decides;
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&n, g, NULL, 0, &condition));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphConditionalHandleCreate(&decides, g, context, 0, 0));
	/* and so may the context, with a graph that has guest resources */
	uint32_t word = 0;
	CUDA_HOST_NODE_PARAMS h = {.fn = add_three, .userData = &word};
	CUgraph k;
	CHECK(cuGraphCreate(&k, 0));
	CHECK(cuGraphAddHostNode(&n, k, NULL, 0, &h));
	CUgraphExec f = executable(k);
	run(f, 2);
	CLAIM(word == 6);
	CHECK(cuGraphLaunch(f, stream));
	CHECK(cuCtxDestroy(context));
	CLAIM(cuGraphLaunch(f, stream) != CUDA_SUCCESS);
	CHECK(cuGraphExecDestroy(f));
	CHECK(cuGraphExecDestroy(e));
	CHECK(cuGraphDestroy(k));
	CHECK(cuGraphDestroy(g));
}

static CUDA_MEM_ALLOC_NODE_PARAMS of_bytes(size_t bytes)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = bytes,
	};
}

static CUdeviceptr add_alloc(CUgraph g, const CUgraphNode *after, size_t n, size_t bytes, CUgraphNode *node)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = of_bytes(bytes);
	CHECK(cuGraphAddMemAllocNode(node, g, after, n, &p));
	CLAIM(p.dptr);
	return p.dptr;
}

static CUgraphNode add_fill(CUgraph g, const CUgraphNode *after, size_t n, CUdeviceptr p, unsigned v, size_t words)
{
	CUgraphNode node;
	CUDA_MEMSET_NODE_PARAMS m = {.dst = p, .value = v, .elementSize = 4, .width = words, .height = 1};
	CHECK(cuGraphAddMemsetNode(&node, g, after, n, &m, context));
	return node;
}

static CUgraphNode add_copy(CUgraph g, CUgraphNode after, CUdeviceptr to, CUdeviceptr from)
{
	CUgraphNode node;
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .WidthInBytes = 4,
		.Height = 1, .Depth = 1,
	};
	CHECK(cuGraphAddMemcpyNode(&node, g, &after, 1, &c, context));
	return node;
}

static uint64_t graph_memory(CUgraphMem_attribute what)
{
	cuuint64_t n;
	CHECK(cuDeviceGetGraphMemAttribute(0, what, &n));
	return n;
}

static uint32_t word_at(CUdeviceptr p)
{
	uint32_t v;
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemcpyDtoH(&v, p, 4));
	return v;
}

/* Memory nodes, added by hand: each rule of the manual. */
static void test_memory(void)
{
	enum { Bytes = 1 << 20, Words = Bytes / 4 };
	CUgraph g, h;
	CUgraphExec e, f, never;
	CUgraphNode alloc, filled, copied, freed, again, n;
	CHECK(cuGraphCreate(&g, 0));
	CUdeviceptr p = add_alloc(g, NULL, 0, Bytes, &alloc), q;
	filled = add_fill(g, &alloc, 1, p, 42, Words);
	copied = add_copy(g, filled, at(0), p);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&freed, g, &copied, 1, cell)); /* not memory of a graph */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&freed, g, &copied, 1, p + 512));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&freed, g, &copied, 1, 0));
	CHECK(cuGraphAddMemFreeNode(&freed, g, &copied, 1, p));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&n, g, &copied, 1, p)); /* freed twice */
	/* Nodes after the free node get its memory again; other nodes get memory of their own. */
	q = add_alloc(g, &freed, 1, Bytes, &again);
	CLAIM(q == p);
	n = add_copy(g, add_fill(g, &again, 1, q, 7, Words), at(1), q);
	CHECK(cuGraphAddMemFreeNode(&n, g, &n, 1, q));
	q = add_alloc(g, &alloc, 1, Bytes, &again);
	CLAIM(q >= p + Bytes || q + Bytes <= p);
	n = add_copy(g, add_fill(g, &again, 1, q, 9, Words), at(2), q);
	CHECK(cuGraphAddMemFreeNode(&n, g, &n, 1, q));

	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUdeviceptr address;
	CUgraphNodeType type;
	CHECK(cuGraphMemAllocNodeGetParams(alloc, &params));
	CLAIM(params.dptr == p && params.bytesize == Bytes && params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
	CLAIM(params.poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED && params.accessDescCount == 0);
	CHECK(cuGraphMemFreeNodeGetParams(freed, &address));
	CLAIM(address == p);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphMemAllocNodeGetParams(freed, &params));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphMemFreeNodeGetParams(freed, NULL));
	CHECK(cuGraphNodeGetType(alloc, &type));
	CLAIM(type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	CHECK(cuGraphNodeGetType(freed, &type));
	CLAIM(type == CU_GRAPH_NODE_TYPE_MEM_FREE);
	CLAIM(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 2 * Bytes);
	CLAIM(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) >= 2 * Bytes);

	/* Such a graph cannot be changed, and has one executable graph at a time. */
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&h, g));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode(filled));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphRemoveDependencies(g, &alloc, &filled, 1));
	CHECK(cuGraphCreate(&h, 0));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&n, h, NULL, 0, g));
	CHECK(cuGraphDestroy(h));
	e = executable(g);
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&never, g, 0));
	for (int i = 0; i < 3; i++) {
		CHECK(cuMemsetD32(cell, 0, 3));
		run(e, 1);
		CLAIM(value(0) == 42 && value(1) == 7 && value(2) == 9);
	}
	run(e, 5);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p)); /* the graph frees it */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p, stream));
	CUgraphExecUpdateResultInfo info;
	CHECK(cuGraphExecUpdate(e, g, &info)); /* with itself */
	CHECK(cuGraphExecDestroy(e));
	e = executable(g); /* after the other one was destroyed */
	run(e, 1);
	CHECK(cuGraphExecDestroy(e));
	CHECK(cuGraphDestroy(g));
	CLAIM(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
	CLAIM(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 2 * Bytes);
	cuuint64_t zero = 0, one = 1;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
	CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
	CLAIM(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 0);
	CHECK(cuDeviceGraphMemTrim(0));
	CLAIM(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGraphMemTrim(99));

	/* Memory that a graph doesn't free lives until it is freed, and until then the graph can't run again. */
	CHECK(cuGraphCreate(&g, 0));
	p = add_alloc(g, NULL, 0, Bytes, &alloc);
	add_fill(g, &alloc, 1, p, 5, Words);
	e = executable(g);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p)); /* not allocated yet */
	run(e, 1);
	CLAIM(word_at(p + Bytes - 4) == 5);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(e, stream));
	CHECK(cuMemFreeAsync(p, stream));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p, stream));
	run(e, 1);
	CHECK(cuMemFree(p));
	run(e, 1);
	/* Another graph may free it, but then this one can't any more. */
	CHECK(cuGraphCreate(&h, 0));
	n = add_copy(h, add_fill(h, NULL, 0, at(3), 0, 1), at(4), p);
	CHECK(cuGraphAddMemFreeNode(&freed, h, &n, 1, p));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&n, h, NULL, 0, p));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&n, g, &alloc, 1, p));
	f = executable(h);
	run(f, 1);
	CLAIM(value(4) == 5);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(f, stream)); /* there is no live allocation */
	run(e, 1);
	/* It outlives the graphs. */
	CHECK(cuGraphExecDestroy(f));
	CHECK(cuGraphDestroy(h));
	CHECK(cuGraphAddMemFreeNode(&n, g, &alloc, 1, p)); /* the other free node no longer exists */
	CHECK(cuGraphExecDestroy(e));
	CHECK(cuGraphDestroy(g));
	CLAIM(word_at(p) == 5 && graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == Bytes);
	CHECK(cuMemFreeAsync(p, stream));
	CLAIM(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);

	/* Launches may free memory that earlier ones left. */
	CHECK(cuGraphCreate(&g, 0));
	p = add_alloc(g, NULL, 0, Bytes, &alloc);
	add_step(g, (CUgraphNode[]){add_fill(g, &alloc, 1, p, 5, Words)}, 1, 0, 1, 1);
	CHECK(cuMemsetD32(cell, 0, 1));
	CHECK(cuGraphInstantiate(&e, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	run(e, 4);
	CLAIM(value(0) == 4 && word_at(p) == 5);
	CHECK(cuMemFree(p));
	run(e, 1);
	/* A graph with allocations of its own cannot update another one. */
	CHECK(cuGraphCreate(&h, 0));
	q = add_alloc(h, NULL, 0, Bytes, &alloc);
	add_step(h, (CUgraphNode[]){add_fill(h, &alloc, 1, q, 5, Words)}, 1, 0, 1, 1);
	EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(e, h, &info));
	CLAIM(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED && info.errorNode == alloc);

	CUDA_MEM_ALLOC_NODE_PARAMS bad = of_bytes(0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&n, h, NULL, 0, &bad));
	bad = of_bytes((size_t)1 << 60);
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphAddMemAllocNode(&n, h, NULL, 0, &bad));
	bad = of_bytes(4096);
	bad.poolProps.location.id = 99;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&n, h, NULL, 0, &bad));
	bad = of_bytes(4096);
	bad.accessDescCount = 1;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&n, h, NULL, 0, &bad));
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	bad.accessDescs = &access;
	CHECK(cuGraphAddMemAllocNode(&n, h, NULL, 0, &bad));
	CHECK(cuGraphMemAllocNodeGetParams(n, &params));
	CLAIM(params.accessDescCount == 1 && params.accessDescs != &access && params.accessDescs->flags == access.flags);
	/* All of it is freed with the context. */
	run(e, 1);
	CHECK(cuCtxDestroy(context));
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuGraphExecDestroy(e));
	CHECK(cuGraphDestroy(g));
	CHECK(cuGraphDestroy(h));
	CLAIM(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0 && graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
}

/* As test_memory, by capture, which is the usual way. */
static void test_memorycapture(void)
{
	CUgraph g;
	CUgraphExec e;
	CUdeviceptr p, q, outside, none = 1;
	CUevent fork, join;
	CUmemoryPool pool;
	size_t count;
	CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAllocAsync(&outside, 4096, stream));
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuMemAllocAsync(&p, 4096, stream));
	CHECK(cuMemsetD32Async(p, 3, 1024, stream));
	CHECK(cuEventRecord(fork, stream));
	CHECK(cuStreamWaitEvent(other, fork, 0));
	launch_step(step, other, p, 5, 1); /* 16 */
	CHECK(cuEventRecord(join, other));
	CHECK(cuStreamWaitEvent(stream, join, 0));
	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuMemAllocFromPoolAsync(&q, 8192, pool, stream));
	launch_move(move, stream, q, p);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(outside, stream)); /* not memory of a graph */
	CHECK(cuMemAllocAsync(&none, 0, stream)); /* no node */
	CLAIM(none == 0);
	CHECK(cuMemFreeAsync(none, stream));
	CHECK(cuMemFreeAsync(p, stream));
	CHECK(cuStreamEndCapture(stream, &g));
	CHECK(cuMemFreeAsync(outside, stream));
	CHECK(cuGraphGetNodes(g, NULL, &count));
	CLAIM(count == 6);
	e = executable(g);
	for (int i = 0; i < 10; i++) {
		run(e, 1);
		CLAIM(word_at(q) == 16);
		CUmemoryPool of = (CUmemoryPool)1;
		CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, q));
		CLAIM(of == NULL); /* it belongs to the graph */
		CHECK(cuMemFreeAsync(q, i % 2 ? stream : other));
		CHECK(cuStreamSynchronize(other));
	}
	/* Many in sequence: the memory is reused. */
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CUdeviceptr first = 0;
	for (unsigned i = 0; i < 100; i++) {
		CHECK(cuMemAllocAsync(&p, 1 << 20, stream));
		CLAIM(i == 0 || p == first);
		first = p;
		CHECK(cuMemsetD32Async(p, i, 1 << 18, stream));
		launch_move(move, stream, at(i), p);
		CHECK(cuMemFreeAsync(p, stream));
	}
	CHECK(cuStreamEndCapture(stream, &g));
	run(executable(g), 2);
	for (unsigned i = 0; i < 100; i++)
		CLAIM(value(i) == i);
}

static void test_dot(const char *path)
{
	CUgraph g, child;
	CUgraphNode n;
	char text[8192] = "";
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphCreate(&child, 0));
	add_step(child, NULL, 0, 0, 1, 1);
	n = add_step(g, NULL, 0, 0, 1, 1);
	CHECK(cuGraphAddChildGraphNode(&n, g, &n, 1, child));
	add_step(g, &n, 1, 0, 2, 0);
	CHECK(cuGraphDebugDotPrint(g, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
	FILE *f = fopen(path, "r");
	CLAIM(f && fread(text, 1, sizeof text - 1, f) > 0);
	CLAIM(strstr(text, "digraph") && strstr(text, "step<<<(1,1,1)") && strstr(text, "->"));
	run(executable(g), 1);
	CLAIM(value(0) == 4);
	EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint(g, "/nowhere/at/all", 0));
}

enum { Crowd = 4, Rounds = 60 };
static CUgraphExec shared_exec;
static CUgraphNode shared_node;

/*
 * One of several threads that create, capture, change, launch and destroy graphs concurrently: their own, and a shared
 * one.
 */
static void *one_of_crowd(void *number)
{
	unsigned me = (unsigned)(uintptr_t)number;
	CUstream s, t;
	CUevent fork, join;
	uint32_t *host = malloc(4);
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < Rounds; i++) {
		CUgraph g;
		CUgraphExecUpdateResultInfo info;
		CUgraphExec e = NULL;
		CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
		CHECK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
		for (unsigned again = 0; again < 2; again++) {
			*host = i;
			CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
			CHECK(cuMemcpyHtoDAsync(at(me), host, 4, s));
			CHECK(cuEventRecord(fork, s));
			CHECK(cuStreamWaitEvent(t, fork, 0));
			launch_step(step, t, at(me), 10, 1 + again);
			CHECK(cuEventRecord(join, t));
			CHECK(cuStreamWaitEvent(s, join, 0));
			CHECK(cuMemcpyDtoHAsync(host, at(me), 4, s));
			CHECK(cuLaunchHostFunc(s, add_three, host));
			CHECK(cuStreamEndCapture(s, &g));
			if (e)
				CHECK(cuGraphExecUpdate(e, g, &info));
			else
				CHECK(cuGraphInstantiate(&e, g, 0));
			CHECK(cuGraphDestroy(g));
			CHECK(cuGraphLaunch(e, again ? t : s));
			CHECK(cuStreamSynchronize(again ? t : s));
			CLAIM(*host == i * 10 + 4 + again);
		}
		unsigned a = 1, b = 1;
		CUdeviceptr p = at(100);
		void *args[] = {&p, &a, &b};
		CUDA_KERNEL_NODE_PARAMS k = {
			.func = step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = args,
		};
		CHECK(cuGraphExecKernelNodeSetParams(shared_exec, shared_node, &k));
		CHECK(cuGraphLaunch(shared_exec, s));
		CHECK(cuGraphLaunch(e, s)); /* without waiting for it */
		CHECK(cuGraphExecDestroy(e));
		CHECK(cuStreamSynchronize(s));
		CHECK(cuStreamDestroy(t));
		CHECK(cuStreamDestroy(s));
	}
	CHECK(cuEventDestroy(fork));
	CHECK(cuEventDestroy(join));
	return NULL;
}

static void test_crowd(void)
{
	pthread_t all[Crowd];
	CUgraph g;
	CHECK(cuGraphCreate(&g, 0));
	shared_node = add_step(g, NULL, 0, 100, 1, 1);
	shared_exec = executable(g);
	for (uintptr_t i = 0; i < Crowd; i++)
		if (pthread_create(&all[i], NULL, one_of_crowd, (void *)i))
			abort();
	for (int i = 0; i < Crowd; i++)
		pthread_join(all[i], NULL);
	CLAIM(value(100) == Crowd * Rounds);
}

enum { Races = 10000 };
static CUstream raced;
static CUevent race_event;
static _Atomic unsigned race_round;

static void *racing_waiter(void *unused)
{
	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	for (unsigned round = 1; round <= Races; round++) {
		while (race_round < 2 * round - 1)
			;
		cuStreamWaitEvent(raced, race_event, 0);
		race_round = 2 * round;
	}
	return NULL;
}

/* A stream that begins a capture while another thread makes it join a second one is in one of them, and both end. */
static void test_race(void)
{
	pthread_t waiter;
	CUgraph g;
	CUdeviceptr p;
	CHECK(cuStreamCreate(&raced, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&race_event, CU_EVENT_DISABLE_TIMING));
	CLAIM(pthread_create(&waiter, NULL, racing_waiter, NULL) == 0);
	for (unsigned round = 1; round <= Races; round++) {
		CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		CHECK(cuEventRecord(race_event, stream));
		race_round = 2 * round - 1;
		for (volatile unsigned i = round % 400; i > 0; i--)
			;
		cuStreamBeginCapture(raced, CU_STREAM_CAPTURE_MODE_GLOBAL);
		while (race_round < 2 * round)
			;
		if (cuStreamEndCapture(raced, &g) == CUDA_SUCCESS)
			CHECK(cuGraphDestroy(g));
		if (cuStreamEndCapture(stream, &g) == CUDA_SUCCESS)
			CHECK(cuGraphDestroy(g));
	}
	pthread_join(waiter, NULL);
	CHECK(cuMemAlloc(&p, 512)); /* no capture is left that forbids it */
	CHECK(cuMemFree(p));
}

/* Launches a graph that takes as long as hundreds of kernels, repeatedly. */
static void run_long(void)
{
	CUfunction spin;
	CUgraph g;
	CUgraphNode n;
	unsigned steps = 1000 * 1000;
	void *args[] = {&steps};
	CHECK(cuModuleGetFunction(&spin, module, "spin"));
	CUDA_KERNEL_NODE_PARAMS params = {
		.func = spin, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = args,
	};
	CHECK(cuGraphCreate(&g, 0));
	for (int i = 0; i < 3000; i++)
		CHECK(cuGraphAddKernelNode(&n, g, i ? &n : NULL, i > 0, &params));
	CUgraphExec e = executable(g);
	for (;;)
		run(e, 1);
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";
	start();
	if (!strcmp(part, "build"))
		test_build();
	else if (!strcmp(part, "edges"))
		test_edges();
	else if (!strcmp(part, "pageable"))
		test_pageable();
	else if (!strcmp(part, "capture"))
		test_capture();
	else if (!strcmp(part, "refusals"))
		test_refusals();
	else if (!strcmp(part, "update"))
		test_update();
	else if (!strcmp(part, "child"))
		test_child();
	else if (!strcmp(part, "events"))
		test_events();
	else if (!strcmp(part, "order"))
		test_order();
	else if (!strcmp(part, "objects"))
		test_objects();
	else if (!strcmp(part, "kept"))
		test_kept();
	else if (!strcmp(part, "crowd"))
		test_crowd();
	else if (!strcmp(part, "race"))
		test_race();
	else if (!strcmp(part, "gone"))
		test_gone();
	else if (!strcmp(part, "memory"))
		test_memory();
	else if (!strcmp(part, "memorycapture"))
		test_memorycapture();
	else if (!strcmp(part, "long"))
		run_long();
	else if (!strcmp(part, "dot"))
		test_dot(argv[2]);
	else
		return 2;
	return 0;
}
