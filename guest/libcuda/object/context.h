#ifndef PEGASUS_CONTEXT_H
#define PEGASUS_CONTEXT_H

#include "object/object.h"

/* Returns the handle on top of the calling thread's context stack, 0 if the stack is empty. */
static inline uint64_t context_top(void) { return thread.depth ? thread.stack[thread.depth - 1] : 0; }

/* Initialiser of a packet with an operation on a context. */
#define CONTEXT_PACKET(context_, op_) {.op = (op_), .context = (context_)->wire}

#endif
