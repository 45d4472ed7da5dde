/*
 * The encoding of a graph for the host, which receives it as one message.
 *
 * A copy from or to memory that the host cannot access is sent as two nodes, one of which is an internal host callback:
 * so the program's memory is read and written in order, at each launch.
 */
#ifndef PEGASUS_GRAPH_ENCODE_H
#define PEGASUS_GRAPH_ENCODE_H

#include "graph/version.h"

enum { GRAPH_RECORDS_MOST = 256 }; /* of one graph on the host */

struct graph;
struct graph_node;

struct graph_encoding {
	uint8_t *bytes; /* the caller frees them */
	size_t used;
	uint64_t records[GRAPH_RECORDS_MOST]; /* handles of the events that the graph records, in order */
	uint32_t recordCount;
	struct graph_node *bad; /* the node that caused the error, if one did */
};

/*
 * Encodes a graph for a context, and adds the resources that its launches need to a version. Sets *out also on failure.
 * Requires the graphs' lock.
 */
CUresult graph_encode(struct graph *g, uint64_t context, struct exec_version *version, struct graph_encoding *out);

#endif
