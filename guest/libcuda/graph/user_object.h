/*
 * User objects: memory of the program that graphs use, with its destructor. The library calls the destructor when the
 * last reference is released: by the program, a graph, or an executable graph that runs. The functions require the
 * graphs' lock, except keeps_run.
 */
#ifndef PEGASUS_USER_OBJECT_H
#define PEGASUS_USER_OBJECT_H

#include "graph/graph.h"

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
