/*
 * Virtual memory management: reserved addresses, memory that has none, and which is mapped where. The host checks all of it
 * again; what is kept here answers the program's questions, and says at once what is wrong.
 */
#ifndef PEGASUS_VMM_H
#define PEGASUS_VMM_H

#include <stddef.h>

#include "cuda.h"
#include "range.h"

/* Whether a program may use bytes at an address of a reserved range: they may lie in several mappings beside each other. */
bool vmm_usable(uint64_t address, uint64_t bytes);
/*
 * The mapping that an address of a reserved range lies in, as a range of its own; flags are its memory's handle types. access,
 * unless it is NULL, is what may be done with it (CUmemAccess_flags).
 */
bool vmm_mapping(uint64_t address, struct range *range, uint32_t *access);

/* A descriptor of some bytes that other processes can read, and no process can change. */
CUresult sealed_file(const void *bytes, size_t count, int *fd);

#endif
