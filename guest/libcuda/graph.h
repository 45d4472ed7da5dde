/*
 * Graphs, as data: nodes with what they are to do, all of it copied, and what
 * each comes after. Only an executable graph travels (graphexec.c).
 *
 * One lock guards all graphs and captures. Other locks of the library are taken
 * under it, but never the other way round.
 */
#ifndef PEGASUS_GRAPH_H
#define PEGASUS_GRAPH_H

#include "launch.h"
#include "object.h"

/* What a kernel node launches. */
struct kernel_work {
	CUfunction function; /* or kernel, as the program named it */
	struct launch_args shape;
	uint32_t bytes, count; /* of the block; of parameters */
	uint8_t *block;
	void **values; /* each parameter's place in the block, for who asks */
	int priority;
	CUaccessPolicyWindow window; /* hints that nothing here follows */
	CUlaunchMemSyncDomain domain;
	CUlaunchMemSyncDomainMap domains;
};

struct graph;
struct graph_memory;

struct graph_node {
	struct object object;
	struct graph *graph;
	struct graph_node **before; /* that it comes after */
	uint32_t count, room;       /* of before */
	uint32_t local;             /* in its graph; grows in the order of nodes */
	uint64_t origin;            /* handle of the node that it is a copy of, or 0 */
	uint64_t context;           /* handle, or 0 for work that needs none */
	CUgraphNodeType type;
	bool disabled;              /* of an executable graph */
	uint32_t mark, place;       /* for whoever walks */
	union {
		struct kernel_work kernel;
		CUDA_MEMCPY3D copy;
		CUDA_MEMSET_NODE_PARAMS fill;
		CUDA_HOST_NODE_PARAMS host;
		struct graph *child;
		CUevent event;
		struct {
			struct graph_memory *of; /* what it allocates or frees: see graphmem.h */
			bool within;             /* of an executable graph: that does both */
		} memory;
	};
};

struct keep;

struct graph {
	struct object object;
	struct graph_node **nodes;
	uint32_t count, room;
	uint32_t locals, id;
	uint64_t origin; /* handle of the graph that it is a copy of, or 0 */
	bool inner;      /* part of a node or of an executable graph, and goes with it */
	bool capturing;  /* a capture adds to it */
	bool allocates;  /* has nodes that allocate or free: nodes and edges stay, and it has one executable graph at a time */
	uint64_t executable; /* the handle of that, or of one that has gone; 0: none */
	struct keep *kept; /* user objects */
};

extern struct table graphs, graph_nodes;

/* Holds the lock until the end of the scope. */
void graphs_lock(void);
void graphs_leave(void);
void graphs_unlock(const bool *); /* and runs destructors of user objects that are due: for who has no other lock */
#define GRAPHS_LOCKED __attribute__((cleanup(graphs_unlock), unused)) const bool graphs_locked = (graphs_lock(), true)

/* What follows is called with the lock held. */

struct graph *graph_of(CUgraph handle);
struct graph_node *node_of(CUgraphNode handle);
struct graph *graph_new(void);
void graph_free(struct graph *g);
/* A copy; inner ones can't be found by the program. */
CUresult graph_copy(const struct graph *g, bool inner, struct graph **copied);
/* A node that does nothing yet, after those of that place. */
CUresult graph_add(struct graph *g, CUgraphNodeType type, struct graph_node *const *after, size_t count, struct graph_node **added);
void node_remove(struct graph_node *n);
/* Makes a node do what another of its type does. */
CUresult node_take(struct graph_node *n, const struct graph_node *from);
/* Forgets what a node does. */
void node_clear(struct graph_node *n);
/* Nodes by their handles, all of one graph: an array to be freed, NULL for none. */
CUresult nodes_of(const struct graph *g, const CUgraphNode *handles, size_t count, struct graph_node ***nodes);
/* A graph's nodes in an order in which each comes after those before it, to be freed; or one of a cycle. */
CUresult graph_order(struct graph *g, struct graph_node ***order, struct graph_node **bad);
/* Whether data says of edges no more than that one node ends before another begins. */
bool edges_plain(const CUgraphEdgeData *data, size_t count);

/* What a kernel node is to launch, packed with a function of that handle that is held. */
CUresult kernel_set(struct graph_node *n, CUfunction handle, const struct function *f, const struct parcel *p);
/* What a node is to do, by the structure of its type. Unless this succeeds the node is as before. */
CUresult node_set_kernel(struct graph_node *n, const CUDA_KERNEL_NODE_PARAMS *p);
CUresult node_set_copy(struct graph_node *n, const CUDA_MEMCPY3D *p, CUcontext context);
CUresult node_set_fill(struct graph_node *n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context);
CUresult node_set_host(struct graph_node *n, const CUDA_HOST_NODE_PARAMS *p);
CUresult node_set_event(struct graph_node *n, CUevent event);
CUresult node_set_child(struct graph_node *n, const struct graph *child);
CUresult node_set(struct graph_node *n, const CUgraphNodeParams *p);
/* The same for a node that was just added: nodes that allocate or free do so for good, and write the address into p. */
CUresult node_set_new(struct graph_node *n, CUgraphNodeParams *p);

/* User objects that go with a graph; its list of them. */
CUresult keeps_copy(struct graph *to, const struct graph *from);
void keeps_drop(struct keep **list);
/* Moves a list behind another one. */
void keeps_move(struct keep **to, struct keep **from);
/* The same for those of a graph and of all graphs in it. */
void keeps_move_all(struct keep **to, struct graph *from);
/* Whether a graph, or one in it, has any. */
bool keeps_any(const struct graph *g);
/* Destructors that are due, since the lock was taken: run without it. */
void keeps_run(void);

#endif
