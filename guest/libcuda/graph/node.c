#include "graph/node.h"

#include <stdlib.h>
#include <string.h>

#include "core/zz_impl.h"
#include "graph/memory.h"
#include "image/library.h"
#include "object/context.h"
#include "work/box.h"
#include "work/fill.h"

static CUresult context_handle(CUcontext handle, uint64_t *context)
{
	struct context *c;
	CUresult r = context_of(handle, &c);
	if (r == CUDA_SUCCESS)
		*context = c->object.id;
	return r;
}

static void kernel_free(struct kernel_work *k)
{
	free(k->block);
	free(k->values);
}

static bool has_memory(const struct graph_node *n)
{
	return (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || n->type == CU_GRAPH_NODE_TYPE_MEM_FREE) && n->memory.of;
}

void node_clear(struct graph_node *n)
{
	if (has_memory(n))
		graph_memory_release(n->memory.of);
	if (n->type == CU_GRAPH_NODE_TYPE_KERNEL)
		kernel_free(&n->kernel);
	if (n->type == CU_GRAPH_NODE_TYPE_GRAPH && n->child)
		graph_free(n->child);
	memset(&n->kernel, 0, sizeof n->kernel);
}

/* Copies a kernel's parameters, including its block and the addresses within. */
static CUresult kernel_copy(struct kernel_work *to, const struct kernel_work *from)
{
	struct kernel_work k = *from;
	k.block = malloc(k.bytes + 1);
	k.values = malloc((k.count + 1) * sizeof *k.values);
	if (!k.block || !k.values) {
		kernel_free(&k);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (k.bytes)
		memcpy(k.block, from->block, k.bytes);
	for (uint32_t i = 0; i < k.count; i++)
		k.values[i] = k.block + ((uint8_t *)from->values[i] - from->block);
	*to = k;
	return CUDA_SUCCESS;
}

CUresult node_take(struct graph_node *n, const struct graph_node *from)
{
	n->context = from->context;
	if (n->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		struct kernel_work k;
		CUresult r = kernel_copy(&k, &from->kernel);
		if (r != CUDA_SUCCESS)
			return r;
		kernel_free(&n->kernel);
		n->kernel = k;
	} else if (n->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return from->child ? node_set_child(n, from->child) : CUDA_SUCCESS; /* a child node under construction has no graph */
	else if (n->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		n->copy = from->copy;
	else if (n->type == CU_GRAPH_NODE_TYPE_MEMSET)
		n->fill = from->fill;
	else if (n->type == CU_GRAPH_NODE_TYPE_HOST)
		n->host = from->host;
	else if (has_memory(from)) {
		graph_memory_hold(from->memory.of);
		if (has_memory(n))
			graph_memory_release(n->memory.of);
		n->memory.of = from->memory.of;
	} else
		n->event = from->event;
	return CUDA_SUCCESS;
}

/* --- kernels --- */

CUresult kernel_set(struct graph_node *n, CUfunction handle, const struct function *f, const struct packed_launch *p)
{
	struct kernel_work k = n->kernel; /* keeps its attributes */
	k.function = handle;
	k.shape = p->args;
	k.bytes = p->paramBytes;
	k.count = f->facts.paramCount;
	k.block = malloc(k.bytes + 1);
	k.values = malloc((k.count + 1) * sizeof *k.values);
	if (!k.block || !k.values) {
		kernel_free(&k);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (k.bytes)
		memcpy(k.block, p->params, k.bytes);
	for (uint32_t i = 0; i < k.count; i++)
		k.values[i] = k.block + f->params[i].offset;
	kernel_free(&n->kernel);
	n->kernel = k;
	n->context = f->context;
	return CUDA_SUCCESS;
}

CUresult node_set_kernel(struct graph_node *n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUfunction handle = p->func ? p->func : (CUfunction)p->kern;
	struct function *f;
	struct packed_launch packed;
	uint64_t context = 0;
	CUresult r = function_find(handle) ? CUDA_SUCCESS : context_handle(p->ctx, &context);
	if (r == CUDA_SUCCESS)
		r = function_take(handle, context, &f);
	if (r != CUDA_SUCCESS)
		return r;
	packed.args = (struct launch_args){
		.grid = {p->gridDimX, p->gridDimY, p->gridDimZ}, .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
		.sharedBytes = p->sharedMemBytes, .flags = n->kernel.shape.flags,
	};
	r = launch_pack(f, p->kernelParams, p->extra, &packed);
	if (r == CUDA_SUCCESS)
		r = kernel_set(n, handle, f, &packed);
	launch_unpack(&packed);
	function_release(f);
	return r;
}

static void get_kernel(const struct graph_node *n, CUDA_KERNEL_NODE_PARAMS *p)
{
	const struct launch_args *s = &n->kernel.shape;
	bool function = function_find(n->kernel.function) != NULL;
	*p = (CUDA_KERNEL_NODE_PARAMS){
		.func = function ? n->kernel.function : NULL, .kern = function ? NULL : (CUkernel)n->kernel.function,
		.gridDimX = s->grid[0], .gridDimY = s->grid[1], .gridDimZ = s->grid[2],
		.blockDimX = s->block[0], .blockDimY = s->block[1], .blockDimZ = s->block[2], .sharedMemBytes = s->sharedBytes,
		.kernelParams = n->kernel.values, .ctx = (CUcontext)(uintptr_t)n->context,
	};
}

/* --- other nodes --- */

CUresult node_set_copy(struct graph_node *n, const CUDA_MEMCPY3D *p, CUcontext handle)
{
	uint64_t context;
	struct box box;
	CUresult r = context_handle(handle, &context);
	if (r == CUDA_SUCCESS)
		r = box_of(p, &box);
	if (r != CUDA_SUCCESS)
		return r;
	n->copy = *p;
	n->context = context;
	return CUDA_SUCCESS;
}

CUresult node_set_fill(struct graph_node *n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext handle)
{
	uint64_t context;
	struct fill_args args;
	CUresult r = context_handle(handle, &context);
	if (r == CUDA_SUCCESS)
		r = fill_of(p, &args);
	if (r != CUDA_SUCCESS)
		return r;
	n->fill = *p;
	n->context = context;
	return CUDA_SUCCESS;
}

CUresult node_set_host(struct graph_node *n, const CUDA_HOST_NODE_PARAMS *p)
{
	if (!p->fn)
		return CUDA_ERROR_INVALID_VALUE;
	n->host = *p;
	return CUDA_SUCCESS;
}

CUresult node_set_event(struct graph_node *n, CUevent event)
{
	struct event *e = handle_find(&events, (uint64_t)(uintptr_t)event);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	n->event = event;
	n->context = n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? e->context : 0;
	return CUDA_SUCCESS;
}

/* The program can reach the copy of the child graph through the node only. */
CUresult node_set_child(struct graph_node *n, const struct graph *child)
{
	struct graph *copy;
	CUresult r = child->allocates ? CUDA_ERROR_NOT_SUPPORTED : graph_copy(child, true, &copy);
	if (r != CUDA_SUCCESS)
		return r;
	if (n->child)
		graph_free(n->child);
	n->child = copy;
	return CUDA_SUCCESS;
}

static CUresult set_child(struct graph_node *n, CUgraph handle)
{
	struct graph *child = graph_of(handle);
	return child && child != n->graph ? node_set_child(n, child) : CUDA_ERROR_INVALID_VALUE;
}

static CUDA_KERNEL_NODE_PARAMS kernel_v2(const CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = p->func, .gridDimX = p->gridDimX, .gridDimY = p->gridDimY, .gridDimZ = p->gridDimZ, .blockDimX = p->blockDimX,
		.blockDimY = p->blockDimY, .blockDimZ = p->blockDimZ, .sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams, .extra = p->extra, .kern = p->kern, .ctx = p->ctx,
	};
}

static CUDA_KERNEL_NODE_PARAMS widened(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = p->func, .gridDimX = p->gridDimX, .gridDimY = p->gridDimY, .gridDimZ = p->gridDimZ, .blockDimX = p->blockDimX,
		.blockDimY = p->blockDimY, .blockDimZ = p->blockDimZ, .sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams, .extra = p->extra,
	};
}

CUresult node_set(struct graph_node *n, const CUgraphNodeParams *p)
{
	if (p->type != n->type)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS kernel;
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_HOST_NODE_PARAMS host;
	switch ((unsigned)p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		kernel = kernel_v2(&p->kernel);
		return node_set_kernel(n, &kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return p->memcpy.flags == 0 ? node_set_copy(n, &p->memcpy.copyParams, p->memcpy.copyCtx) : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		fill = (CUDA_MEMSET_NODE_PARAMS){
			.dst = p->memset.dst, .pitch = p->memset.pitch, .value = p->memset.value,
			.elementSize = p->memset.elementSize, .width = p->memset.width, .height = p->memset.height,
		};
		return node_set_fill(n, &fill, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		host = (CUDA_HOST_NODE_PARAMS){.fn = p->host.fn, .userData = p->host.userData};
		return node_set_host(n, &host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return set_child(n, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return node_set_event(n, p->eventRecord.event);
	default: /* external semaphores, conditions: rejected; memory nodes cannot be changed */
		return (unsigned)p->type <= CU_GRAPH_NODE_TYPE_CONDITIONAL ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult node_set_new(struct graph_node *n, CUgraphNodeParams *p)
{
	struct context *c;
	CUDA_MEM_ALLOC_NODE_PARAMS alloc;
	CUresult r;
	switch ((unsigned)p->type) {
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		memcpy(&alloc, &p->alloc, sizeof alloc); /* they have the same members */
		r = context_current(&c);
		if (r == CUDA_SUCCESS)
			r = graph_memory_allocate(n, c, &alloc);
		if (r == CUDA_SUCCESS)
			p->alloc.dptr = alloc.dptr;
		return r;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return graph_memory_let_go(n, p->free.dptr);
	default:
		return node_set(n, p);
	}
}

/* --- API calls: adding nodes, by type --- */

CUresult pg_cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_KERNEL_NODE_PARAMS *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	all.kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
		.func = p->func, .gridDimX = p->gridDimX, .gridDimY = p->gridDimY, .gridDimZ = p->gridDimZ, .blockDimX = p->blockDimX,
		.blockDimY = p->blockDimY, .blockDimZ = p->blockDimZ, .sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams, .extra = p->extra, .kern = p->kern, .ctx = p->ctx,
	};
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
}

CUresult pg_cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS wide = widened(p);
	return pg_cuGraphAddKernelNode_v2(out, graph, after, count, &wide);
}

CUresult pg_cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
	all.memcpy.copyParams = *p;
	all.memcpy.copyCtx = ctx;
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
}

CUresult pg_cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMSET_NODE_PARAMS *p,
	CUcontext ctx)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	all.memset = (CUDA_MEMSET_NODE_PARAMS_v2){
		.dst = p->dst, .pitch = p->pitch, .value = p->value, .elementSize = p->elementSize, .width = p->width, .height = p->height,
		.ctx = ctx,
	};
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
}

CUresult pg_cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_HOST_NODE_PARAMS *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_HOST};
	all.host.fn = p->fn;
	all.host.userData = p->userData;
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
}

