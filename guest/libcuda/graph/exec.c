/*
 * Executable graphs. The host receives the whole graph in one message, at its creation and, after changes, with the
 * next launch; a launch is one small message, however large the graph.
 */
#include "graph/exec.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/capture.h"
#include "graph/encode.h"
#include "graph/memory.h"
#include "graph/node.h"
#include "graph/user_object.h"
#include "graph/version.h"
#include "object/context.h"
#include "object/event.h"

struct table graph_execs = HANDLE_TABLE(HANDLE_GRAPH_EXEC, struct graph_exec, 60000);

static void mark_over(void *object, void *context)
{
	struct graph_exec *e = object;
	if (e->context != *(uint64_t *)context)
		return;
	e->context = 0; /* a later primary context may have the same handle */
	if (e->version)
		e->version->over = true;
}

void execs_context_ended(uint64_t context)
{
	graphs_lock();
	versions_context_ended(context);
	handle_each(&graph_execs, mark_over, &context);
	graph_memory_context_ended(context);
	graphs_leave();
}

/* --- uploading --- */

static CUresult send(const struct graph_exec *e, const struct graph_encoding *code)
{
	struct staging s;
	CUresult r = arena_borrow(code->used, &s);
	if (r != CUDA_SUCCESS)
		return r;
	memcpy(arena_at(s.offset), code->bytes, code->used);
	struct graph_create_args args = {.graph = e->object.id, .arenaOffset = s.offset, .length = code->used};
	struct packet p = {.op = OP_GRAPH_CREATE, .context = e->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_call(&p, NULL, 0);
	arena_return(&s);
	return r;
}

/* Makes an uploaded version the one of the host. Takes records. */
static void replace(struct graph_exec *e, struct exec_version *version, uint64_t *records, uint32_t recordCount)
{
	free(e->records);
	e->records = records;
	e->recordCount = recordCount;
	version_retire(e->version);
	e->version = version;
	e->stale = false;
}

/* Sends the current graph to the host. bad, if not NULL, is set to the node that caused the error, if one did. */
static CUresult upload(struct graph_exec *e, struct graph_node **bad)
{
	struct graph_encoding code;
	uint64_t *records = NULL;
	struct exec_version *version = version_new(e->context);
	if (!version)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = graph_encode(e->graph, e->context, version, &code);
	version->ends = version->hostCopies || object_refs_any(e->graph);
	size_t recordBytes = code.recordCount * sizeof *records;
	if (r == CUDA_SUCCESS && recordBytes && !(records = malloc(recordBytes)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS)
		r = send(e, &code);
	if (r == CUDA_SUCCESS) {
		if (recordBytes)
			memcpy(records, code.records, recordBytes);
		replace(e, version, records, code.recordCount);
	} else {
		free(records);
		version_free(version);
	}
	if (bad)
		*bad = code.bad;
	free(code.bytes);
	return r;
}

/* --- creation and destruction --- */

struct graph_exec *exec_of(CUgraphExec handle) { return handle_find(&graph_execs, (uint64_t)(uintptr_t)handle); }

/* Sets *context to the context of all nodes that need one, or 0; false if they are of several contexts. */
static bool one_context(const struct graph *g, uint64_t *context)
{
	for (uint32_t i = 0; i < g->count; i++) {
		const struct graph_node *n = g->nodes[i];
		if (n->context && *context && n->context != *context)
			return false;
		if (n->context)
			*context = n->context;
		if (n->type == CU_GRAPH_NODE_TYPE_GRAPH && n->child && !one_context(n->child, context))
			return false;
	}
	return true;
}

static void exec_free(struct graph_exec *e)
{
	if (e->version)
		object_refs_move_all(&e->version->objectRefs, e->graph);
	version_retire(e->version);
	graph_free(e->graph);
	free(e->records);
	handle_free(&graph_execs, e);
}

#define EXEC_FLAGS \
	(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | \
		CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

static CUgraphInstantiateResult why(CUresult r)
{
	switch ((unsigned)r) {
	case CUDA_SUCCESS:
		return CUDA_GRAPH_INSTANTIATE_SUCCESS;
	case CUDA_ERROR_INVALID_VALUE:
		return CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
	case CUDA_ERROR_NOT_SUPPORTED:
		return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
	default:
		return CUDA_GRAPH_INSTANTIATE_ERROR;
	}
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(handle);
	struct graph_node *bad = NULL;
	uint64_t context = 0;
	if (!out || !g || (p->flags & ~(cuuint64_t)EXEC_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	if ((p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) || handle_find(&graph_execs, g->executable))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!one_context(g, &context)) {
		p->result_out = CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	struct context *c;
	CUresult r = context_of((CUcontext)(uintptr_t)context, &c);
	if (r != CUDA_SUCCESS)
		return r;
	struct graph_exec *e = handle_new(&graph_execs);
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset((uint8_t *)e + sizeof e->object, 0, sizeof *e - sizeof e->object);
	e->context = c->object.id;
	e->wireContext = c->wire;
	e->flags = p->flags;
	r = graph_copy(g, true, &e->graph);
	if (r != CUDA_SUCCESS) {
		handle_free(&graph_execs, e);
		return r;
	}
	handle_retire(e->graph); /* the program cannot look it up */
	graph_memory_match(e->graph);
	e->id = e->graph->id;
	r = upload(e, &bad);
	p->result_out = why(r);
	p->hErrNode_out = r != CUDA_SUCCESS && bad ? (CUgraphNode)(uintptr_t)bad->origin : NULL;
	if (r != CUDA_SUCCESS) {
		exec_free(e);
		return r;
	}
	handle_publish(e);
	g->executable = g->allocates ? e->object.id : 0;
	*out = HANDLE_OF(CUgraphExec, e);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = flags};
	return flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? CUDA_ERROR_INVALID_VALUE : instantiate(out, graph, &p);
}

CUresult pg_cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t logBytes)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS p = {0};
	CUresult r = instantiate(out, graph, &p);
	if (bad)
		*bad = p.hErrNode_out;
	if (log && logBytes > 0)
		*log = 0;
	return r;
}

/* Instantiation uploads the graph, whatever the stream. */
CUresult pg_cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	struct stream_ref ref;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
		CUresult r = stream_resolve(p->hUploadStream, &ref);
		if (r != CUDA_SUCCESS)
			return r;
	}
	p->hErrNode_out = NULL;
	p->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
	return instantiate(out, graph, p);
}

