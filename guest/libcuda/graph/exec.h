/* Executable graphs: a private copy of the graph, and its version on the host. */
#ifndef PEGASUS_GRAPH_EXEC_H
#define PEGASUS_GRAPH_EXEC_H

#include "graph/graph.h"

struct exec_version;

struct graph_exec {
	struct object object; /* its id is used by the host, too */
	uint64_t context;     /* handle; 0 after the context was destroyed */
	uint32_t wireContext, id;
	uint64_t flags;
	struct graph *graph;
	bool stale;           /* the host has another version of the graph */
	struct exec_version *version; /* resources of the host's version; NULL for none */
	uint64_t *records;    /* handles of the events that the host's version records, in order */
	uint32_t recordCount;
};

extern struct table graph_execs;

/* Releases the resources of a context that the host has destroyed together with all launches. */
void execs_context_ended(uint64_t context);

/* Launches an executable graph; *settles: it records an event that other processes share, which must find it complete. */
CUresult graph_launch(CUgraphExec handle, CUstream stream, bool *settles);

/* The functions below require the graphs' lock. */

/* Returns the executable graph of a handle, or NULL. */
struct graph_exec *exec_of(CUgraphExec handle);
/*
 * Finds an executable graph, and its copy of a node of a type: CUDA_ERROR_INVALID_VALUE if one does not exist or the
 * type is another.
 */
CUresult exec_node(CUgraphExec handle, CUgraphNode node, CUgraphNodeType type, struct graph_exec **e, struct graph_node **n);
/*
 * Call it after a change of a node with the change's result r. It returns r, or CUDA_ERROR_INVALID_CONTEXT if r is
 * success and the node belongs to another context. If it returns success, it has marked the executable graph so that
 * the next launch sends the new version.
 */
CUresult exec_changed(struct graph_exec *e, const struct graph_node *n, CUresult r);
/* Gives a node with a child graph the parameters of another graph, which must have the same nodes and edges. */
CUresult exec_take_child(struct graph_exec *e, struct graph_node *n, const struct graph *child);

#endif
