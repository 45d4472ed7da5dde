/*
 * Memory pools: device memory that is allocated from the host in chunks and then allocated and freed in stream order
 * without the host. A chunk belongs to the context in which it was allocated, and serves streams of that context.
 */
#ifndef PEGASUS_WORK_POOL_H
#define PEGASUS_WORK_POOL_H

#include "core/zz_wire.h"
#include "object/stream.h"

struct block;
struct chunk;
struct graph_piece;
struct pool_export;
struct pool_exports;

enum { POOL_BINS = 48 };

/* Fields are guarded by timelineLock. */
struct pool {
	struct object object;
	int device;
	bool imported;    /* belongs to another process: allocates nothing */
	CUmemAllocationHandleType handleTypes;
	uint64_t name;    /* its name among processes that share it, or 0 */
	struct pool_exports *exports; /* allocations that processes share; NULL if name is 0 */
	bool ends;        /* was destroyed: freed when none of its memory is in use */
	uint32_t growing; /* threads that allocate memory from the host, or wait for one that does */
	uint64_t coming;  /* bytes that they allocate */
	bool followEvents, opportunistic, dependencies; /* policies for the reuse of memory across streams (CU_MEMPOOL_ATTR_REUSE_*) */
	uint64_t threshold; /* unused bytes kept when the program synchronises */
	uint64_t most;      /* largest size in bytes, 0: no limit */
	uint64_t reserved, reservedHigh, used, usedHigh;
	struct chunk *chunks;
	struct block *bins[POOL_BINS]; /* free blocks by size */
	struct pool *next;
};

extern struct table pools;

/* Returns a new pool of a device, or NULL. */
struct pool *pool_new(int device, uint64_t most);
/* Destroys the pool, at once or when none of its memory is in use any more. Requires the lock. */
void pool_end(struct pool *p);
/*
 * Allocates memory of a pool for work queued to a stream from now on. Requires the lock, and releases it during
 * requests to the host.
 */
CUresult pool_take(struct pool *p, const struct stream_ref *ref, uint64_t bytes, uint64_t *address);
/*
 * Frees memory after the work queued so far: CUDA_ERROR_INVALID_VALUE if no allocation of a pool begins at the address,
 * CUDA_ERROR_NOT_PERMITTED for memory of graphs. ref NULL: all work that used it has completed.
 */
CUresult pool_give(uint64_t address, const struct stream_ref *ref);
/* Releases unused memory to the host down to keep bytes. Requires the lock; returns true if it released any. */
bool pool_trim(struct pool *p, uint64_t keep);
/*
 * Allocates memory of a pool that no queued work uses, for work of any stream of a context. Requires the lock, as the
 * functions below, and releases it during requests to the host.
 */
CUresult pool_take_for_graph(struct pool *p, uint64_t context, uint64_t bytes, struct graph_piece *piece, uint64_t *address);
/* Returns the piece with memory that begins at an address, or NULL. */
struct graph_piece *pool_graph_piece(uint64_t address);
/*
 * Returns memory of a piece to its pool, free since that position. Does nothing if the memory was freed with its
 * context.
 */
void pool_give_of_graph(uint64_t address, const struct graph_piece *piece, const struct stream_position *since);
/* Location of an allocation of an exported pool. pool_locate and pool_share take the lock themselves. */
struct pool_location {
	uint64_t context; /* handle */
	uint64_t chunk;   /* address of the chunk, which is one allocation of the host */
	bool shared;      /* pool_share has entered the allocation into the pool's table */
};
/* Finds the allocation that contains an address: CUDA_ERROR_INVALID_VALUE if there is none of an exported pool. */
CUresult pool_locate(uint64_t address, struct pool_location *ref);
/*
 * Returns the entry of a located allocation in its pool's table; the entry lasts until the allocation is freed. chunk is
 * the loan of its chunk by the host, NULL if the allocation was shared already. CUDA_ERROR_INVALID_VALUE if it was freed
 * meanwhile.
 */
CUresult pool_share(uint64_t address, const struct pool_location *ref, const struct mem_lend_result *chunk, struct pool_export *e);
/* Returns the handle of the pool of an allocation; 0 for memory of graphs and for other memory. */
uint64_t pool_of(uint64_t address);
/* Makes all pools release unused memory, because an allocation failed. Returns true if any was released. */
bool pools_trim(void);
/* Called after the program has synchronised: pools release unused memory beyond their thresholds. */
void pools_synchronised(void);
/* Checks that pools exist at a location, and with that type of allocation. */
CUresult pool_check_kind(const CUmemLocation *where, CUmemAllocationType type);
/* Check the properties of a pool or of a graph's memory, and requests for access by devices. */
CUresult pool_check_props(const CUmemPoolProps *props);
CUresult pool_check_access(int device, const CUmemAccessDesc *access, size_t count);
/* Drops the chunks of a context that is destroyed. */
void pool_context_ends(uint64_t context);

#endif