CUresult pg_cuGraphExecDestroy(CUgraphExec handle)
{
	GRAPHS_LOCKED;
	struct graph_exec *e = exec_of(handle);
	if (!e || !handle_retire(e))
		return CUDA_ERROR_INVALID_VALUE;
	if (handle_find(&contexts, e->context)) {
		struct graph_destroy_args args = {.graph = e->object.id};
		struct packet p = {.op = OP_GRAPH_DESTROY, .context = e->wireContext, .anyway = true, .fixed = &args, .fixedBytes = sizeof args};
		ring_post(&p);
	}
	exec_free(e);
	return CUDA_SUCCESS;
}

/* --- launching --- */

/* Reports whether an event was destroyed that the host's version of the graph still records. */
static bool records_gone(const struct graph_exec *e)
{
	for (uint32_t i = 0; i < e->recordCount; i++)
		if (!handle_find(&events, e->records[i]))
			return true;
	return false;
}

static CUresult post_launch(const struct graph_exec *e, const struct stream_ref *ref, bool *settles)
{
	struct event_record_args records[GRAPH_RECORDS_MOST];
	struct event *all[GRAPH_RECORDS_MOST];
	struct graph_launch_args args = {.graph = e->object.id};
	struct packet p = {
		.op = OP_GRAPH_LAUNCH, .context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .fixed = &args,
		.fixedBytes = sizeof args, .tail = records, .tailBytes = (uint32_t)(e->recordCount * sizeof *records),
	};
	if (e->recordCount == 0)
		return ring_post(&p);
	for (uint32_t i = 0; i < e->recordCount; i++)
		if (!(all[i] = handle_find(&events, e->records[i])))
			return CUDA_ERROR_INVALID_HANDLE;
	for (uint32_t i = 0; i < e->recordCount; i++)
		capture_event_forget(all[i]);
	for (uint32_t i = 0; i < e->recordCount; i++)
		*settles |= all[i]->shared;
	return event_record_many(all, e->recordCount, records, ref, &p);
}

