/* Lookup of contexts. api/context.c creates and destroys them. */
#ifndef PEGASUS_OBJECT_CONTEXT_H
#define PEGASUS_OBJECT_CONTEXT_H

#include "core/device_printf.h"
#include "object/object.h"

/* Returns the handle on top of the calling thread's context stack, 0 if the stack is empty. */
static inline uint64_t context_top(void) { return thread.depth ? thread.stack[thread.depth - 1] : 0; }

/* The version of the API that all contexts have. */
#define CONTEXT_API_VERSION 3020

/* Initialiser of a packet with an operation on a context. */
#define CONTEXT_PACKET(context_, op_) {.op = (op_), .context = (context_)->wire}

/*
 * Returns the calling thread's current context: CUDA_ERROR_INVALID_CONTEXT without one, CUDA_ERROR_CONTEXT_IS_DESTROYED
 * if it was destroyed, or its sticky error.
 */
CUresult context_current(struct context **context);
/* Returns CUDA_SUCCESS if the calling thread has a current context, failed or not. */
CUresult context_any(void);
/* As context_current for a handle; NULL means the current context. */
CUresult context_of(CUcontext handle, struct context **context);
/* Blocks until all queued work of all contexts has completed; returns the result of the current context. */
CUresult contexts_drain(void);
/* Reports whether threads that wait for a context sleep instead of spinning, by its flags. */
static inline bool context_sleeps(const struct context *c)
{
	return c && (c->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
}

/*
 * Returns a context's sticky error; on an error it first prints the output of the context's kernels, which may explain
 * the error.
 */
static inline CUresult context_error(uint32_t wire)
{
	uint32_t poison = atomic_load_explicit(&process.header->contextPoison[wire], memory_order_relaxed);
	if (LIKELY(poison == 0))
		return CUDA_SUCCESS;
	text_show(wire);
	return process_result(poison);
}

#endif
