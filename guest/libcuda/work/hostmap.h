/*
 * Registered host memory that devices access: pages of the arena replace the program's own pages, with their contents,
 * until the memory is unregistered. The program's addresses stay; kernels use other addresses, at which the worker maps
 * the arena.
 *
 * Memory that cannot be moved keeps its pages and has no device address: memory shared with other processes, pages of
 * the calling thread's stack, and, on a kernel without userfaultfd, memory that another thread could change during the
 * move.
 */
#ifndef PEGASUS_WORK_HOSTMAP_H
#define PEGASUS_WORK_HOSTMAP_H

#include "core/range.h"

#include "cuda.h"

/*
 * Sets *address to the device address of registered memory and moves the memory on first use: CUDA_ERROR_NOT_SUPPORTED
 * for memory that cannot be moved, CUDA_ERROR_OUT_OF_MEMORY when the arena is full.
 */
CUresult hostmap_device(const struct range *registered, uint64_t *address);
/* Gives unregistered memory, which no work uses any more, pages of the program's own again. */
void hostmap_drop(uint64_t device);
/* Sets *offset to the arena offset of bytes at a program's address; returns false if they do not lie in the arena. */
bool hostmap_find(uint64_t address, uint64_t bytes, uint64_t *offset);

/* Called around fork: the child gets copies of the pages, and the parent keeps the originals. */
void hostmap_before_fork(void);
void hostmap_after_fork(bool child);

#endif