CUresult graph_launch(CUgraphExec handle, CUstream stream, bool *settles)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	if (UNLIKELY(ref.capturing))
		return capture_refuse(ref.capturing); /* in any mode, as NVIDIA's driver (580, on an H200) does */
	GRAPHS_LOCKED;
	struct graph_exec *e = exec_of(handle);
	if (!e)
		return CUDA_ERROR_INVALID_VALUE;
	if (ref.contextHandle != e->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (e->stale || records_gone(e))
		r = upload(e, NULL);
	if (r == CUDA_SUCCESS)
		r = version_prepare_end(e->version);
	if (r == CUDA_SUCCESS && e->graph->allocates)
		r = graph_memory_check(e->graph, &ref, e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	if (r == CUDA_SUCCESS)
		r = post_launch(e, &ref, settles);
	if (r == CUDA_SUCCESS && e->graph->allocates)
		graph_memory_launched(e->graph, &ref);
	return r == CUDA_SUCCESS ? version_mark_end(e->version, &ref) : r;
}

CUresult pg_cuGraphUpload(CUgraphExec handle, CUstream stream)
{
	struct stream_ref ref;
	CUresult r = stream_resolve(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	GRAPHS_LOCKED;
	struct graph_exec *e = exec_of(handle);
	if (!e)
		return CUDA_ERROR_INVALID_VALUE;
	return e->stale ? upload(e, NULL) : CUDA_SUCCESS;
}

/* --- updates --- */

static struct graph_node *find_within(const struct graph *g, uint64_t origin, uint32_t local)
{
	uint32_t low = 0, high = g->count; /* nodes are sorted by their local ids */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (g->nodes[middle]->local < local)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < g->count && g->nodes[low]->origin == origin)
		return g->nodes[low];
	for (uint32_t i = 0; i < g->count; i++) {
		const struct graph_node *n = g->nodes[i];
		struct graph_node *found = n->type == CU_GRAPH_NODE_TYPE_GRAPH && n->child ? find_within(n->child, origin, local) : NULL;
		if (found)
			return found;
	}
	return NULL;
}

/* Finds the executable graph's own node that was created from a node of the original graph. */
static CUresult find(CUgraphExec handle, CUgraphNode node, struct graph_exec **e, struct graph_node **n)
{
	struct graph_node *original = node_of(node);
	*e = exec_of(handle);
	if (!*e || !original)
		return CUDA_ERROR_INVALID_VALUE;
	*n = find_within((*e)->graph, original->object.id, original->local);
	return *n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult exec_node(CUgraphExec handle, CUgraphNode node, CUgraphNodeType type, struct graph_exec **e, struct graph_node **n)
{
	CUresult r = find(handle, node, e, n);
	return r == CUDA_SUCCESS && (*n)->type != type ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult exec_changed(struct graph_exec *e, const struct graph_node *n, CUresult r)
{
	if (r == CUDA_SUCCESS && n->context != 0 && n->context != e->context)
		r = CUDA_ERROR_INVALID_CONTEXT;
	e->stale = e->stale || r == CUDA_SUCCESS;
	return r;
}

CUresult pg_cuGraphExecNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraphNodeParams *p)
{
	GRAPHS_LOCKED;
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = p ? find(handle, node, &e, &n) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	if (p->type == CU_GRAPH_NODE_TYPE_GRAPH && n->type == p->type)
		return exec_changed(e, n, exec_take_child(e, n, graph_of(p->graph.graph)));
	return exec_changed(e, n, node_set(n, p));
}

CUresult pg_cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	GRAPHS_LOCKED;
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = p ? exec_node(handle, node, CU_GRAPH_NODE_TYPE_KERNEL, &e, &n) : CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? exec_changed(e, n, node_set_kernel(n, p)) : r;
}

CUresult pg_cuGraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS wide = {
		.func = p->func, .gridDimX = p->gridDimX, .gridDimY = p->gridDimY, .gridDimZ = p->gridDimZ, .blockDimX = p->blockDimX,
		.blockDimY = p->blockDimY, .blockDimZ = p->blockDimZ, .sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams, .extra = p->extra,
	};
	return pg_cuGraphExecKernelNodeSetParams_v2(handle, node, &wide);
}

/* Kernels, copies and fills can be disabled. */
static CUresult find_switch(CUgraphExec handle, CUgraphNode node, const void *p, struct graph_exec **e, struct graph_node **n)
{
	CUresult r = find(handle, node, e, n);
	return r == CUDA_SUCCESS && (!p || (*n)->type > CU_GRAPH_NODE_TYPE_MEMSET) ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult pg_cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled)
{
	GRAPHS_LOCKED;
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = find_switch(handle, node, &e, &e, &n);
	if (r == CUDA_SUCCESS && n->disabled != !enabled) {
		n->disabled = !enabled;
		e->stale = true;
	}
	return r;
}

CUresult pg_cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int *enabled)
{
	GRAPHS_LOCKED;
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = find_switch(handle, node, enabled, &e, &n);
	if (r == CUDA_SUCCESS)
		*enabled = !n->disabled;
	return r;
}

/* The first difference that keeps one graph from replacing another: a node and, for an edge, its source. */
struct difference {
	CUgraphExecUpdateResult result;
	const struct graph_node *at, *from;
};

