/*
 * Memory pools shared between processes of a domain. A pool is exported as a file descriptor with the table of its
 * exported allocations (see pool_exports.h). An allocation is exported as its entry in the table: bytes that name its
 * chunk, as a loan to other processes (see ipc.h), and its location in the chunk. A process that imports allocations maps
 * each chunk once, while any of its imported allocations is in use.
 */
#ifndef PEGASUS_WORK_POOL_SHARE_H
#define PEGASUS_WORK_POOL_SHARE_H

#include "work/pool.h"

/*
 * Frees an imported allocation after the work of a stream or, with NULL, after all work: CUDA_ERROR_INVALID_VALUE for
 * other memory.
 */
CUresult import_free(uint64_t address, const struct stream_ref *ref);
/* Called when a pool is destroyed: unmaps its chunks without allocations in use. */
void imports_end(uint64_t pool);
/* Unmaps chunks with completed work and without allocations in use. */
void imports_settle(void);
/* Drops the mappings of a context that is destroyed. */
void imports_context_ends(uint64_t context);

#endif