CUresult pg_cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child)
{
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
	all.graph.graph = child;
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
}

CUresult pg_cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUevent event)
{
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
	all.eventRecord.event = event;
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
}

CUresult pg_cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUevent event)
{
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
	all.eventWait.event = event;
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
}

CUresult pg_cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	memcpy(&all.alloc, p, sizeof *p);
	CUresult r = pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
	if (r == CUDA_SUCCESS)
		p->dptr = all.alloc.dptr;
	return r;
}

CUresult pg_cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr address)
{
	CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
	all.free.dptr = address;
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &all);
}

/* --- queries and changes --- */

CUresult node_of_type(CUgraphNode node, CUgraphNodeType type, struct graph_node **n)
{
	*n = node_of(node);
	return *n && (*n)->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
	GRAPHS_LOCKED;
	struct graph_node *n;
	CUresult r = p ? node_of_type(node, CU_GRAPH_NODE_TYPE_KERNEL, &n) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		get_kernel(n, p);
	return r;
}

CUresult pg_cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS wide;
	CUresult r = pg_cuGraphKernelNodeGetParams_v2(node, p ? &wide : NULL);
	if (r == CUDA_SUCCESS)
		*p = (CUDA_KERNEL_NODE_PARAMS_v1){
			.func = wide.func ? wide.func : (CUfunction)wide.kern, .gridDimX = wide.gridDimX, .gridDimY = wide.gridDimY,
			.gridDimZ = wide.gridDimZ, .blockDimX = wide.blockDimX, .blockDimY = wide.blockDimY, .blockDimZ = wide.blockDimZ,
			.sharedMemBytes = wide.sharedMemBytes, .kernelParams = wide.kernelParams,
		};
	return r;
}

