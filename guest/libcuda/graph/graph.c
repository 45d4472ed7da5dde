/* Graphs and their edges, and queries of them. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "core/zz_impl.h"
#include "graph/node.h"
#include "graph/user_object.h"
#include "graph/version.h"

struct table graphs = HANDLE_TABLE(HANDLE_GRAPH, struct graph, 200000);
struct table graph_nodes = HANDLE_TABLE(HANDLE_GRAPH_NODE, struct graph_node, 1000000);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t ids;

void graphs_lock(void)
{
	pthread_mutex_lock(&lock);
	versions_sweep();
}

void graphs_leave(void) { pthread_mutex_unlock(&lock); }

void graphs_unlock(const bool *locked)
{
	(void)locked;
	graphs_leave();
	destructors_run();
}

struct graph *graph_of(CUgraph handle) { return handle_find(&graphs, (uint64_t)(uintptr_t)handle); }
struct graph_node *node_of(CUgraphNode handle) { return handle_find(&graph_nodes, (uint64_t)(uintptr_t)handle); }

struct graph *graph_new(void)
{
	struct graph *g = handle_new(&graphs);
	if (!g)
		return NULL;
	g->nodes = NULL;
	g->count = g->room = g->locals = 0;
	g->id = ++ids;
	g->origin = 0;
	g->inner = g->capturing = g->allocates = false;
	g->executable = 0;
	g->objectRefs = NULL;
	return g;
}

/* --- nodes --- */

static CUresult grow(struct graph_node ***array, uint32_t *room, uint32_t count)
{
	if (count <= *room)
		return CUDA_SUCCESS;
	uint32_t more = *room ? 2 * *room : 8;
	while (more < count)
		more *= 2;
	void *larger = realloc(*array, more * sizeof **array);
	if (!larger)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*array = larger;
	*room = more;
	return CUDA_SUCCESS;
}

CUresult graph_add(struct graph *g, CUgraphNodeType type, struct graph_node *const *after, size_t count, struct graph_node **added)
{
	if (g->count >= GRAPH_NODES_MOST || count > g->count)
		return count > g->count ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = grow(&g->nodes, &g->room, g->count + 1);
	if (r != CUDA_SUCCESS)
		return r;
	struct graph_node *n = handle_new(&graph_nodes);
	if (!n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset((uint8_t *)n + sizeof n->object, 0, sizeof *n - sizeof n->object);
	n->graph = g;
	n->type = type;
	r = grow(&n->before, &n->room, (uint32_t)count);
	if (r != CUDA_SUCCESS) {
		handle_free(&graph_nodes, n);
		return r;
	}
	if (count)
		memcpy(n->before, after, count * sizeof *after);
	n->count = (uint32_t)count;
	n->local = g->locals++;
	g->nodes[g->count++] = n;
	handle_publish(n);
	*added = n;
	return CUDA_SUCCESS;
}

static void node_free(struct graph_node *n)
{
	handle_retire(n);
	node_clear(n);
	free(n->before);
	handle_free(&graph_nodes, n);
}

static bool unlink_before(struct graph_node *n, const struct graph_node *from)
{
	for (uint32_t i = 0; i < n->count; i++)
		if (n->before[i] == from) {
			memmove(&n->before[i], &n->before[i + 1], (--n->count - i) * sizeof *n->before);
			return true;
		}
	return false;
}

void node_remove(struct graph_node *n)
{
	struct graph *g = n->graph;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < g->count; i++) {
		unlink_before(g->nodes[i], n);
		if (g->nodes[i] != n)
			g->nodes[kept++] = g->nodes[i];
	}
	g->count = kept;
	node_free(n);
}

void graph_free(struct graph *g)
{
	handle_retire(g);
	for (uint32_t i = 0; i < g->count; i++)
		node_free(g->nodes[i]);
	free(g->nodes);
	object_refs_drop(&g->objectRefs);
	handle_free(&graphs, g);
}

static CUresult fill_copy(const struct graph *g, struct graph *c)
{
	CUresult r = object_refs_copy(c, g);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < g->count; i++) {
		struct graph_node *n;
		g->nodes[i]->position = i;
		r = graph_add(c, g->nodes[i]->type, NULL, 0, &n);
		if (r != CUDA_SUCCESS)
			return r;
		n->origin = g->nodes[i]->object.id;
		n->local = g->nodes[i]->local;
		n->disabled = g->nodes[i]->disabled;
		r = node_take(n, g->nodes[i]);
	}
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < g->count; i++) {
		const struct graph_node *from = g->nodes[i];
		struct graph_node *n = c->nodes[i];
		r = grow(&n->before, &n->room, from->count);
		for (n->count = 0; r == CUDA_SUCCESS && n->count < from->count; n->count++)
			n->before[n->count] = c->nodes[from->before[n->count]->position];
	}
	c->locals = g->locals;
	return r;
}

CUresult graph_copy(const struct graph *g, bool inner, struct graph **copied)
{
	struct graph *c = graph_new();
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->inner = inner;
	c->origin = g->object.id;
	c->allocates = g->allocates;
	CUresult r = fill_copy(g, c);
	if (r != CUDA_SUCCESS) {
		graph_free(c);
		return r;
	}
	handle_publish(c);
	*copied = c;
	return CUDA_SUCCESS;
}

