#include "graph/memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/zz_impl.h"
#include "object/context.h"
#include "object/stream_timeline.h"
#include "work/pool.h"

/* A block of device memory that allocations of one graph share in turn. */
struct graph_piece {
	uint64_t address;
	uint32_t users;              /* allocations */
	struct graph_memory *latest; /* the only one that may be live; NULL if it was freed */
	struct stream_position since;         /* the memory is free after this position */
};

struct graph_memory {
	struct graph_piece *piece;
	uint32_t users;         /* nodes, and one while it is live */
	uint64_t graph;         /* handle of the graph with the node that allocates it */
	uint64_t freed;         /* handle of a graph with a node that frees it, or 0 */
	uint64_t context;       /* handle */
	bool live, matched;
	CUmemPoolProps props;
	CUmemAccessDesc *access;
	size_t accessCount, bytes;
	struct graph_memory *next, **at; /* in the list of all */
};

static struct graph_memory *all;
static uint64_t poolOf[DEVICES_MOST]; /* handles; guarded by timelineLock */

/* Returns the device's pool for graphs; requires the pools' lock. */
static struct pool *pool_for(int device)
{
	struct pool *p = handle_find(&pools, poolOf[device]);
	if (!p && (p = pool_new(device, 0))) {
		p->threshold = UINT64_MAX; /* until cuDeviceGraphMemTrim */
		p->dependencies = false;   /* nodes belong to no stream */
		poolOf[device] = p->object.id;
	}
	return p;
}

/* --- pieces --- */

static CUresult piece_new(int device, uint64_t context, uint64_t bytes, struct graph_piece **made)
{
	struct graph_piece *piece = calloc(1, sizeof *piece);
	if (!piece)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = pool_for(device);
	CUresult r = p ? pool_take_for_graph(p, context, bytes, piece, &piece->address) : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&timelineLock);
	if (r != CUDA_SUCCESS) {
		free(piece);
		return r;
	}
	*made = piece;
	return CUDA_SUCCESS;
}

static void piece_release(struct graph_piece *piece)
{
	if (--piece->users)
		return;
	pthread_mutex_lock(&timelineLock);
	pool_give_of_graph(piece->address, piece, &piece->since);
	pthread_mutex_unlock(&timelineLock);
	free(piece);
}

static struct graph_memory *memory_at(uint64_t address)
{
	pthread_mutex_lock(&timelineLock);
	struct graph_piece *piece = pool_graph_piece(address);
	pthread_mutex_unlock(&timelineLock);
	return piece ? piece->latest : NULL;
}

/* Marks all nodes that complete before one begins. */
static bool mark_before(const struct graph_node *n)
{
	const struct graph *g = n->graph;
	struct graph_node **stack = malloc((g->count + 1) * sizeof *stack);
	uint32_t depth = 0;
	if (!stack)
		return false;
	for (uint32_t i = 0; i < g->count; i++)
		g->nodes[i]->mark = 0;
	for (const struct graph_node *at = n; at; at = depth ? stack[--depth] : NULL)
		for (uint32_t k = 0; k < at->count; k++)
			if (!at->before[k]->mark) {
				at->before[k]->mark = 1;
				stack[depth++] = at->before[k];
			}
	free(stack);
	return true;
}

/* Reports whether a node frees an allocation of its own graph with memory that a later one of so many bytes can reuse. */
static bool leaves_piece(const struct graph_node *n, size_t bytes)
{
	const struct graph_memory *m = n->type == CU_GRAPH_NODE_TYPE_MEM_FREE ? n->memory.of : NULL;
	return m && m->graph == n->graph->object.id && m->bytes == bytes && m->piece->latest == m;
}

/* Returns the memory of an allocation that is freed in the graph before a node begins, or NULL. */
static struct graph_piece *piece_before(const struct graph_node *n, int device, size_t bytes)
{
	const struct graph *g = n->graph;
	bool marked = false;
	for (uint32_t i = 0; i < g->count; i++) {
		if (!leaves_piece(g->nodes[i], bytes))
			continue;
		if (!marked && !mark_before(n))
			return NULL;
		marked = true;
		const struct graph_memory *m = g->nodes[i]->memory.of;
		if (g->nodes[i]->mark && m->context == n->context && m->props.location.id == device)
			return m->piece;
	}
	return NULL;
}

