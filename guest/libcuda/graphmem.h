/*
 * Memory of graphs: what their nodes allocate and free. Each allocation has its address, and the memory behind it, from the time
 * when its node is added until no graph, executable graph or program uses it; so a launch neither asks the host for memory nor
 * waits for any, and for the host both kinds of nodes do nothing.
 *
 * An allocation is live from a launch that makes it, without freeing it, until a call, another graph or another launch frees it.
 * All of this is guarded by the graphs' lock.
 */
#ifndef PEGASUS_GRAPHMEM_H
#define PEGASUS_GRAPHMEM_H

#include "graph.h"

struct context;
struct place;

/*
 * Has a new node allocate memory of a context, and writes the address into p. The node may be given the memory of an earlier
 * allocation of the same size that the graph frees before the node begins.
 */
CUresult graph_memory_allocate(struct graph_node *n, const struct context *c, CUDA_MEM_ALLOC_NODE_PARAMS *p);
/* Has a new node free what a node of this or another graph allocates. */
CUresult graph_memory_let_go(struct graph_node *n, CUdeviceptr address);
/* Nodes of copies use the memory, too, until graph_memory_release. */
void graph_memory_hold(struct graph_memory *m);
void graph_memory_release(struct graph_memory *m);
CUdeviceptr graph_memory_address(const struct graph_memory *m);
void graph_memory_describe(const struct graph_memory *m, CUDA_MEM_ALLOC_NODE_PARAMS *p);

/* Notes in the nodes of an executable graph which of its allocations it frees itself. */
void graph_memory_match(struct graph *g);
/* Whether a graph can be launched as far as its allocations go: CUDA_ERROR_INVALID_VALUE if one is live, or has to be and isn't. */
CUresult graph_memory_check(const struct graph *g, const struct place *place, bool freesBefore);
/* A graph was launched. */
void graph_memory_launched(const struct graph *g, const struct place *place);
/* A call frees a live allocation after the work of a place, or, with NULL, after all work. Takes the lock itself. */
CUresult graph_memory_free(uint64_t address, const struct place *place);
/* A context has ended, and with it what was live in it. */
void graph_memory_context_ended(uint64_t context);

#endif
