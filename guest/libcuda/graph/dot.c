/* Writes a graph as a Graphviz file, for debugging. */
#include <errno.h>
#include <stdio.h>

#include "core/zz_impl.h"
#include "graph/memory.h"

static const char *const names[] = {
	"KERNEL", "MEMCPY", "MEMSET", "HOST", "GRAPH", "EMPTY", "WAIT_EVENT", "EVENT_RECORD", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC",
	"MEM_FREE",
};

static void print_kernel(FILE *f, const struct graph_node *n)
{
	struct function *k = function_hold(n->kernel.function);
	const struct launch_args *s = &n->kernel.shape;
	fprintf(f, "\\n%s<<<(%u,%u,%u),(%u,%u,%u),%u>>>", k ? k->name : "", s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1],
		s->block[2], s->sharedBytes);
	if (k)
		function_release(k);
}

static void print_allocation(FILE *f, const struct graph_node *n)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p;
	graph_memory_describe(n->memory.of, &p);
	fprintf(f, "\\n%zu bytes at 0x%llx", p.bytesize, (unsigned long long)p.dptr);
}

static void print_node(FILE *f, const struct graph_node *n, unsigned flags)
{
	bool all = flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;
	fprintf(f, "\"%u_%u\" [shape=box, label=\"%u %s", n->graph->id, n->local, n->local, names[n->type]);
	if (n->type == CU_GRAPH_NODE_TYPE_KERNEL && (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)))
		print_kernel(f, n);
	if (n->type == CU_GRAPH_NODE_TYPE_MEMCPY && (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)))
		fprintf(f, "\\n%zu x %zu x %zu bytes", n->copy.WidthInBytes, n->copy.Height, n->copy.Depth);
	if (n->type == CU_GRAPH_NODE_TYPE_MEMSET && (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)))
		fprintf(f, "\\n%zu x %zu of %u bytes, value %u", n->fill.width, n->fill.height, n->fill.elementSize, n->fill.value);
	if (n->type == CU_GRAPH_NODE_TYPE_HOST && (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS)))
		fprintf(f, "\\n%p(%p)", (void *)(uintptr_t)n->host.fn, n->host.userData);
	if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS)))
		print_allocation(f, n);
	if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS)))
		fprintf(f, "\\n0x%llx", (unsigned long long)graph_memory_address(n->memory.of));
	if (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
		fprintf(f, "\\nhandle 0x%llx", (unsigned long long)n->object.id);
	fprintf(f, "\"];\n");
}

static void print_graph(FILE *f, const struct graph *g, unsigned flags)
{
	fprintf(f, "subgraph cluster_%u {\nlabel=\"graph_%u\";\n", g->id, g->id);
	for (uint32_t i = 0; i < g->count; i++) {
		const struct graph_node *n = g->nodes[i];
		print_node(f, n, flags);
		for (uint32_t k = 0; k < n->count; k++)
			fprintf(f, "\"%u_%u\" -> \"%u_%u\";\n", g->id, n->before[k]->local, g->id, n->local);
		if (n->type == CU_GRAPH_NODE_TYPE_GRAPH && n->child)
			print_graph(f, n->child, flags);
	}
	fprintf(f, "}\n");
}

CUresult pg_cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	if (!g || !path)
		return CUDA_ERROR_INVALID_VALUE;
	int saved = errno;
	FILE *f = fopen(path, "we");
	if (f) {
		fprintf(f, "digraph dot {\n");
		print_graph(f, g, flags);
		fprintf(f, "}\n");
	}
	bool good = f && !ferror(f);
	good = f && fclose(f) == 0 && good;
	errno = saved;
	return good ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