/* --- allocations --- */

void graph_memory_hold(struct graph_memory *m) { m->users++; }

void graph_memory_release(struct graph_memory *m)
{
	if (--m->users)
		return;
	if (m->piece->latest == m)
		m->piece->latest = NULL;
	piece_release(m->piece);
	*m->at = m->next;
	if (m->next)
		m->next->at = m->at;
	free(m->access);
	free(m);
}

CUdeviceptr graph_memory_address(const struct graph_memory *m) { return m->piece->address; }

void graph_memory_describe(const struct graph_memory *m, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	*p = (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = m->props, .accessDescs = m->access, .accessDescCount = m->accessCount, .bytesize = m->bytes, .dptr = m->piece->address,
	};
}

static CUresult check(const CUDA_MEM_ALLOC_NODE_PARAMS *p, int device)
{
	CUresult r = pool_check_props(&p->poolProps);
	if (r == CUDA_SUCCESS && p->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		return r;
	if (p->bytesize == 0 || (p->accessDescCount && !p->accessDescs) || p->accessDescCount > DEVICES_MOST)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->poolProps.location.id != device)
		return CUDA_ERROR_INVALID_DEVICE;
	return pool_check_access(device, p->accessDescs, p->accessDescCount);
}

CUresult graph_memory_allocate(struct graph_node *n, const struct context *c, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	CUresult r = check(p, c->device);
	if (r != CUDA_SUCCESS)
		return r == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : r; /* as the manual specifies for nodes */
	struct graph_memory *m = calloc(1, sizeof *m);
	CUmemAccessDesc *access = malloc((p->accessDescCount + 1) * sizeof *access);
	n->context = c->object.id;
	struct graph_piece *piece = m && access ? piece_before(n, c->device, p->bytesize) : NULL;
	r = !m || !access ? CUDA_ERROR_OUT_OF_MEMORY : piece ? CUDA_SUCCESS : piece_new(c->device, n->context, p->bytesize, &piece);
	if (r != CUDA_SUCCESS) {
		free(m);
		free(access);
		return r;
	}
	if (p->accessDescCount)
		memcpy(access, p->accessDescs, p->accessDescCount * sizeof *access);
	*m = (struct graph_memory){
		.piece = piece, .users = 1, .graph = n->graph->object.id, .context = n->context, .props = p->poolProps, .access = access,
		.accessCount = p->accessDescCount, .bytes = p->bytesize, .next = all, .at = &all,
	};
	if (all)
		all->at = &m->next;
	all = m;
	piece->users++;
	piece->latest = m;
	n->memory.of = m;
	n->graph->allocates = true;
	p->dptr = piece->address;
	return CUDA_SUCCESS;
}

static bool frees(const struct graph *g, const struct graph_memory *m)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (g->nodes[i]->type == CU_GRAPH_NODE_TYPE_MEM_FREE && g->nodes[i]->memory.of == m)
			return true;
	return false;
}

/* An allocation is freed by one node of its own graph, or by nodes of other graphs, at most one in each. */
CUresult graph_memory_let_go(struct graph_node *n, CUdeviceptr address)
{
	struct graph_memory *m = memory_at(address);
	const uint64_t graph = n->graph->object.id;
	if (m && !handle_find(&graphs, m->freed)) /* that graph was destroyed */
		m->freed = 0;
	if (!m || (m->freed && (m->graph == graph || m->freed == m->graph || frees(n->graph, m))))
		return CUDA_ERROR_INVALID_VALUE;
	m->freed = graph;
	n->context = m->context;
	n->memory.of = m;
	n->graph->allocates = true;
	graph_memory_hold(m);
	return CUDA_SUCCESS;
}

/* --- launches --- */

