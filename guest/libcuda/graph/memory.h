/*
 * Memory nodes of graphs. An allocation has its address and its memory from the creation of its node until no graph,
 * executable graph or program uses it. A launch therefore never requests memory from the host or waits for any, and for
 * the host memory nodes are empty nodes.
 *
 * An allocation is live from a launch that allocates it without freeing it until a call, another graph or another
 * launch frees it. The graphs' lock guards all of this.
 */
#ifndef PEGASUS_GRAPH_MEMORY_H
#define PEGASUS_GRAPH_MEMORY_H

#include "graph/graph.h"

struct context;
struct stream_ref;

/*
 * Makes a new node allocate memory of a context and writes the address into p. The node may reuse the memory of an
 * earlier allocation of the same size that the graph frees before the node begins.
 */
CUresult graph_memory_allocate(struct graph_node *n, const struct context *c, CUDA_MEM_ALLOC_NODE_PARAMS *p);
/* Makes a new node free the allocation of a node of this or another graph. */
CUresult graph_memory_let_go(struct graph_node *n, CUdeviceptr address);
/* Reference counting: copies of a node share its allocation. */
void graph_memory_hold(struct graph_memory *m);
void graph_memory_release(struct graph_memory *m);
CUdeviceptr graph_memory_address(const struct graph_memory *m);
void graph_memory_describe(const struct graph_memory *m, CUDA_MEM_ALLOC_NODE_PARAMS *p);

/* Marks the nodes of an executable graph with allocations that the graph frees itself. */
void graph_memory_match(struct graph *g);
/*
 * Checks that the state of a graph's allocations permits a launch: CUDA_ERROR_INVALID_VALUE if an allocation is already
 * live, or is not live but has to be.
 */
CUresult graph_memory_check(const struct graph *g, const struct stream_ref *ref, bool freesBefore);
/* Updates the liveness of the allocations after a launch. */
void graph_memory_launched(const struct graph *g, const struct stream_ref *ref);
/* Frees a live allocation after the work of a stream reference or, with NULL, after all work. Takes the lock itself. */
CUresult graph_memory_free(uint64_t address, const struct stream_ref *ref);
/* Drops the live allocations of a context that was destroyed. */
void graph_memory_context_ended(uint64_t context);

#endif
