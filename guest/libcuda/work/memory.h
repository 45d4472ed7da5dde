/*
 * Device, pinned and managed memory. The guest maintains the table of address ranges; only device memory needs requests
 * to the host.
 */
#ifndef PEGASUS_WORK_MEMORY_H
#define PEGASUS_WORK_MEMORY_H

#include "core/range.h"
#include "object/context.h"

/* Allocates device memory of a context and adds it to the table of ranges. */
CUresult memory_alloc(struct context *c, uint64_t bytes, uint64_t *address);
/* Frees memory of memory_alloc; the host reuses it after earlier work has completed. */
CUresult memory_free(uint64_t address);
/*
 * As memory_alloc, but does not add the memory to the table of ranges. If the device has too little memory, pools
 * release their unused memory first.
 */
CUresult memory_take(struct context *c, uint64_t bytes, uint64_t *address);
/* Frees memory of memory_take; the host reuses it after earlier work has completed. */
CUresult memory_give(uint32_t wire, uint64_t address);
/* Frees arena memory that was removed from the table of ranges, after all queued work; returns as contexts_drain. */
CUresult memory_unpin(const struct range *range);
/* Allocates arena memory of a context: pinned or managed. */
CUresult memory_pin(struct context *c, uint64_t bytes, enum range_kind kind, uint32_t flags, uint64_t *address);
/*
 * Called before a context is destroyed: removes its device memory from the table before the host can allocate the same
 * addresses again.
 */
void memory_context_ends(uint64_t context);
/* Called after a context and its work have ended: frees its arena memory. */
void memory_context_ended(uint64_t context);

#endif