CUresult nodes_of(const struct graph *g, const CUgraphNode *handles, size_t count, struct graph_node ***nodes)
{
	*nodes = NULL;
	if (count == 0)
		return CUDA_SUCCESS;
	if (!handles || count > g->count)
		return CUDA_ERROR_INVALID_VALUE;
	struct graph_node **all = malloc(count * sizeof *all);
	if (!all)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count; i++) {
		struct graph_node *n = node_of(handles[i]);
		bool good = n && n->graph == g;
		if (good)
			n->mark = 0;
		all[i] = good ? n : NULL;
	}
	for (size_t i = 0; i < count; i++)
		if (!all[i] || all[i]->mark++) {
			free(all);
			return CUDA_ERROR_INVALID_VALUE;
		}
	*nodes = all;
	return CUDA_SUCCESS;
}

/* Lists each node's successors, node by node; those of a node begin at begin[position]. */
static void list_followers(const struct graph *g, uint32_t *begin, struct graph_node **list)
{
	for (uint32_t i = 0; i < g->count; i++)
		for (uint32_t k = 0; k < g->nodes[i]->count; k++)
			begin[g->nodes[i]->before[k]->position + 1]++;
	for (uint32_t i = 0; i < g->count; i++)
		begin[i + 1] += begin[i];
	for (uint32_t i = g->count; i-- > 0;)
		for (uint32_t k = 0; k < g->nodes[i]->count; k++)
			list[--begin[g->nodes[i]->before[k]->position + 1]] = g->nodes[i];
}

CUresult graph_order(struct graph *g, struct graph_node ***order, struct graph_node **bad)
{
	uint64_t edges = 0;
	for (uint32_t i = 0; i < g->count; i++) {
		g->nodes[i]->position = i;
		g->nodes[i]->mark = g->nodes[i]->count;
		edges += g->nodes[i]->count;
	}
	struct graph_node **done = malloc((g->count + 1) * sizeof *done), **list = malloc((edges + 1) * sizeof *list);
	uint32_t *begin = calloc(g->count + 2, sizeof *begin), ended = 0;
	*order = done;
	if (!done || !list || !begin) {
		free(done);
		free(list);
		free(begin);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	list_followers(g, begin, list); /* now the successors of a node begin at begin[position + 1] */
	for (uint32_t i = 0; i < g->count; i++)
		if (g->nodes[i]->mark == 0)
			done[ended++] = g->nodes[i];
	for (uint32_t i = 0; i < ended; i++) {
		uint32_t at = done[i]->position;
		uint64_t end = at + 1 < g->count ? begin[at + 2] : edges;
		for (uint32_t k = begin[at + 1]; k < end; k++)
			if (--list[k]->mark == 0)
				done[ended++] = list[k];
	}
	free(list);
	free(begin);
	if (ended == g->count)
		return CUDA_SUCCESS;
	free(done);
	for (uint32_t i = 0; i < g->count && bad; i++)
		if (g->nodes[i]->mark != 0)
			*bad = g->nodes[i];
	return CUDA_ERROR_INVALID_VALUE;
}

bool edges_plain(const CUgraphEdgeData *data, size_t count)
{
	static const CUgraphEdgeData plain;
	for (size_t i = 0; data && i < count; i++)
		if (memcmp(&data[i], &plain, sizeof plain) != 0)
			return false;
	return true;
}

/* --- API calls --- */

CUresult pg_cuGraphCreate(CUgraph *out, unsigned int flags)
{
	GRAPHS_LOCKED;
	if (!out || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct graph *g = graph_new();
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	handle_publish(g);
	*out = HANDLE_OF(CUgraph, g);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphDestroy(CUgraph handle)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(handle);
	if (!g || g->inner || g->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	graph_free(g);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphClone(CUgraph *out, CUgraph original)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(original), *c;
	if (!out || !g)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = g->allocates ? CUDA_ERROR_NOT_SUPPORTED : graph_copy(g, false, &c);
	if (r == CUDA_SUCCESS)
		*out = HANDLE_OF(CUgraph, c);
	return r;
}

static struct graph_node *find_copy(const struct graph *g, uint64_t origin)
{
	for (uint32_t i = 0; i < g->count; i++) {
		struct graph_node *n = g->nodes[i];
		if (n->origin == origin)
			return n;
		struct graph_node *within = n->type == CU_GRAPH_NODE_TYPE_GRAPH && n->child ? find_copy(n->child, origin) : NULL;
		if (within)
			return within;
	}
	return NULL;
}

CUresult pg_cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(clone);
	struct graph_node *n = node_of(original);
	if (!out || !g || !n || g->origin == 0 || !(n = find_copy(g, n->object.id)))
		return CUDA_ERROR_INVALID_VALUE;
	*out = HANDLE_OF(CUgraphNode, n);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, &p);
}

CUresult pg_cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeParams *p)
{
	return pg_cuGraphAddNode_v2(out, graph, after, NULL, count, p);
}

