/*
 * User objects: memory of the program that graphs use, with its destructor. The library calls the destructor when the
 * last reference is released: by the program, a graph, or an executable graph that runs. The functions require the
 * graphs' lock, except destructors_run.
 */
#ifndef PEGASUS_GRAPH_USER_OBJECT_H
#define PEGASUS_GRAPH_USER_OBJECT_H

#include "graph/graph.h"

/* References to user objects that belong to a graph; object_refs_drop releases a list of them. */
CUresult object_refs_copy(struct graph *to, const struct graph *from);
void object_refs_drop(struct object_ref **list);
/* Appends the list from to *to and empties it. */
void object_refs_move(struct object_ref **to, struct object_ref **from);
/* As object_refs_move for a graph and all graphs nested in it. */
void object_refs_move_all(struct object_ref **to, struct graph *from);
/* Reports whether a graph, or one nested in it, references user objects. */
bool object_refs_any(const struct graph *g);
/* Runs the destructors that became due while the lock was held; call it without the lock. */
void destructors_run(void);

#endif
