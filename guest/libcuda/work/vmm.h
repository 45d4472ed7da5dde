/*
 * Virtual memory management: reserved address ranges, physical memory without addresses, and mappings between them. The
 * host validates all requests again; the guest's records serve queries and report errors at once.
 */
#ifndef PEGASUS_WORK_VMM_H
#define PEGASUS_WORK_VMM_H

#include <stddef.h>

#include "cuda.h"
#include "core/range.h"

/* Reports whether a program may use bytes at an address of a reserved range; they may span adjacent mappings. */
bool vmm_usable(uint64_t address, uint64_t bytes);
/*
 * Sets *range to the mapping that contains an address of a reserved range; flags are the handle types of its memory.
 * *access, unless access is NULL, is the permitted access (CUmemAccess_flags).
 */
bool vmm_mapping(uint64_t address, struct range *range, uint32_t *access);

#endif