CUresult pg_cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
	CUgraphNodeParams *p)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	struct graph_node **before, *n;
	if (!out || !g || !p)
		return CUDA_ERROR_INVALID_VALUE;
	if (!edges_plain(edges, count))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = nodes_of(g, after, count, &before);
	if (r != CUDA_SUCCESS)
		return r;
	r = graph_add(g, p->type, before, count, &n);
	free(before);
	if (r != CUDA_SUCCESS)
		return r;
	r = node_set_new(n, p);
	if (r != CUDA_SUCCESS) {
		node_remove(n);
		return r;
	}
	*out = HANDLE_OF(CUgraphNode, n);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphDestroyNode(CUgraphNode node)
{
	GRAPHS_LOCKED;
	struct graph_node *n = node_of(node);
	if (!n || n->graph->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	if (n->graph->allocates)
		return CUDA_ERROR_NOT_SUPPORTED;
	node_remove(n);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	if (!g || (count && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	if (!edges_plain(edges, count))
		return CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < count; i++) {
		struct graph_node *a = node_of(from[i]), *b = node_of(to[i]);
		if (!a || !b || a == b || a->graph != g || b->graph != g)
			return CUDA_ERROR_INVALID_VALUE;
		for (uint32_t k = 0; k < b->count; k++)
			if (b->before[k] == a)
				return CUDA_ERROR_INVALID_VALUE;
		CUresult r = grow(&b->before, &b->room, b->count + 1);
		if (r != CUDA_SUCCESS)
			return r;
		b->before[b->count++] = a;
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	return pg_cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult pg_cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges,
	size_t count)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	if (!g || (count && (!from || !to)) || !edges_plain(edges, count))
		return CUDA_ERROR_INVALID_VALUE;
	if (g->allocates && count)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < count; i++) {
		struct graph_node *a = node_of(from[i]), *b = node_of(to[i]);
		if (!a || !b || a->graph != g || b->graph != g || !unlink_before(b, a))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	return pg_cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

/* --- queries --- */

/* The result of a query for nodes: up to the size of the program's array, and their total number. */
struct answer {
	CUgraphNode *nodes;
	CUgraphEdgeData *edges;
	size_t room, count;
};

static CUresult begin_answer(struct answer *a, CUgraphNode *nodes, CUgraphEdgeData *edges, const size_t *count)
{
	if (!count || (edges && !nodes))
		return CUDA_ERROR_INVALID_VALUE;
	*a = (struct answer){.nodes = nodes, .edges = edges, .room = nodes ? *count : 0};
	return CUDA_SUCCESS;
}

static void add_answer(struct answer *a, const struct graph_node *n)
{
	if (a->count < a->room) {
		a->nodes[a->count] = HANDLE_OF(CUgraphNode, n);
		if (a->edges)
			a->edges[a->count] = (CUgraphEdgeData){0};
	}
	a->count++;
}

/* Sets *count to the number of entries and clears the unused rest of the array. */
static void end_answer(struct answer *a, size_t *count)
{
	for (size_t i = a->count; i < a->room; i++)
		a->nodes[i] = NULL;
	*count = a->nodes && a->count > a->room ? a->room : a->count;
}

CUresult pg_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	struct answer a;
	CUresult r = g ? begin_answer(&a, nodes, NULL, count) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (uint32_t i = 0; i < g->count; i++)
		add_answer(&a, g->nodes[i]);
	end_answer(&a, count);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	struct answer a;
	CUresult r = g ? begin_answer(&a, nodes, NULL, count) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (uint32_t i = 0; i < g->count; i++)
		if (g->nodes[i]->count == 0)
			add_answer(&a, g->nodes[i]);
	end_answer(&a, count);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	if (!g || !count || !from != !to || (edges && !from))
		return CUDA_ERROR_INVALID_VALUE;
	struct answer a = {.nodes = from, .edges = edges, .room = from ? *count : 0}, b = {.nodes = to, .room = a.room};
	for (uint32_t i = 0; i < g->count; i++)
		for (uint32_t k = 0; k < g->nodes[i]->count; k++) {
			add_answer(&a, g->nodes[i]->before[k]);
			add_answer(&b, g->nodes[i]);
		}
	end_answer(&b, count);
	end_answer(&a, count);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	return pg_cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult pg_cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
	GRAPHS_LOCKED;
	struct graph_node *n = node_of(node);
	struct answer a;
	CUresult r = n ? begin_answer(&a, nodes, edges, count) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (uint32_t k = 0; k < n->count; k++)
		add_answer(&a, n->before[k]);
	end_answer(&a, count);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return pg_cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

CUresult pg_cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
	GRAPHS_LOCKED;
	struct graph_node *n = node_of(node);
	struct answer a;
	CUresult r = n ? begin_answer(&a, nodes, edges, count) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	const struct graph *g = n->graph;
	for (uint32_t i = 0; i < g->count; i++)
		for (uint32_t k = 0; k < g->nodes[i]->count; k++)
			if (g->nodes[i]->before[k] == n)
				add_answer(&a, g->nodes[i]);
	end_answer(&a, count);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return pg_cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}