CUresult pg_cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	GRAPHS_LOCKED;
	struct graph_node *n;
	CUresult r = p ? node_of_type(node, CU_GRAPH_NODE_TYPE_KERNEL, &n) : CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? node_set_kernel(n, p) : r;
}

CUresult pg_cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS wide = widened(p);
	return pg_cuGraphKernelNodeSetParams_v2(node, &wide);
}

static CUcontext same_context(const struct graph_node *n) { return (CUcontext)(uintptr_t)n->context; }

CUresult pg_cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	GRAPHS_LOCKED;
	struct graph_node *n = node_of(node);
	return n && p ? node_set(n, p) : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	GRAPHS_LOCKED;
	struct graph_node *n = node_of(node);
	CUDA_KERNEL_NODE_PARAMS kernel;
	CUDA_MEM_ALLOC_NODE_PARAMS alloc;
	if (!n || !p)
		return CUDA_ERROR_INVALID_VALUE;
	memset(p, 0, sizeof *p);
	p->type = n->type;
	switch ((unsigned)n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		get_kernel(n, &kernel);
		memcpy(&p->kernel, &kernel, sizeof kernel); /* they have the same members */
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		p->memcpy.copyParams = n->copy;
		p->memcpy.copyCtx = same_context(n);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		memcpy(&p->memset, &n->fill, sizeof n->fill);
		p->memset.ctx = same_context(n);
		break;
	case CU_GRAPH_NODE_TYPE_HOST:
		p->host.fn = n->host.fn;
		p->host.userData = n->host.userData;
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		p->graph.graph = HANDLE_OF(CUgraph, n->child);
		break;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		p->eventRecord.event = n->event;
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		graph_memory_describe(n->memory.of, &alloc);
		memcpy(&p->alloc, &alloc, sizeof alloc);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		p->free.dptr = graph_memory_address(n->memory.of);
		break;
	}
	return CUDA_SUCCESS;
}

