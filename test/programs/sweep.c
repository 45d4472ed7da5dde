/*
 * Every function of the API, called right (sweep_calls.h), in several situations: sweep PART [SYMBOL].
 *
 *	plain    nothing else going on: each succeeds
 *	capture  while a stream captures, by all modes
 *	fault    in a context that has failed; and in another one beside it
 *	late     right after the launch of a kernel that fails: the first call that waits returns its error
 *	nulls    with one argument 0 or null, or all its bits set (sweep_nulls.h)
 *
 * Each call gets objects of its own in a context of its own.
 */
#include "../../cuda/testdata/c/zz_calls.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 1 << 16, PAGE = 2 << 20, PARAMETERS = 16, CALLS = sizeof calls / sizeof *calls };

/* --- objects used by the calls --- */

static const char ptx[] =
	".version 7.0\n.target sm_50\n.address_size 64\n"
	".global .texref t;\n.global .surfref s;\n.visible .global .align 8 .u64 word;\n"
	".visible .entry noop()\n{\n	ret;\n}\n"
	".visible .entry work(.param .u64 at, .param .u32 value)\n{\n"
	"	.reg .u64 %p;\n	.reg .u32 %v;\n"
	"	ld.param.u64 %p, [at];\n	ld.param.u32 %v, [value];\n	st.global.u32 [%p], %v;\n	ret;\n}\n";

static char ptxFile[] = "/tmp/sweep-XXXXXX", busId[32];
static CUcontext context, other, retained;
static CUmodule module, spareModule;
static CUfunction function, plain;
static CUlibrary library, spareLibrary;
static CUkernel kernel;
static CUlinkState linking;
static CUstream s, t, spareStream;
static CUevent done, within, fresh, shared;
static CUdeviceptr memory, more, spare, managed, pooled, sharedPooled, kept, reserved, mapped;
static CUmemGenericAllocationHandle piece, shareable;
static uint64_t exported, exportedPool;
static CUmemoryPool pool, sparePool, sharedPool, importedPool;
static CUmemPoolPtrExportData exportedPointer;
static CUarray array, array2, spareArray;
static CUmipmappedArray mipmap, spareMipmap;
static CUtexObject texture, spareTexture;
static CUsurfObject surface, spareSurface;
static CUtexref texref;
static CUsurfref surfref;
static CUgraph graph, inner, clone, emptyGraph, allocGraph;
static CUgraphNode emptyNode, kernelNode, copyNode, fillNode, hostNode, childNode, recordNode, waitNode, allocNode, freeNode;
static CUgraphExec exec, spareExec, allocExec;
static CUuserObject userObject, graphsObject;
static void *pinned, *sparePinned;
static uint8_t *pages, *registered;

