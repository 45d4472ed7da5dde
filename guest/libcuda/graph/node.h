/*
 * Parameters of graph nodes: each node type has a structure, which is validated and copied with everything it points
 * to. All functions require the graphs' lock.
 */
#ifndef PEGASUS_GRAPH_NODE_H
#define PEGASUS_GRAPH_NODE_H

#include "graph/graph.h"
#include "work/launch.h"

/* Finds a node by handle: CUDA_ERROR_INVALID_VALUE if there is none, or if it has another type. */
CUresult node_of_type(CUgraphNode node, CUgraphNodeType type, struct graph_node **n);
/* Copies the parameters of from, a node of the same type, to n. */
CUresult node_take(struct graph_node *n, const struct graph_node *from);
/* Frees a node's parameters. */
void node_clear(struct graph_node *n);

/* Sets a kernel node's parameters, packed with the held function f of that handle. */
CUresult kernel_set(struct graph_node *n, CUfunction handle, const struct function *f, const struct packed_launch *p);
/* Set a node's parameters from the API structure of its type. On failure the node is unchanged. */
CUresult node_set_kernel(struct graph_node *n, const CUDA_KERNEL_NODE_PARAMS *p);
CUresult node_set_copy(struct graph_node *n, const CUDA_MEMCPY3D *p, CUcontext context);
CUresult node_set_fill(struct graph_node *n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context);
CUresult node_set_host(struct graph_node *n, const CUDA_HOST_NODE_PARAMS *p);
CUresult node_set_event(struct graph_node *n, CUevent event);
CUresult node_set_child(struct graph_node *n, const struct graph *child);
CUresult node_set(struct graph_node *n, const CUgraphNodeParams *p);
/*
 * As node_set for a node that was just added: memory nodes allocate or free permanently and write the address into p.
 */
CUresult node_set_new(struct graph_node *n, CUgraphNodeParams *p);

#endif
