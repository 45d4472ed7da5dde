/*
 * The arena: memory that guest process and worker share. The guest alone says
 * what lies where: pinned and managed memory of the program, and staging blocks
 * through which everything else travels.
 */
#ifndef PEGASUS_ARENA_H
#define PEGASUS_ARENA_H

#include "process.h"

/* A piece of the arena on its way to the host. */
struct staging {
	uint64_t offset, bytes;
	uint32_t release; /* index + 1 of its release word; 0 for a borrowed piece that needs none */
};

/* For a fresh segment: everything is free. */
CUresult arena_reset(void);

/* bytes of page-aligned arena memory; CUDA_ERROR_OUT_OF_MEMORY if there is none. */
CUresult arena_take(uint64_t bytes, uint64_t *offset);
void arena_give(uint64_t offset, uint64_t bytes);

/* A staging block of at most staging_limit bytes; waits while too many are under way. A thread must not hold another one. */
CUresult staging_take(uint64_t bytes, struct staging *s);
/* The same, without waiting. */
bool staging_try(uint64_t bytes, struct staging *s);
/* The host may still read the block: it is free once its release word is set. */
void staging_pass(const struct staging *s);
/* The block is free now. */
void staging_give(const struct staging *s);
/* The most that one block should have; beside: the worker runs on a processor of its own. */
uint64_t staging_limit(bool beside);

/*
 * A block for one exchange with the host, of any size: of arena memory, or, when the program has pinned
 * all of that, a staging block. CUDA_ERROR_OUT_OF_MEMORY if it is larger than either can be.
 */
CUresult arena_borrow(uint64_t bytes, struct staging *s);
void arena_return(const struct staging *s);

static inline void *arena_at(uint64_t offset) { return process.arena + offset; }

static inline bool arena_holds(uint64_t address, uint64_t bytes)
{
	uint64_t at = address - (uint64_t)(uintptr_t)process.arena;
	return at < process.arenaBytes && bytes <= process.arenaBytes - at;
}

static inline uint64_t arena_offset(uint64_t address) { return address - (uint64_t)(uintptr_t)process.arena; }

#endif