static uint64_t scratch[512], outputOf[3][512], zeros[8], count[1], policy[8] = {CU_SYNC_POLICY_YIELD};
static CUstreamCaptureMode exchanged;
static void *outputs[1] = {outputOf[0]};
static size_t sizes[8] = {64}, sizes4[1] = {4}; /* the entries behind the first of several are invalid */
static CUdeviceptr memoryOf[8], moreOf[8], managedOf[8];
static CUpointer_attribute attributes[1] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
static CUmem_range_attribute rangeAttributes[1] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};
static CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
static CUmemAccessDesc allowed[8] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
static CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static CUmemPoolProps poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static CUDA_ARRAY_DESCRIPTOR shape = {.Width = 64, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
static CUDA_ARRAY3D_DESCRIPTOR shape3 = {.Width = 64, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
static CUDA_ARRAY3D_DESCRIPTOR line = {.Width = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
static CUDA_RESOURCE_DESC resource;
static CUDA_TEXTURE_DESC sampling;
static CUDA_MEMCPY2D flat;
static CUDA_MEMCPY3D box;
static CUDA_MEMCPY3D_PEER peer;
static CUDA_MEMCPY3D_BATCH_OP operations[8];
static CUmemcpyAttributes ordered = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
static CUstreamBatchMemOpParams writing;
static CUDA_KERNEL_NODE_PARAMS_v1 kernelParams1;
static CUDA_KERNEL_NODE_PARAMS kernelParams;
static CUDA_MEMSET_NODE_PARAMS fillParams;
static CUDA_HOST_NODE_PARAMS hostParams;
static CUDA_MEM_ALLOC_NODE_PARAMS allocParams;
static CUgraphNodeParams nodeParams;
static CUDA_GRAPH_INSTANTIATE_PARAMS instantiateParams;
static CUlaunchConfig config;
static uint32_t value = 7;
static void *values[] = {&memory, &value};
static _Alignas(128) uint8_t tensor[128];
static const cuuint64_t dims[] = {64, 32, 16, 8}, strides[] = {128, 4096, 65536};
static const cuuint32_t tile[] = {8, 7}, steps[] = {1, 1, 1, 1};
static const int corners[] = {0, 0};

static void nothing(void) {}

static uint8_t *new_pages(void) { return mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static void make_memory(void)
{
	CHECK(cuMemAlloc_v2(&memory, BYTES));
	CHECK(cuMemAlloc_v2(&more, BYTES));
	CHECK(cuMemAlloc_v2(&spare, BYTES));
	CHECK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemHostAlloc(&pinned, BYTES, 0));
	CHECK(cuMemHostAlloc(&sparePinned, BYTES, 0));
	registered = pages + 4096;
	CHECK(cuMemHostRegister_v2(registered, 4096, 0));
	CHECK(cuMemsetD8_v2(memory, 0, BYTES));
	CHECK(cuMemPoolCreate(&pool, &poolProps));
	CHECK(cuMemPoolCreate(&sparePool, &poolProps));
	CHECK(cuMemAllocFromPoolAsync(&pooled, BYTES, pool, t));
	CHECK(cuMemAddressReserve(&reserved, PAGE, 0, 0, 0));
	CHECK(cuMemAddressReserve(&mapped, PAGE, 0, 0, 0));
	CHECK(cuMemCreate(&piece, PAGE, &property, 0));
	CHECK(cuMemMap(mapped, PAGE, 0, piece, 0));
	CHECK(cuMemSetAccess(mapped, PAGE, allowed, 1));
	CUmemAllocationProp passed = property;
	passed.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	int fd;
	CHECK(cuMemCreate(&shareable, PAGE, &passed, 0));
	CHECK(cuMemExportToShareableHandle(&fd, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	exported = (uint64_t)fd;
}

/* A pool with an allocation, both exported; the pool is imported into the same process. */
static void make_shared_pool(void)
{
	CUmemPoolProps passed = poolProps;
	passed.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	int fd;
	CHECK(cuMemPoolCreate(&sharedPool, &passed));
	CHECK(cuMemPoolExportToShareableHandle(&fd, sharedPool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	exportedPool = (uint64_t)fd;
	CHECK(cuMemAllocFromPoolAsync(&sharedPooled, BYTES, sharedPool, t));
	CHECK(cuMemPoolExportPointer(&exportedPointer, sharedPooled));
	CHECK(cuMemPoolImportFromShareableHandle(&importedPool, (void *)(uintptr_t)exportedPool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

static void make_arrays(void)
{
	CHECK(cuArray3DCreate_v2(&array, &shape3));
	CHECK(cuArray3DCreate_v2(&array2, &line));
	CHECK(cuArrayDestroy(array));
	CHECK(cuArray3DCreate_v2(&array, &line));
	CHECK(cuArray3DCreate_v2(&spareArray, &shape3));
	CHECK(cuMipmappedArrayCreate(&mipmap, &shape3, 1));
	CHECK(cuMipmappedArrayCreate(&spareMipmap, &shape3, 1));
	resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
	CHECK(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	CHECK(cuTexObjectCreate(&spareTexture, &resource, &sampling, NULL));
	CHECK(cuSurfObjectCreate(&surface, &resource));
	CHECK(cuSurfObjectCreate(&spareSurface, &resource));
	CHECK(cuModuleGetTexRef(&texref, module, "t"));
	CHECK(cuTexRefSetArray(texref, array, CU_TRSA_OVERRIDE_FORMAT));
	CHECK(cuModuleGetSurfRef(&surfref, module, "s"));
	CHECK(cuSurfRefSetArray(surfref, array, 0));
}

static void describe(void)
{
	flat = (CUDA_MEMCPY2D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = more, .srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory,
		.dstPitch = 64, .WidthInBytes = 16, .Height = 4,
	};
	box = (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = more, .srcPitch = 64, .srcHeight = 4, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = memory, .dstPitch = 64, .dstHeight = 4, .WidthInBytes = 16, .Height = 4, .Depth = 2,
	};
	peer = (CUDA_MEMCPY3D_PEER){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = more, .srcPitch = 64, .srcHeight = 4, .srcContext = context,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory, .dstPitch = 64, .dstHeight = 4, .dstContext = context,
		.WidthInBytes = 16, .Height = 4, .Depth = 2,
	};
	memoryOf[0] = memory;
	moreOf[0] = more;
	managedOf[0] = managed;
	operations[0] = (CUDA_MEMCPY3D_BATCH_OP){
		.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = more}, .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = memory},
		.extent = {16, 4, 2}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};
	writing = (CUstreamBatchMemOpParams){.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = memory}};
	kernelParams1 = (CUDA_KERNEL_NODE_PARAMS_v1){
		.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = values,
	};
	kernelParams = (CUDA_KERNEL_NODE_PARAMS){
		.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = values,
	};
	fillParams = (CUDA_MEMSET_NODE_PARAMS){.dst = memory, .elementSize = 1, .width = 64, .height = 1};
	hostParams = (CUDA_HOST_NODE_PARAMS){.fn = (CUhostFn)nothing};
	nodeParams = (CUgraphNodeParams){
		.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = {.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = values},
	};
	allocParams = (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = poolProps, .bytesize = BYTES};
	instantiateParams = (CUDA_GRAPH_INSTANTIATE_PARAMS){0};
	config = (CUlaunchConfig){.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = s};
}

static void make_graphs(void)
{
	CHECK(cuUserObjectCreate(&userObject, NULL, (CUhostFn)nothing, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CHECK(cuUserObjectCreate(&graphsObject, NULL, (CUhostFn)nothing, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CHECK(cuGraphCreate(&emptyGraph, 0));
	CHECK(cuGraphCreate(&inner, 0));
	CHECK(cuGraphAddMemsetNode(&fillNode, inner, NULL, 0, &fillParams, context));
	CHECK(cuGraphCreate(&graph, 0));
	CHECK(cuGraphAddEmptyNode(&emptyNode, graph, NULL, 0));
	CHECK(cuGraphAddKernelNode_v2(&kernelNode, graph, &emptyNode, 1, &kernelParams));
	CHECK(cuGraphAddMemcpyNode(&copyNode, graph, NULL, 0, &box, context));
	CHECK(cuGraphAddMemsetNode(&fillNode, graph, NULL, 0, &fillParams, context));
	CHECK(cuGraphAddHostNode(&hostNode, graph, NULL, 0, &hostParams));
	CHECK(cuGraphAddChildGraphNode(&childNode, graph, NULL, 0, inner));
	CHECK(cuGraphAddEventRecordNode(&recordNode, graph, NULL, 0, done));
	CHECK(cuGraphAddEventWaitNode(&waitNode, graph, NULL, 0, done));
	CHECK(cuGraphRetainUserObject(graph, graphsObject, 1, 0));
	CHECK(cuGraphClone(&clone, graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphInstantiateWithFlags(&spareExec, graph, 0));
	count[0] = 8;
}

/* A graph, launched once, that keeps one allocation and frees another. */
static void make_allocations(void)
{
	CUgraphNode freed;
	CHECK(cuGraphCreate(&allocGraph, 0));
	CHECK(cuGraphAddMemAllocNode(&allocNode, allocGraph, NULL, 0, &allocParams));
	kept = allocParams.dptr;
	CHECK(cuGraphAddMemAllocNode(&freed, allocGraph, NULL, 0, &allocParams));
	CHECK(cuGraphAddMemFreeNode(&freeNode, allocGraph, &freed, 1, allocParams.dptr));
	CHECK(cuGraphInstantiateWithFlags(&allocExec, allocGraph, 0));
	CHECK(cuGraphLaunch(allocExec, t));
}

/* Makes all of that, in a new context. */
static void make(unsigned streamFlags)
{
	exchanged = CU_STREAM_CAPTURE_MODE_GLOBAL;
	CHECK(cuThreadExchangeStreamCaptureMode(&exchanged));
	exchanged = CU_STREAM_CAPTURE_MODE_GLOBAL;
	CHECK(cuCtxCreate_v2(&other, 0, 0));
	CHECK(cuCtxPopCurrent_v2(NULL));
	CHECK(cuDevicePrimaryCtxRetain(&retained, 0));
	CHECK(cuCtxCreate_v2(&context, 0, 0));
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuModuleLoadData(&spareModule, ptx));
	CHECK(cuModuleGetFunction(&function, module, "work"));
	CHECK(cuModuleGetFunction(&plain, module, "noop"));
	CHECK(cuFuncSetBlockShape(plain, 1, 1, 1));
	CHECK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(cuLibraryGetKernel(&kernel, library, "work"));
	CHECK(cuLibraryLoadData(&spareLibrary, ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(cuLinkCreate_v2(0, NULL, NULL, &linking));
	CHECK(cuLinkAddData_v2(linking, CU_JIT_INPUT_PTX, (void *)ptx, sizeof ptx, NULL, 0, NULL, NULL));
	CHECK(cuStreamCreate(&s, streamFlags));
	CHECK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&spareStream, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&done, 0));
	CHECK(cuEventCreate(&within, 0));
	CHECK(cuEventCreate(&fresh, 0));
	CHECK(cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(done, t));
	CHECK(cuEventRecord(within, t));
	make_memory();
	make_shared_pool();
	make_arrays();
	describe();
	make_graphs();
	make_allocations();
	CHECK(cuCtxSynchronize());
}

/* Destroys these objects, and those that the context doesn't own. */
static void unmake(void)
{
	cuCtxSetCurrent(context);
	cuMemHostUnregister(registered);
	cuMemHostUnregister(pages);
	cuMemUnmap(mapped, PAGE);
	cuMemUnmap(reserved, PAGE);
	cuMemRelease(piece);
	cuMemRelease(shareable);
	cuMemAddressFree(mapped, PAGE);
	cuMemAddressFree(reserved, PAGE);
	close((int)exported);
	close((int)exportedPool);
	cuMemPoolDestroy(pool);
	cuMemPoolDestroy(sparePool);
	cuMemPoolDestroy(importedPool);
	cuMemPoolDestroy(sharedPool);
	cuGraphExecDestroy(exec);
	cuGraphExecDestroy(spareExec);
	cuGraphExecDestroy(allocExec);
	cuGraphDestroy(graph);
	cuGraphDestroy(inner);
	cuGraphDestroy(clone);
	cuGraphDestroy(emptyGraph);
	cuGraphDestroy(allocGraph);
	cuUserObjectRelease(userObject, 2);
	cuUserObjectRelease(graphsObject, 1);
	cuLinkDestroy(linking);
	cuLibraryUnload(library);
	cuLibraryUnload(spareLibrary);
	cuCtxDestroy_v2(context);
	cuCtxDestroy_v2(other);
	while (cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS)
		;
	while (cuCtxPopCurrent_v2(NULL) == CUDA_SUCCESS)
		;
}

/* --- the table --- */

enum under { FREE, NODE, UNSAFE, STREAM, KEPT, CONTEXT, LEGACY, SHOWN, EVENT, ISOLATED, OWN };
enum after { LIVES, FAILS };

#define A(what) ((uint64_t)(uintptr_t)(what))
#define OUT A(outputOf[0])
#define OUT2 A(outputOf[1])
#define OUT3 A(outputOf[2])
#define JOIN(a, b) a##b
#define FILL(line) JOIN(fill, line)
#define ROW(symbol, under, after, ...) \
	static void FILL(__LINE__)(uint64_t *to) \
	{ \
		const uint64_t all[] = {__VA_ARGS__ __VA_OPT__(,) 0}; \
		memcpy(to, all, sizeof all - sizeof *all); \
	}
#include "sweep_calls.h"
#undef ROW

static const struct row {
	const char *symbol;
	enum under under;
	enum after after;
	void (*fill)(uint64_t *);
} rows[] = {
#define ROW(symbol, under, after, ...) {#symbol, under, after, FILL(__LINE__)},
#include "sweep_calls.h"
#undef ROW
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Valid calls that fail: structures by value are zeros here, and there are no such tables, peers and views. */
static const struct {
	const char *symbol;
	CUresult want;
} others[] = {
	{"cuGetExportTable", CUDA_ERROR_INVALID_VALUE}, {"cuDeviceGetLuid", CUDA_ERROR_NOT_SUPPORTED},
	{"cuDeviceGetP2PAttribute", CUDA_ERROR_INVALID_DEVICE}, {"cuCtxEnablePeerAccess", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED},
	{"cuCtxDisablePeerAccess", CUDA_ERROR_PEER_ACCESS_NOT_ENABLED},
	{"cuLibraryGetManaged", CUDA_ERROR_NOT_FOUND}, {"cuLibraryGetUnifiedFunction", CUDA_ERROR_NOT_FOUND},
	{"cuIpcOpenMemHandle_v2", CUDA_ERROR_INVALID_VALUE}, {"cuIpcCloseMemHandle", CUDA_ERROR_INVALID_VALUE},
	{"cuIpcOpenEventHandle", CUDA_ERROR_MAP_FAILED}, {"cuArrayGetPlane", CUDA_ERROR_INVALID_VALUE},
	{"cuTexObjectGetResourceViewDesc", CUDA_ERROR_INVALID_VALUE}, {"cuTexRefGetAddress_v2", CUDA_ERROR_INVALID_VALUE},
	{"cuTensorMapEncodeTiled", CUDA_ERROR_NOT_SUPPORTED}, {"cuTensorMapEncodeIm2col", CUDA_ERROR_NOT_SUPPORTED},
	{"cuTensorMapReplaceAddress", CUDA_ERROR_NOT_SUPPORTED},
	{"cuMemPrefetchAsync_v2", CUDA_ERROR_INVALID_VALUE}, {"cuStreamEndCapture", CUDA_ERROR_ILLEGAL_STATE},
	{"cuStreamUpdateCaptureDependencies", CUDA_ERROR_ILLEGAL_STATE}, {"cuStreamUpdateCaptureDependencies_v2", CUDA_ERROR_ILLEGAL_STATE},
};

static CUresult usual(const struct row *r)
{
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (!strcmp(others[i].symbol, r->symbol))
			return others[i].want;
	return CUDA_SUCCESS;
}

static int failures;

static void fail(const char *part, const struct call *c, const char *what, int got, int want)
{
	failures++;
	printf("%s: %s: %s %d, want %d\n", part, c->name, what, got, want);
}

static const struct call *named(const char *name)
{
	for (int i = 0; i < CALLS; i++)
		if (!strcmp(calls[i].name, name))
			return &calls[i];
	return NULL;
}

static CUresult perform(const struct row *r, const struct call *c)
{
	uint64_t a[PARAMETERS + 1] = {0};
	r->fill(a);
	return c->call(a);
}

/* A symbol's base: without the suffixes of its versions and of the per-thread default stream. */
static size_t base(const char *symbol)
{
	size_t n = strlen(symbol);
	if (n > 5 && (!strcmp(symbol + n - 5, "_ptsz") || !strcmp(symbol + n - 5, "_ptds")))
		n -= 5;
	if (n > 3 && symbol[n - 3] == '_' && symbol[n - 2] == 'v')
		n -= 3;
	return n;
}

/* Checks completeness: each implemented function has a row. */
static void whole(void)
{
	for (int i = 0; i < CALLS; i++) {
		bool there = !calls[i].implemented;
		for (int k = 0; k < ROWS && !there; k++)
			there = base(rows[k].symbol) == base(calls[i].name) && !strncmp(rows[k].symbol, calls[i].name, base(calls[i].name));
		if (!there) {
			failures++;
			printf("%s has no row\n", calls[i].name);
		}
	}
	for (int k = 0; k < ROWS; k++)
		if (!named(rows[k].symbol)) {
			failures++;
			printf("no symbol %s\n", rows[k].symbol);
		}
}

static const char *only;
static bool skipped(const struct row *r) { return only && strcmp(only, r->symbol) != 0; }

static void each_plain(void)
{
	for (const struct row *r = rows; r < rows + ROWS; r++) {
		if (skipped(r))
			continue;
		make(CU_STREAM_DEFAULT);
		CUresult got = perform(r, named(r->symbol));
		if (got != usual(r))
			fail("plain", named(r->symbol), "result", got, usual(r));
		unmake();
	}
}

/* --- while a stream captures --- */

static const struct situation {
	const char *name;
	CUstreamCaptureMode mode;
	bool elsewhere, relaxed; /* another thread captures; this one has exchanged its mode */
	unsigned flags;          /* of the stream */
} situations[] = {
	{"global", CU_STREAM_CAPTURE_MODE_GLOBAL, false, false, CU_STREAM_DEFAULT},
	{"thread", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, false, CU_STREAM_DEFAULT},
	{"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, false, false, CU_STREAM_DEFAULT},
	{"global elsewhere", CU_STREAM_CAPTURE_MODE_GLOBAL, true, false, CU_STREAM_DEFAULT},
	{"thread elsewhere", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, false, CU_STREAM_DEFAULT},
	{"exchanged", CU_STREAM_CAPTURE_MODE_GLOBAL, false, true, CU_STREAM_DEFAULT},
	{"apart", CU_STREAM_CAPTURE_MODE_RELAXED, false, false, CU_STREAM_NON_BLOCKING},
};

static struct {
	CUresult result;
	bool invalid;
	CUresult again; /* result of a second call, if the first one has invalidated the capture */
} wanted;

static void want(const struct row *r, const struct situation *how, bool own)
{
	bool forbidden = !how->relaxed && (how->mode == CU_STREAM_CAPTURE_MODE_GLOBAL || (how->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !how->elsewhere));
	bool implied = how->flags != CU_STREAM_NON_BLOCKING && !own;
	CUresult refusal = CUDA_SUCCESS, again = CUDA_SUCCESS;
	wanted.invalid = true;
	switch (r->under) {
	case UNSAFE:
		refusal = again = forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
		break;
	case STREAM:
		refusal = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		again = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		break;
	case KEPT:
		refusal = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		wanted.invalid = false;
		break;
	case CONTEXT:
		refusal = again = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		break;
	case LEGACY:
	case SHOWN:
		refusal = again = implied ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
		wanted.invalid = r->under == LEGACY;
		break;
	case EVENT:
		refusal = again = CUDA_ERROR_CAPTURED_EVENT;
		break;
	case ISOLATED:
		refusal = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
		again = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		break;
	default:
		break;
	}
	wanted.result = refusal ? refusal : usual(r);
	wanted.invalid = wanted.invalid && refusal;
	wanted.again = again;
}

static pthread_barrier_t meeting;

static void begin_capture(const struct situation *how)
{
	CHECK(cuStreamBeginCapture_v2(s, how->mode));
	CHECK(cuEventRecord(within, s));
}

static struct {
	const struct situation *how;
	CUresult ended;
	CUgraph graph;
} captor;

static void *capture_elsewhere(void *unused)
{
	CHECK(cuCtxSetCurrent(context));
	begin_capture(captor.how);
	pthread_barrier_wait(&meeting);
	pthread_barrier_wait(&meeting);
	captor.ended = cuStreamEndCapture(s, &captor.graph);
	return unused;
}

static void one_captured(const struct row *r, const struct call *c, const struct situation *how, bool own)
{
	pthread_t thread;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	char part[64];
	size_t nodes = 0;
	snprintf(part, sizeof part, "capture, %s", how->name);
	want(r, how, own);
	make(how->flags);
	captor.how = how;
	captor.graph = NULL;
	if (how->elsewhere) {
		CLAIM(!pthread_barrier_init(&meeting, NULL, 2) && !pthread_create(&thread, NULL, capture_elsewhere, NULL));
		pthread_barrier_wait(&meeting);
	} else
		begin_capture(how);
	if (how->relaxed)
		CHECK(cuThreadExchangeStreamCaptureMode(&mode));
	CUresult got = perform(r, c), again = CUDA_SUCCESS;
	if (got != wanted.result)
		fail(part, c, "result", got, wanted.result);
	cuStreamIsCapturing(s, &status);
	if (status != (wanted.invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE))
		fail(part, c, "status", status, wanted.invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE);
	else if (wanted.invalid && (again = perform(r, c)) != wanted.again)
		fail(part, c, "result when called again", again, wanted.again);
	if (how->relaxed)
		CHECK(cuThreadExchangeStreamCaptureMode(&mode));
	if (how->elsewhere) {
		pthread_barrier_wait(&meeting);
		pthread_join(thread, NULL);
		pthread_barrier_destroy(&meeting);
	} else
		captor.ended = cuStreamEndCapture(s, &captor.graph);
	CUresult end = wanted.invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
	if (captor.ended != end)
		fail(part, c, "end of the capture", captor.ended, end);
	if (captor.ended == CUDA_SUCCESS && cuGraphGetNodes(captor.graph, NULL, &nodes) == CUDA_SUCCESS && (nodes > 0) != (r->under == NODE))
		fail(part, c, "nodes", (int)nodes, r->under == NODE);
	if (captor.graph)
		cuGraphDestroy(captor.graph);
	unmake();
}

static bool also_unsafe(const struct row *r)
{
	for (const struct row *q = rows; q < rows + ROWS; q++)
		if (q->under == UNSAFE && !strcmp(q->symbol, r->symbol))
			return true;
	return false;
}

/*
 * The variants for the per-thread default stream follow the same rules, but with that stream, which doesn't capture, in
 * place of the legacy one.
 */
static void variants(const struct row *r, const struct situation *how)
{
	if (r->under == LEGACY && also_unsafe(r))
		return;
	static const char *const suffixes[] = {"_ptsz", "_ptds"};
	char name[128];
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof name, "%s%s", r->symbol, suffixes[i]);
		const struct call *c = named(name);
		if (c)
			one_captured(r, c, how, r->under == LEGACY || r->under == SHOWN);
	}
}

static void each_captured(void)
{
	for (const struct row *r = rows; r < rows + ROWS; r++) {
		if (skipped(r) || r->under == OWN)
			continue;
		for (size_t i = 0; i < sizeof situations / sizeof *situations; i++)
			one_captured(r, named(r->symbol), &situations[i], false);
		variants(r, &situations[0]);
	}
	for (int i = 0; i < CALLS; i++) { /* unimplemented calls disturb no capture */
		uint64_t a[PARAMETERS] = {0};
		CUgraph g;
		if (calls[i].implemented || only)
			continue;
		CHECK(cuCtxCreate_v2(&context, 0, 0));
		CHECK(cuStreamCreate(&s, 0));
		CHECK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
		CUresult got = calls[i].call(a);
		if (got != CUDA_ERROR_NOT_SUPPORTED)
			fail("capture", &calls[i], "result", got, CUDA_ERROR_NOT_SUPPORTED);
		got = cuStreamEndCapture(s, &g);
		if (got != CUDA_SUCCESS)
			fail("capture", &calls[i], "end of the capture", got, CUDA_SUCCESS);
		cuCtxDestroy_v2(context);
	}
}

/* --- in a context that has failed --- */

static void fault(void)
{
	CUdeviceptr nowhere = 16;
	void *bad[] = {&nowhere, &value};
	CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, t, bad, NULL));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(t));
}

static void each_faulty(void)
{
	for (const struct row *r = rows; r < rows + ROWS; r++) {
		if (skipped(r))
			continue;
		CUresult must = r->after == FAILS ? CUDA_ERROR_ILLEGAL_ADDRESS : usual(r);
		make(CU_STREAM_DEFAULT);
		fault();
		CUresult got = perform(r, named(r->symbol));
		if (got != must)
			fail("fault", named(r->symbol), "result", got, must);
		got = cuCtxSetCurrent(context);
		if (got == CUDA_SUCCESS)
			got = cuCtxSynchronize();
		if (got != CUDA_ERROR_ILLEGAL_ADDRESS && strncmp(r->symbol, "cuCtxDe", 7) != 0)
			fail("fault", named(r->symbol), "context afterwards", got, CUDA_ERROR_ILLEGAL_ADDRESS);
		unmake();
	}
	make(CU_STREAM_DEFAULT); /* another context is unaffected */
	fault();
	pages = new_pages();
	each_plain();
}

/* --- which call first returns the error of a kernel --- */

static const char faulty[] =
	".version 7.0\n.target sm_50\n.address_size 64\n"
	".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n"
	".global .align 8 .b8 text[8] = {119, 114, 111, 110, 103, 0, 0, 0};\n"
	".visible .entry wild()\n{\n	.reg .u64 %p;\n	mov.u64 %p, 16;\n	st.global.u32 [%p], 1;\n	ret;\n}\n"
	".visible .entry askew(.param .u64 at)\n{\n	.reg .u64 %p;\n	ld.param.u64 %p, [at];\n	st.global.u32 [%p+2], 1;\n	ret;\n}\n"
	".visible .entry traps()\n{\n	trap;\n	ret;\n}\n"
	".visible .entry asserts()\n{\n	.reg .u64 %t;\n	mov.u64 %t, text;\n	cvta.global.u64 %t, %t;\n"
	"	call __assertfail, (%t, %t, 1, %t, 1);\n	ret;\n}\n";

static const struct kind_of_fault {
	const char *kernel;
	CUresult result;
} faults[] = {
	{"wild", CUDA_ERROR_ILLEGAL_ADDRESS}, {"askew", CUDA_ERROR_MISALIGNED_ADDRESS}, {"traps", CUDA_ERROR_LAUNCH_FAILED},
	{"asserts", CUDA_ERROR_ASSERT},
};

static CUevent behind; /* recorded in the stream of the kernel, behind it */
static CUresult told;  /* status passed to a callback behind it */

static void hear(CUstream stream, CUresult status, void *unused)
{
	(void)stream, (void)unused;
	told = status;
}

static CUresult poll(CUresult (*query)(void *), void *of)
{
	CUresult r;
	while ((r = query(of)) == CUDA_ERROR_NOT_READY)
		usleep(200);
	return r;
}

static CUresult query_stream(void *of) { return cuStreamQuery(of); }
static CUresult query_event(void *of) { return cuEventQuery(of); }

static CUresult by_stream(void) { return cuStreamSynchronize(s); }
static CUresult by_context(void) { return cuCtxSynchronize(); }
static CUresult by_event(void) { return cuEventSynchronize(behind); }
static CUresult by_polling_stream(void) { return poll(query_stream, s); }
static CUresult by_polling_event(void) { return poll(query_event, behind); }
static CUresult by_legacy_stream(void) { return cuStreamSynchronize(NULL); }
static CUresult by_copy(void) { return cuMemcpyDtoH_v2(outputOf[0], memory, 64); }
static CUresult by_copy_of_stream(void) { return cuMemcpyDtoHAsync_v2(outputOf[0], memory, 64, s) ?: cuStreamSynchronize(s); }
static CUresult by_copy_aside(void)
{
	return cuStreamWaitEvent(t, behind, 0) ?: cuMemcpyDtoHAsync_v2(outputOf[0], memory, 64, t) ?: cuStreamSynchronize(t);
}
static CUresult by_array(void) { return cuMemcpyAtoH_v2(outputOf[0], array, 0, 64); }
static CUresult by_box(void)
{
	CUDA_MEMCPY3D down = box;
	down.srcDevice = memory;
	down.dstMemoryType = CU_MEMORYTYPE_HOST;
	down.dstHost = outputOf[0];
	return cuMemcpy3D_v2(&down);
}
static CUresult by_graph(void) { return cuGraphLaunch(exec, s) ?: cuStreamSynchronize(s); }
static CUresult by_launch(void) { return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s, values, NULL) ?: cuStreamSynchronize(s); }
static CUresult by_fill(void) { return cuMemsetD8Async(memory, 1, 64, s) ?: cuStreamSynchronize(s); }
static CUresult by_elapsed(void)
{
	float ms;
	return cuEventSynchronize(behind) ?: cuEventElapsedTime(&ms, done, behind);
}

static const struct reporter {
	const char *name;
	CUresult (*call)(void);
} reporters[] = {
	{"cuStreamSynchronize", by_stream}, {"cuCtxSynchronize", by_context}, {"cuEventSynchronize", by_event},
	{"cuStreamQuery", by_polling_stream}, {"cuEventQuery", by_polling_event}, {"cuStreamSynchronize of the legacy stream", by_legacy_stream},
	{"cuMemcpyDtoH", by_copy}, {"cuMemcpyDtoHAsync", by_copy_of_stream}, {"cuMemcpyDtoHAsync of a stream that waits", by_copy_aside},
	{"cuMemcpyAtoH", by_array}, {"cuMemcpy3D", by_box}, {"cuGraphLaunch", by_graph}, {"cuLaunchKernel", by_launch},
	{"cuMemsetD8Async", by_fill}, {"cuEventElapsedTime", by_elapsed},
};
enum { REPORTERS = sizeof reporters / sizeof *reporters };

/*
 * The kernel's stream synchronises with the legacy one. The first call that waits for it returns the error, no copy
 * succeeds, and every later call returns the error.
 */
static void late(const struct kind_of_fault *kind, const struct reporter *first, bool inGraph)
{
	CUmodule m;
	CUfunction f;
	void *at[] = {&memory};
	CUresult got;
	CUgraph g = NULL;
	CUgraphExec x = NULL;
	make(CU_STREAM_DEFAULT);
	memset(outputOf[0], 0x55, 64);
	told = CUDA_SUCCESS;
	CHECK(cuMemcpyHtoD_v2(memory, zeros, 64));
	CHECK(cuModuleLoadData(&m, faulty));
	CHECK(cuModuleGetFunction(&f, m, kind->kernel));
	CHECK(cuEventCreate(&behind, 0));
	if (inGraph) {
		CHECK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, at, NULL));
		CHECK(cuStreamEndCapture(s, &g));
		CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
		CHECK(cuGraphLaunch(x, s));
	} else
		CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, at, NULL));
	got = cuEventRecord(behind, s); /* the context may have failed already */
	if (got == CUDA_SUCCESS)
		got = cuStreamAddCallback(s, hear, NULL, 0);
	if (got == CUDA_SUCCESS)
		got = first->call();
	if (got != kind->result) {
		failures++;
		printf("late: %s, %s: result %d, want %d\n", kind->kernel, first->name, got, kind->result);
	}
	for (int i = 0; i < REPORTERS; i++)
		if ((got = reporters[i].call()) != kind->result) {
			failures++;
			printf("late: %s, %s after %s: result %d, want %d\n", kind->kernel, reporters[i].name, first->name, got, kind->result);
		}
	for (int i = 0; i < 8; i++)
		if (outputOf[0][i] != 0x5555555555555555) {
			failures++;
			printf("late: %s, %s: something was copied\n", kind->kernel, first->name);
			break;
		}
	if (x) {
		cuGraphExecDestroy(x);
		cuGraphDestroy(g);
	}
	unmake();
	if (told != kind->result && told != CUDA_ERROR_CONTEXT_IS_DESTROYED && told != CUDA_SUCCESS) { /* destroying the context may run it */
		failures++;
		printf("late: %s, %s: a callback was told %d\n", kind->kernel, first->name, told);
	}
}

static void each_late(void)
{
	for (size_t k = 0; k < sizeof faults / sizeof *faults; k++)
		for (int i = 0; i < REPORTERS; i++)
			if (!only || !strcmp(only, reporters[i].name))
				late(&faults[k], &reporters[i], false), late(&faults[k], &reporters[i], true);
}

/* --- with one invalid argument --- */

enum { NO = -1 }; /* not tried: pointers must be valid; a count must match its memory */

static const struct extreme {
	const char *symbol;
	short zero[PARAMETERS], ones[PARAMETERS];
} extremes[] = {
#define EXTREME(symbol, ...) {#symbol, __VA_ARGS__},
#define LIST(...) {__VA_ARGS__}
#include "sweep_nulls.h"
};

static bool tried(enum kind k, bool ones)
{
	bool pointer = (k >= KIND_MEMORY && k <= KIND_CALLBACK) || k == KIND_COUNT;
	return k != KIND_FLOAT && k != KIND_VALUE && !(ones && pointer);
}

static bool documented(const struct call *c, int result)
{
	for (int i = 0; i < c->resultCount; i++)
		if (c->results[i] == result)
			return true;
	return false;
}

static CUresult with_extreme(const struct row *r, const struct call *c, int i, bool ones)
{
	uint64_t a[PARAMETERS + 1] = {0};
	make(CU_STREAM_DEFAULT);
	r->fill(a);
	a[i] = ones ? ~0ull : 0;
	CUresult got = c->call(a);
	if (!strncmp(c->name, "cuStreamWaitValue", 17)) /* the value that it waits for is written */
		CHECK(cuMemsetD8Async(memory, 0xff, 64, t));
	unmake();
	return got;
}

static void extreme(const struct row *r, const struct call *c, const struct extreme *x, bool ones)
{
	char what[64];
	for (int i = 0; i < c->parameterCount; i++) {
		int must = x ? (ones ? x->ones[i] : x->zero[i]) : NO;
		int got = tried(c->parameters[i].kind, ones) ? (int)with_extreme(r, c, i, ones) : NO;
		snprintf(what, sizeof what, "argument %d %s", i + 1, ones ? "all ones" : "0");
		if (x && got != must)
			fail("nulls", c, what, got, must);
		else if (got != NO && !documented(c, got))
			fail("nulls, not documented", c, what, got, must);
		else if (!x && got == NO)
			printf(i ? ", NO" : "NO");
		else if (!x)
			printf(i ? ", %d" : "%d", got);
	}
}

/* Reports whether no earlier row has its symbol. */
static bool first(const struct row *r)
{
	for (const struct row *q = rows; q < r; q++)
		if (!strcmp(q->symbol, r->symbol))
			return false;
	return true;
}

/* write: prints the table with the present results. */
static void each_extreme(bool write)
{
	for (const struct row *r = rows; r < rows + ROWS; r++) {
		const struct call *c = named(r->symbol);
		const struct extreme *x = NULL;
		if (skipped(r) || !first(r) || c->parameterCount == 0)
			continue;
		for (size_t i = 0; i < sizeof extremes / sizeof *extremes && !write; i++)
			if (!strcmp(extremes[i].symbol, r->symbol))
				x = &extremes[i];
		if (write)
			printf("EXTREME(%s, LIST(", r->symbol);
		else if (!x) {
			failures++;
			printf("%s: sweep_nulls.h has no line for it\n", r->symbol);
			continue;
		}
		extreme(r, c, x, false);
		printf(write ? "), LIST(" : "");
		extreme(r, c, x, true);
		printf(write ? "))\n" : "");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	CUdevice device;
	int fd = mkstemp(ptxFile);
	if (argc < 2 || fd < 0 || write(fd, ptx, sizeof ptx - 1) != sizeof ptx - 1)
		return fprintf(stderr, "usage: sweep PART [SYMBOL]\n"), 2;
	close(fd);
	only = argc > 2 ? argv[2] : NULL;
	pages = new_pages();
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetPCIBusId(busId, sizeof busId, device));
	if (!only)
		whole();
	if (!strcmp(argv[1], "plain"))
		each_plain();
	else if (!strcmp(argv[1], "capture"))
		each_captured();
	else if (!strcmp(argv[1], "fault"))
		each_faulty();
	else if (!strcmp(argv[1], "late"))
		each_late();
	else if (!strcmp(argv[1], "nulls") || !strcmp(argv[1], "write-nulls"))
		each_extreme(!strcmp(argv[1], "write-nulls"));
	else
		return 2;
	unlink(ptxFile);
	fprintf(stderr, "%d failures\n", failures);
	return failures != 0;
}
