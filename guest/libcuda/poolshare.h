/*
 * Memory pools that processes of a domain share. A pool is exported as a descriptor that names it; each allocation of it is passed
 * on by bytes, which name the chunk that it lies in as a loan to other processes (see ipc.c), and its place there. A process that
 * imports allocations maps each chunk once, for as long as any of them is in use.
 */
#ifndef PEGASUS_POOLSHARE_H
#define PEGASUS_POOLSHARE_H

#include "pool.h"

struct mem_lend_result;

/* Lends the allocation that begins at an address, as often as asked: other processes may map it by the returned ticket. */
CUresult ipc_lend(uint64_t address, struct mem_lend_result *loan);
/* Maps such memory, and ends that. The table of ranges does not get to know of it. */
CUresult ipc_borrow(const struct context *c, const struct mem_lend_result *loan, uint64_t *address);
CUresult ipc_give_back(const struct context *c, uint64_t address);

/* Frees an imported allocation after the work of a place, or, with NULL, after all work: CUDA_ERROR_INVALID_VALUE for other memory. */
CUresult import_free(uint64_t address, const struct place *place);
/* A pool ends: unmaps chunks of it that no allocation needs. */
void imports_end(uint64_t pool);
/* Unmaps chunks that no allocation needs any more, once their work has ended. */
void imports_settle(void);
/* A context ends, and with it what it has mapped. */
void imports_context_ends(uint64_t context);

#endif
