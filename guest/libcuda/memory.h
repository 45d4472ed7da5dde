#ifndef PEGASUS_MEMORY_H
#define PEGASUS_MEMORY_H

#include "object.h"
#include "range.h"

/* Device memory of a context; the table knows it afterwards. */
CUresult memory_alloc(struct context *c, uint64_t bytes, uint64_t *address);
/* The reverse: the host has it back when the work before has ended. */
CUresult memory_free(uint64_t address);
/* As memory_alloc, but the table does not get to know of it. If there is none, pools give back what they don't use. */
CUresult memory_take(struct context *c, uint64_t bytes, uint64_t *address);
/* The host has it back when the work before has ended. */
CUresult memory_give(uint32_t wire, uint64_t address);
/* Waits for all queued work, of all contexts; the result is that of the current one. */
CUresult memory_drain(void);
/* Arena memory of a context: pinned or managed. */
CUresult memory_pin(struct context *c, uint64_t bytes, enum range_kind kind, uint32_t flags, uint64_t *address);
/*
 * A context is about to end: its device memory is forgotten, before the host can
 * give the same addresses to another one.
 */
void memory_context_ends(uint64_t context);
/* A context has ended, and so has its work: its arena memory can be used again. */
void memory_context_ended(uint64_t context);

#endif