static bool differ(struct difference *d, CUgraphExecUpdateResult result, const struct graph_node *at, const struct graph_node *from)
{
	*d = (struct difference){.result = result, .at = at, .from = from};
	return true;
}

static bool comes_after(const struct graph_node *n, uint32_t position)
{
	for (uint32_t k = 0; k < n->count; k++)
		if (n->before[k]->position == position)
			return true;
	return false;
}

static bool topologies_differ(const struct graph *mine, const struct graph *other, struct difference *d)
{
	if (mine->count != other->count)
		return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
	for (uint32_t i = 0; i < mine->count; i++)
		mine->nodes[i]->position = other->nodes[i]->position = i;
	for (uint32_t i = 0; i < mine->count; i++) {
		const struct graph_node *m = mine->nodes[i], *o = other->nodes[i];
		if (m->count != o->count)
			return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, o, NULL);
		for (uint32_t k = 0; k < o->count; k++)
			if (m->before[k]->position != o->before[k]->position && !comes_after(m, o->before[k]->position))
				return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, o, o->before[k]);
	}
	return false;
}

/* Nodes correspond by the order of their creation. A difference of topology takes precedence over one of types. */
static bool graphs_differ(const struct graph *mine, const struct graph *other, struct difference *d)
{
	if (topologies_differ(mine, other, d))
		return true;
	for (uint32_t i = 0; i < mine->count; i++) {
		const struct graph_node *m = mine->nodes[i], *o = other->nodes[i];
		if (m->type != o->type)
			return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, o, NULL);
		bool memory = m->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || m->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
		if (memory && m->memory.of != o->memory.of)
			return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, o, NULL);
		if (m->context != o->context)
			return differ(d, m->type == CU_GRAPH_NODE_TYPE_KERNEL ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
			                                                     : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, o, NULL);
		if (m->type == CU_GRAPH_NODE_TYPE_GRAPH && m->child && o->child && graphs_differ(m->child, o->child, d))
			return true;
	}
	return false;
}

/* Replaces the references to user objects by those of the other graph; earlier launches may still use the old ones. */
static CUresult adopt_keeps(struct graph_exec *e, struct graph *mine, const struct graph *other)
{
	struct object_ref *before = mine->objectRefs;
	mine->objectRefs = NULL;
	CUresult r = object_refs_copy(mine, other);
	if (r != CUDA_SUCCESS) {
		object_refs_drop(&mine->objectRefs);
		mine->objectRefs = before;
	} else if (version_has_ended(e->version))
		object_refs_drop(&before);
	else
		object_refs_move(&e->version->objectRefs, &before);
	return r;
}

static CUresult adopt(struct graph_exec *e, struct graph *mine, const struct graph *other)
{
	CUresult r = adopt_keeps(e, mine, other);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < mine->count; i++) {
		struct graph_node *m = mine->nodes[i];
		const struct graph_node *o = other->nodes[i];
		r = m->type == CU_GRAPH_NODE_TYPE_GRAPH && m->child && o->child ? adopt(e, m->child, o->child) : node_take(m, o);
	}
	return r;
}

/*
 * Copies the parameters of a child graph's nodes from another graph of the same shape; the program keeps its node
 * handles.
 */
CUresult exec_take_child(struct graph_exec *e, struct graph_node *n, const struct graph *child)
{
	struct difference d;
	if (!child || !n->child)
		return CUDA_ERROR_INVALID_VALUE;
	return graphs_differ(n->child, child, &d) ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : adopt(e, n->child, child);
}

CUresult pg_cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	GRAPHS_LOCKED;
	struct graph_exec *e = exec_of(handle);
	struct graph *g = graph_of(graph);
	struct difference d = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
	if (!e || !g || !info)
		return CUDA_ERROR_INVALID_VALUE;
	bool differs = graphs_differ(e->graph, g, &d);
	CUresult r = differs ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : adopt(e, e->graph, g);
	if (r == CUDA_SUCCESS)
		e->stale = true;
	else if (!differs)
		d.result = CU_GRAPH_EXEC_UPDATE_ERROR;
	*info = (CUgraphExecUpdateResultInfo){
		.result = d.result, .errorNode = d.at ? HANDLE_OF(CUgraphNode, d.at) : NULL, .errorFromNode = d.from ? HANDLE_OF(CUgraphNode, d.from) : NULL,
	};
	return r;
}

CUresult pg_cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode *bad, CUgraphExecUpdateResult *result)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult r = result ? pg_cuGraphExecUpdate_v2(handle, graph, &info) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		*result = info.result;
	if (bad)
		*bad = info.errorNode;
	return r;
}
