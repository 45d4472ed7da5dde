/*
 * Memory pools: device memory that was taken from the host in chunks, and is handed out and let go of in the order of streams
 * without asking it. A chunk belongs to the context that it was taken in, and serves streams of that context.
 */
#ifndef PEGASUS_POOL_H
#define PEGASUS_POOL_H

#include "stream.h"

struct block;
struct chunk;
struct graph_piece;

enum { POOL_BINS = 48 };

/* Fields are guarded by momentLock. */
struct pool {
	struct object object;
	int device;
	bool imported;    /* another process's: allocates nothing */
	CUmemAllocationHandleType handleTypes;
	uint64_t name;    /* by which processes know it that share it, or 0 */
	bool ends;        /* was destroyed: goes when nothing of it is in use */
	uint32_t growing; /* threads that ask the host for memory, or wait for one that does */
	uint64_t coming;  /* what they ask for */
	bool followEvents, opportunistic, dependencies; /* how memory may be used again across streams */
	uint64_t threshold; /* so much stays when the program synchronises */
	uint64_t most;      /* that it may take, 0: whatever there is */
	uint64_t reserved, reservedHigh, used, usedHigh;
	struct chunk *chunks;
	struct block *bins[POOL_BINS]; /* free blocks by size */
	struct pool *next;
};

extern struct table pools;

/* A new pool of a device, or NULL. */
struct pool *pool_new(int device, uint64_t most);
/* The pool goes, at once or when nothing of it is in use any more. Called with the lock held. */
void pool_end(struct pool *p);
/* Memory of a pool for work that is queued to a place from now on. Called with the lock held, which is let go of while the host is asked. */
CUresult pool_take(struct pool *p, const struct place *place, uint64_t bytes, uint64_t *address);
/*
 * The reverse, of work so far: CUDA_ERROR_INVALID_VALUE if no pool's memory begins there, CUDA_ERROR_NOT_PERMITTED for memory of
 * graphs. place NULL: all work that used it has ended.
 */
CUresult pool_give(uint64_t address, const struct place *place);
/* Gives unused memory back to the host, as long as the pool keeps so much. Called with the lock held; true if it gave any. */
bool pool_trim(struct pool *p, uint64_t keep);
/*
 * Memory of a pool that no queued work uses, for work of any stream of a context. Called with the lock held, as what follows;
 * it is let go of while the host is asked.
 */
CUresult pool_take_for_graph(struct pool *p, uint64_t context, uint64_t bytes, struct graph_piece *piece, uint64_t *address);
/* The piece that memory was taken for that begins at an address, or NULL. */
struct graph_piece *pool_graph_piece(uint64_t address);
/* Returns memory of a piece to its pool, free since that moment. Does nothing if it went with its context. */
void pool_give_of_graph(uint64_t address, const struct graph_piece *piece, const struct moment *since);
/* Where memory of a pool lies that other processes may have a part in. Takes the lock itself. */
struct pool_place {
	uint64_t name;          /* the pool's */
	uint64_t context;       /* handle */
	uint64_t chunk;         /* address of what the host knows as an allocation */
	uint64_t offset, bytes; /* within that */
};
CUresult pool_locate(uint64_t address, struct pool_place *place);
/* The handle of the pool that memory in use is of; 0 for memory of graphs, and for memory that is no pool's. */
uint64_t pool_of(uint64_t address);
/* All pools give back what is unused: somebody else needs memory. True if there was any. */
bool pools_trim(void);
/* The program has synchronised: pools give back what is beyond their thresholds. */
void pools_synchronised(void);
/* Whether a program may have a pool, or a graph's memory, of these properties, and give devices such access to it. */
CUresult pool_check_props(const CUmemPoolProps *props);
CUresult pool_check_access(int device, const CUmemAccessDesc *access, size_t count);
/* A context ends, and with it the chunks that were taken in it. */
void pool_context_ends(uint64_t context);

#endif
