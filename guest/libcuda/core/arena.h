/*
 * The arena: memory that the guest process shares with its worker. Only the guest allocates in it: the program's pinned
 * and managed memory, and the staging blocks that carry all other data.
 */
#ifndef PEGASUS_CORE_ARENA_H
#define PEGASUS_CORE_ARENA_H

#include "core/process.h"

/* A staging block that carries data to the host. */
struct staging {
	uint64_t offset, bytes;
	uint32_t release; /* index + 1 of its release word; 0 for a borrowed block, which has none */
};

/* Marks all of the arena as free, for a new segment. */
CUresult arena_reset(void);

/* Allocates bytes of page-aligned arena memory; CUDA_ERROR_OUT_OF_MEMORY if the arena has no room. */
CUresult arena_take(uint64_t bytes, uint64_t *offset);
void arena_give(uint64_t offset, uint64_t bytes);

/*
 * Allocates a staging block of at most staging_limit bytes; blocks while too many are in flight. The calling thread
 * must not hold another block.
 */
CUresult staging_take(uint64_t bytes, struct staging *s);
/* As staging_take, but fails instead of blocking. */
bool staging_try(uint64_t bytes, struct staging *s);
/* Passes the block to the host, which may still read it: the block becomes free when the host sets its release word. */
void staging_pass(const struct staging *s);
/* Frees the block at once. */
void staging_give(const struct staging *s);
/*
 * Returns the largest useful size of one staging block, in bytes; beside: the worker runs on another processor than
 * this thread.
 */
uint64_t staging_limit(bool beside);

/*
 * Allocates a buffer of any size for one exchange with the host: arena memory or, when the program's pinned memory
 * fills the arena, a staging block. CUDA_ERROR_OUT_OF_MEMORY if the size exceeds both.
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