/* --- kernel attributes: those of launches, most of them hints --- */

CUresult pg_cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID what, const CUkernelNodeAttrValue *value)
{
	GRAPHS_LOCKED;
	struct graph_node *n;
	CUresult r = value ? node_of_type(node, CU_GRAPH_NODE_TYPE_KERNEL, &n) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	struct kernel_work *k = &n->kernel;
	switch ((unsigned)what) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		k->window = value->accessPolicyWindow;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		k->shape.flags = value->cooperative ? k->shape.flags | LAUNCH_COOPERATIVE : k->shape.flags & ~LAUNCH_COOPERATIVE;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		k->priority = value->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		k->domain = value->memSyncDomain;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		k->domains = value->memSyncDomainMap;
		return CUDA_SUCCESS;
	default:
		return (unsigned)what <= CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult pg_cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID what, CUkernelNodeAttrValue *value)
{
	GRAPHS_LOCKED;
	struct graph_node *n;
	CUresult r = value ? node_of_type(node, CU_GRAPH_NODE_TYPE_KERNEL, &n) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	const struct kernel_work *k = &n->kernel;
	switch ((unsigned)what) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value->accessPolicyWindow = k->window;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		value->cooperative = (k->shape.flags & LAUNCH_COOPERATIVE) != 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value->priority = k->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value->memSyncDomain = k->domain;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		value->memSyncDomainMap = k->domains;
		return CUDA_SUCCESS;
	default:
		return (unsigned)what <= CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult pg_cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	GRAPHS_LOCKED;
	struct graph_node *n, *m;
	CUresult r = node_of_type(to, CU_GRAPH_NODE_TYPE_KERNEL, &n);
	if (r == CUDA_SUCCESS)
		r = node_of_type(from, CU_GRAPH_NODE_TYPE_KERNEL, &m);
	if (r != CUDA_SUCCESS)
		return r;
	struct kernel_work *k = &n->kernel;
	const struct kernel_work *f = &m->kernel;
	k->shape.flags = f->shape.flags;
	k->priority = f->priority;
	k->window = f->window;
	k->domain = f->domain;
	k->domains = f->domains;
	return CUDA_SUCCESS;
}