static bool allocates(const struct graph_node *n) { return n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
static bool lets_go(const struct graph_node *n) { return n->type == CU_GRAPH_NODE_TYPE_MEM_FREE; }

void graph_memory_match(struct graph *g)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (lets_go(g->nodes[i]))
			g->nodes[i]->memory.of->matched = false;
	for (uint32_t i = 0; i < g->count; i++)
		if (allocates(g->nodes[i]))
			g->nodes[i]->memory.of->matched = true;
	for (uint32_t i = 0; i < g->count; i++)
		if (lets_go(g->nodes[i])) {
			struct graph_memory *m = g->nodes[i]->memory.of;
			g->nodes[i]->memory.within = m->matched;
			m->matched = false;
		}
	for (uint32_t i = 0; i < g->count; i++)
		if (allocates(g->nodes[i]))
			g->nodes[i]->memory.within = !g->nodes[i]->memory.of->matched;
}

CUresult graph_memory_check(const struct graph *g, const struct stream_ref *ref, bool freesBefore)
{
	struct stream_position now;
	for (uint32_t i = 0; i < g->count; i++) {
		const struct graph_node *n = g->nodes[i];
		if (allocates(n) && n->memory.of->live && !freesBefore)
			return CUDA_ERROR_INVALID_VALUE;
		if (lets_go(n) && !n->memory.within && !n->memory.of->live)
			return CUDA_ERROR_INVALID_VALUE;
	}
	/* Reserves memory to record the end of the launch. */
	pthread_mutex_lock(&timelineLock);
	bool room = position_now(ref, &now);
	pthread_mutex_unlock(&timelineLock);
	return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void begin(struct graph_memory *m)
{
	if (!m->live)
		graph_memory_hold(m);
	m->live = true;
}

static void end(struct graph_memory *m)
{
	bool was = m->live;
	m->live = false;
	if (was)
		graph_memory_release(m);
}

void graph_memory_launched(const struct graph *g, const struct stream_ref *ref)
{
	struct stream_position now = {0};
	pthread_mutex_lock(&timelineLock);
	position_now(ref, &now);
	pthread_mutex_unlock(&timelineLock);
	for (uint32_t i = 0; i < g->count; i++) {
		const struct graph_node *n = g->nodes[i];
		if (!allocates(n) && !lets_go(n))
			continue;
		n->memory.of->piece->since = now;
		if (n->memory.within)
			end(n->memory.of); /* left by an earlier launch of another executable graph */
		else if (allocates(n))
			begin(n->memory.of);
		else
			end(n->memory.of);
	}
}

CUresult graph_memory_free(uint64_t address, const struct stream_ref *ref)
{
	GRAPHS_LOCKED;
	struct graph_memory *m = memory_at(address);
	struct stream_position now = {0};
	if (!m || !m->live)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&timelineLock);
	bool known = !ref || position_now(ref, &now);
	pthread_mutex_unlock(&timelineLock);
	if (!known)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->piece->since = now;
	end(m);
	return CUDA_SUCCESS;
}

void graph_memory_context_ended(uint64_t context)
{
	for (struct graph_memory *m = all, *next; m; m = next) {
		next = m->next;
		if (m->context == context)
			end(m);
	}
}

/* --- graph memory of devices --- */

static uint64_t *number_of(struct pool *p, CUgraphMem_attribute what)
{
	switch ((unsigned)what) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		return &p->used;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		return &p->usedHigh;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		return &p->reserved;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		return &p->reservedHigh;
	default:
		return NULL;
	}
}

CUresult pg_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute what, void *value)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = pool_for(device);
	const uint64_t *number = p ? number_of(p, what) : NULL;
	CUresult r = !p ? CUDA_ERROR_OUT_OF_MEMORY : value && number ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*(cuuint64_t *)value = *number;
	pthread_mutex_unlock(&timelineLock);
	return r;
}

/* High-water marks can only be reset. */
CUresult pg_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute what, void *value)
{
	bool used = what == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || (!used && what != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) || *(cuuint64_t *)value != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = pool_for(device);
	if (p)
		*number_of(p, what) = used ? p->used : p->reserved;
	pthread_mutex_unlock(&timelineLock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pg_cuDeviceGraphMemTrim(CUdevice device)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = pool_for(device);
	if (p)
		pool_trim(p, 0);
	pthread_mutex_unlock(&timelineLock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
