/*
 * Graphs as data: nodes with copies of their parameters, and their dependencies. Only executable graphs are sent to the
 * host (exec.c).
 *
 * One lock guards all graphs and captures: see the lock ordering in core/process.h.
 */
#ifndef PEGASUS_GRAPH_GRAPH_H
#define PEGASUS_GRAPH_GRAPH_H

#include "work/launch.h"
#include "object/object.h"

/* Parameters of a kernel node. */
struct kernel_work {
	CUfunction function; /* or kernel, as passed by the program */
	struct launch_args shape;
	uint32_t bytes, count; /* bytes of block; number of parameters */
	uint8_t *block;
	void **values; /* address of each parameter in block, returned by queries */
	int priority;
	CUaccessPolicyWindow window; /* hint without effect here */
	CUlaunchMemSyncDomain domain;
	CUlaunchMemSyncDomainMap domains;
};

struct graph;
struct graph_memory;

struct graph_node {
	struct object object;
	struct graph *graph;
	struct graph_node **before; /* dependencies */
	uint32_t count, room;       /* of before */
	uint32_t local;             /* id within its graph, ascending in creation order */
	uint64_t origin;            /* handle of the node that this one is a copy of, or 0 */
	uint64_t context;           /* handle, or 0 for work that needs no context */
	CUgraphNodeType type;
	bool disabled;              /* in an executable graph only */
	uint32_t mark, position;    /* scratch space of graph traversals */
	union {
		struct kernel_work kernel;
		CUDA_MEMCPY3D copy;
		CUDA_MEMSET_NODE_PARAMS fill;
		CUDA_HOST_NODE_PARAMS host;
		struct graph *child;
		CUevent event;
		struct {
			struct graph_memory *of; /* the allocation that it makes or frees: see memory.h */
			bool within;             /* in an executable graph: the graph both allocates and frees it */
		} memory;
	};
};

struct object_ref;

struct graph {
	struct object object;
	struct graph_node **nodes;
	uint32_t count, room;
	uint32_t locals, id;
	uint64_t origin; /* handle of the graph that this one is a copy of, or 0 */
	bool inner;      /* part of a node or of an executable graph, and freed with it */
	bool capturing;  /* a capture adds nodes to it */
	bool allocates;  /* has memory nodes: its nodes and edges are fixed; one executable graph at a time */
	uint64_t executable; /* handle of that executable graph, which may have been destroyed since; 0: none */
	struct object_ref *objectRefs; /* references to user objects */
};

enum { GRAPH_NODES_MOST = 1 << 16 }; /* of one graph on the host */

extern struct table graphs, graph_nodes;

/* GRAPHS_LOCKED holds the lock until the end of the scope. */
void graphs_lock(void);
void graphs_leave(void);
void graphs_unlock(const bool *); /* also runs due destructors of user objects: the caller must hold no other lock */
#define GRAPHS_LOCKED __attribute__((cleanup(graphs_unlock), unused)) const bool graphs_locked = (graphs_lock(), true)

/* The functions below require the lock. */

struct graph *graph_of(CUgraph handle);
struct graph_node *node_of(CUgraphNode handle);
struct graph *graph_new(void);
void graph_free(struct graph *g);
/* Copies a graph; the program cannot look up inner copies. */
CUresult graph_copy(const struct graph *g, bool inner, struct graph **copied);
/* Adds an empty node that depends on the nodes of after. */
CUresult graph_add(struct graph *g, CUgraphNodeType type, struct graph_node *const *after, size_t count, struct graph_node **added);
void node_remove(struct graph_node *n);
/* Looks up nodes by handle, all of one graph; *nodes is an array that the caller frees, NULL for none. */
CUresult nodes_of(const struct graph *g, const CUgraphNode *handles, size_t count, struct graph_node ***nodes);
/*
 * Sorts a graph's nodes topologically into an array that the caller frees; if the graph has a cycle, *bad is one of its
 * nodes.
 */
CUresult graph_order(struct graph *g, struct graph_node ***order, struct graph_node **bad);
/*
 * Reports whether the edge data describe plain dependencies only: the whole node completes before its successor begins.
 */
bool edges_plain(const CUgraphEdgeData *data, size_t count);

#endif
