#ifndef PEGASUS_CONTEXT_H
#define PEGASUS_CONTEXT_H

#include "object.h"

/* The current context's handle on top of the calling thread's stack, or 0. */
static inline uint64_t context_top(void) { return thread.depth ? thread.stack[thread.depth - 1] : 0; }

/* The wire's packet for an operation on a context. */
#define CONTEXT_PACKET(context_, op_) {.op = (op_), .context = (context_)->wire}

#endif
