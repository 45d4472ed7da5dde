/*
 * Registered memory that devices reach: pages of the arena take the place of the program's own, with what is in them, until it is
 * unregistered. The program keeps its addresses; kernels have others, where the worker sees the arena.
 *
 * What cannot be moved keeps its pages, and has no address for kernels: memory that other processes share, pages with the calling
 * thread's stack, and what a kernel without userfaultfd could change in another thread meanwhile.
 */
#ifndef PEGASUS_HOSTMAP_H
#define PEGASUS_HOSTMAP_H

#include "range.h"

#include "cuda.h"

/*
 * The device address of registered memory, which is moved if it hasn't been yet: CUDA_ERROR_NOT_SUPPORTED for what can't be,
 * CUDA_ERROR_OUT_OF_MEMORY when the arena is full.
 */
CUresult hostmap_device(const struct range *registered, uint64_t *address);
/* Registered memory was forgotten, and no work uses it: the program has pages of its own again. */
void hostmap_drop(uint64_t device);
/* Where in the arena bytes of the program's lie; false: not there. */
bool hostmap_find(uint64_t address, uint64_t bytes, uint64_t *offset);

/* Round a fork: the child gets copies of the pages, which its parent goes on using. */
void hostmap_before_fork(void);
void hostmap_after_fork(bool child);

#endif
