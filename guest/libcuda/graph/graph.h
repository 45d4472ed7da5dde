/*
 * Graphs as data: nodes with copies of their parameters, and their dependencies. Only executable graphs are sent to the
 * host (graphexec.c).
 *
 * One lock guards all graphs and captures. The library's other locks nest inside it, never the other way round.
 */
#ifndef PEGASUS_GRAPH_H
#define PEGASUS_GRAPH_H

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
	uint32_t mark, place;       /* scratch space of graph traversals */
	union {
		struct kernel_work kernel;
		CUDA_MEMCPY3D copy;
		CUDA_MEMSET_NODE_PARAMS fill;
		CUDA_HOST_NODE_PARAMS host;
		struct graph *child;
		CUevent event;
		struct {
			struct graph_memory *of; /* the allocation that it makes or frees: see graphmem.h */
			bool within;             /* in an executable graph: the graph both allocates and frees it */
		} memory;
	};
};

struct keep;

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
	struct keep *kept; /* references to user objects */
};

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
/* Copies the parameters of from, a node of the same type, to n. */
CUresult node_take(struct graph_node *n, const struct graph_node *from);
/* Frees a node's parameters. */
void node_clear(struct graph_node *n);
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

/* Sets a kernel node's parameters, packed with the held function f of that handle. */
CUresult kernel_set(struct graph_node *n, CUfunction handle, const struct function *f, const struct parcel *p);
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

/* References to user objects that belong to a graph; keeps_drop releases a list of them. */
CUresult keeps_copy(struct graph *to, const struct graph *from);
void keeps_drop(struct keep **list);
/* Appends the list from to *to and empties it. */
void keeps_move(struct keep **to, struct keep **from);
/* As keeps_move for a graph and all graphs nested in it. */
void keeps_move_all(struct keep **to, struct graph *from);
/* Reports whether a graph, or one nested in it, references user objects. */
bool keeps_any(const struct graph *g);
/* Runs the destructors that became due while the lock was held; call it without the lock. */
void keeps_run(void);

#endif
