/*
 * Executable graphs: a graph of their own, and what the host has of it.
 */
#ifndef PEGASUS_GRAPHEXEC_H
#define PEGASUS_GRAPHEXEC_H

#include "graph.h"

/* What the host takes as one graph. */
enum { GRAPH_NODES_MOST = 1 << 16, GRAPH_RECORDS_MOST = 256 };

struct stock;

struct graph_exec {
	struct object object; /* its id is the host's, too */
	uint64_t context;     /* handle; 0 when it has ended */
	uint32_t wireContext, id;
	uint64_t flags;
	struct graph *graph;
	bool stale;           /* the host has another version of it */
	struct stock *stock;  /* of the host's version; NULL for none */
	uint64_t *records;    /* handles of the events that the host's version records, in order */
	uint32_t recordCount;
};

extern struct table graph_execs;

/* A context has ended on the host, with all launches. */
void stocks_context_ended(uint64_t context);
/* Work was waited for, or has ended with its context: what only it used may go, and programs wait for their user objects to. */
void stocks_synchronised(void);

/* What is called with the graphs' lock held. */

/* Ends what ended executable graphs left behind, once their launches have ended. */
void stocks_sweep(void);

#endif
