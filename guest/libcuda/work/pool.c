#include "work/pool.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/futex.h"
#include "core/kernel_check.h"
#include "core/range.h"
#include "object/context.h"
#include "object/stream_timeline.h"
#include "work/memory.h"
#include "work/pool_exports.h"
#include "work/pool_share.h"

/* A piece of a chunk. Neighbours in a chunk are linked by address, and free blocks of similar size in a bin. */
struct block {
	uint64_t at, bytes;
	struct chunk *chunk;
	struct block *below, *above;
	struct block *previous, *next; /* in a bin, or in the list of spare blocks */
	bool free;
	struct stream_position since; /* free blocks: the position after which the memory is free */
	struct graph_piece *graph; /* of graph memory: its owner, or NULL */
	uint32_t exported; /* number of its entry in the pool's exports, or 0 */
};

struct chunk {
	struct pool *pool;
	uint64_t context; /* handle */
	uint64_t at, bytes, used;
	struct block *first;
	struct chunk *next;
};

#define GRANULE UINT64_C(512)
#define CHUNK_LEAST (UINT64_C(2) << 20)  /* smallest request to the host */
#define CHUNK_USUAL (UINT64_C(32) << 20) /* largest excess over the needed size */
enum { LOOK_MOST = 64 };                 /* number of blocks of a bin that are checked for a fit */

struct table pools = HANDLE_TABLE(HANDLE_POOL, struct pool, 4096);
static struct pool *all; /* includes destroyed pools with memory in use */
static struct block *spare;
static _Atomic bool used; /* a chunk was allocated */
static _Atomic uint32_t answers; /* number of replies to chunk requests */

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/*
 * Where the accelerator checks bounds, each allocation is a chunk of its own, of exactly its size, so that the check
 * covers pools. A freed one serves another allocation of the same size.
 */
static bool apart(void) { return check_bounds(); }

/* --- blocks --- */

static int bin_of(uint64_t bytes)
{
	int bin = 63 - __builtin_clzll(bytes / GRANULE | 1);
	return bin < POOL_BINS ? bin : POOL_BINS - 1;
}

static void enter(struct block *b)
{
	struct block **bin = &b->chunk->pool->bins[bin_of(b->bytes)];
	b->free = true;
	b->previous = NULL;
	b->next = *bin;
	if (b->next)
		b->next->previous = b;
	*bin = b;
}

static void leave(struct block *b)
{
	if (b->previous)
		b->previous->next = b->next;
	else
		b->chunk->pool->bins[bin_of(b->bytes)] = b->next;
	if (b->next)
		b->next->previous = b->previous;
	b->free = false;
}

static struct block *new_block(void)
{
	struct block *b = spare;
	if (!b)
		return calloc(1, sizeof *b);
	spare = b->next;
	return b;
}

static void drop_block(struct block *b)
{
	b->next = spare;
	spare = b;
}

/* Merges two neighbours, of which above is in no bin. */
static void join(struct block *below, struct block *above)
{
	below->bytes += above->bytes;
	below->above = above->above;
	if (above->above)
		above->above->below = below;
	drop_block(above);
}

/* Merges a free block, which is in no bin, with neighbours of the same position, and inserts it into its bin. */
static void settle(struct block *b)
{
	struct block *above = b->above, *below = b->below;
	if (above && above->free && position_merge(&b->since, &above->since, &b->since)) {
		leave(above);
		join(b, above);
	}
	if (below && below->free && position_merge(&b->since, &below->since, &below->since)) {
		leave(below);
		join(below, b);
		b = below;
	}
	enter(b);
}

/*
 * Allocates the first bytes of a free block. If memory for splitting the block is exhausted, the allocation takes the
 * whole block.
 */
static void take(struct block *b, uint64_t bytes)
{
	leave(b);
	struct block *rest = b->bytes > bytes ? new_block() : NULL;
	if (rest) {
		*rest = (struct block){
			.at = b->at + bytes, .bytes = b->bytes - bytes, .chunk = b->chunk, .below = b, .above = b->above, .since = b->since,
		};
		if (rest->above)
			rest->above->below = rest;
		b->above = rest;
		b->bytes = bytes;
		enter(rest);
	}
	struct pool *p = b->chunk->pool;
	b->chunk->used += b->bytes;
	p->used += b->bytes;
	if (p->used > p->usedHigh)
		p->usedHigh = p->used;
}

/* Other processes can import the allocation no more. */
static void unshare(struct block *b)
{
	if (LIKELY(!b->exported))
		return;
	exports_remove(b->chunk->pool->exports, b->exported);
	b->exported = 0;
}

static void let_go(struct block *b)
{
	unshare(b);
	b->chunk->used -= b->bytes;
	b->chunk->pool->used -= b->bytes;
	settle(b);
}

/* --- search --- */

static bool fits(const struct block *b, uint64_t bytes, const struct stream_ref *ref)
{
	return (apart() ? b->bytes == bytes : b->bytes >= bytes) && b->chunk->context == ref->contextHandle;
}

/*
 * Reports whether work of a stream, or of any stream if there is no marker, is ordered after the work that used a free
 * block.
 */
static bool ready(const struct block *b, const struct pool *p, const struct stream_ref *ref)
{
	return ref->marker ? position_before(&b->since, ref, p->followEvents) : !b->since.timeline;
}

/* Returns the smallest usable block, without waiting, of the first bin that has one. */
static struct block *find(struct pool *p, const struct stream_ref *ref, uint64_t bytes)
{
	struct block *best = NULL;
	for (int bin = bin_of(bytes); bin < POOL_BINS && !best; bin++) {
		int looked = 0;
		for (struct block *b = p->bins[bin]; b && looked < LOOK_MOST; b = b->next, looked++)
			if (fits(b, bytes, ref) && (!best || b->bytes < best->bytes) && ready(b, p, ref))
				best = b;
	}
	return best;
}

/* Marks free blocks as unused after their last work has completed, and merges neighbours with a common position. */
static void look(struct pool *p)
{
	for (struct chunk *c = p->chunks; c; c = c->next) {
		for (struct block *b = c->first; b; b = b->above)
			if (b->free && b->since.timeline && position_passed(&b->since))
				b->since = (struct stream_position){0};
		for (struct block *b = c->first; b; b = b->above)
			while (b->free && b->above && b->above->free && position_merge(&b->since, &b->above->since, &b->since)) {
				leave(b->above);
				leave(b);
				join(b, b->above);
				enter(b);
			}
	}
}

/*
 * Merges free neighbours of sufficient total size, whatever still uses them: the stream's work is ordered after that.
 */
static struct block *force(struct pool *p, const struct stream_ref *ref, uint64_t bytes)
{
	for (struct chunk *c = p->chunks; c; c = c->next) {
		if (c->context != ref->contextHandle || (apart() && c->bytes != bytes))
			continue;
		for (struct block *first = c->first, *b; first; first = first->above) {
			uint64_t sum = 0;
			for (b = first; b && b->free && sum < bytes; b = b->above)
				sum += b->bytes;
			if (sum < bytes)
				continue;
			struct stream_position after;
			for (struct block *x = first; x != b; x = x->above)
				if (position_await(&x->since, ref) != CUDA_SUCCESS)
					return NULL;
			if (!position_now(ref, &after))
				return NULL;
			leave(first);
			while (first->above != b) {
				leave(first->above);
				join(first, first->above);
			}
			first->since = after;
			enter(first);
			return first;
		}
	}
	return NULL;
}

/* --- chunks --- */

static bool add_chunk(struct pool *p, struct context *c, uint64_t at, uint64_t bytes)
{
	struct chunk *k = calloc(1, sizeof *k);
	struct block *b = k ? new_block() : NULL;
	if (!b) {
		free(k);
		return false;
	}
	*k = (struct chunk){.pool = p, .context = c->object.id, .at = at, .bytes = bytes, .first = b, .next = p->chunks};
	*b = (struct block){.at = at, .bytes = bytes, .chunk = k};
	p->chunks = k;
	enter(b);
	p->reserved += bytes;
	if (p->reserved > p->reservedHigh)
		p->reservedHigh = p->reserved;
	atomic_store_explicit(&used, true, memory_order_release);
	return true;
}

/* Drops a chunk, including blocks in use. */
static void drop_chunk(struct chunk **at)
{
	struct chunk *c = *at;
	struct pool *p = c->pool;
	for (struct block *b = c->first, *above; b; b = above) {
		struct range gone;
		above = b->above;
		if (b->free)
			leave(b);
		else
			range_remove(b->at, RANGE_POOL, &gone);
		unshare(b);
		drop_block(b);
	}
	p->reserved -= c->bytes;
	p->used -= c->used;
	*at = c->next;
	free(c);
}

/* Reports whether a chunk may be released: the host waits for the work of the chunk's context, and of no other. */
static bool releasable(const struct chunk *c)
{
	if (c->used)
		return false;
	for (const struct block *b = c->first; b; b = b->above)
		if (!position_within(&b->since, c->context))
			return false;
	return true;
}

/* Reports whether no work uses a chunk any more. */
static bool idle(const struct chunk *c)
{
	if (c->used)
		return false;
	for (const struct block *b = c->first; b; b = b->above)
		if (!position_passed(&b->since))
			return false;
	return true;
}

/* Releases eligible chunks while the pool has more than keep bytes, and as long as least bytes stay. */
static bool trim(struct pool *p, uint64_t keep, uint64_t least, bool (*may)(const struct chunk *))
{
	bool any = false;
	for (struct chunk **at = &p->chunks; *at && p->reserved > keep;) {
		struct chunk *c = *at;
		struct context *owner = handle_find(&contexts, c->context);
		if (!owner || p->reserved - c->bytes < least || !may(c)) {
			at = &c->next;
			continue;
		}
		memory_give(owner->wire, c->at);
		drop_chunk(at);
		any = true;
	}
	return any;
}

bool pool_trim(struct pool *p, uint64_t keep) { return trim(p, keep, keep, releasable); }

/* Returns how many bytes the pool may still allocate, beside those that its threads are allocating from the host. */
static uint64_t room(const struct pool *p)
{
	uint64_t taken = p->reserved + p->coming;
	uint64_t left = p->most < taken ? 0 : p->most - taken;
	return !p->most ? UINT64_MAX : apart() ? left : left / GRANULE * GRANULE;
}

/* Releases unused chunks if the pool's limit leaves too little room for bytes. */
static bool make_room(struct pool *p, uint64_t bytes, bool (*may)(const struct chunk *))
{
	return p->most >= bytes && room(p) < bytes && trim(p, p->most - bytes, 0, may);
}

/* Returns the size of the first request to the host: more than needed, growing with the pool, within its limit. */
static uint64_t usual_chunk(const struct pool *p, uint64_t bytes)
{
	if (apart())
		return bytes < room(p) ? bytes : room(p);
	uint64_t most = p->reserved < CHUNK_LEAST ? CHUNK_LEAST : p->reserved < CHUNK_USUAL ? p->reserved : CHUNK_USUAL;
	uint64_t chunk = round_up(bytes > most ? bytes : most, CHUNK_LEAST);
	return chunk < room(p) ? chunk : room(p);
}

/* Allocates a chunk from the host, or waits until another thread's request is answered. Releases the lock meanwhile. */
static CUresult grow(struct pool *p, struct context *c, uint64_t bytes)
{
	make_room(p, bytes, idle);
	uint64_t chunk = usual_chunk(p, bytes), coming = chunk, at;
	uint32_t seen = atomic_load_explicit(&answers, memory_order_relaxed);
	CUresult r = CUDA_SUCCESS;
	if (chunk < bytes && !p->coming)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->growing++;
	if (chunk < bytes) {
		pthread_mutex_unlock(&timelineLock);
		futex_wait(&answers, seen);
		pthread_mutex_lock(&timelineLock);
		p->growing--;
		return r;
	}
	p->coming += coming;
	pthread_mutex_unlock(&timelineLock);
	r = memory_take(c, chunk, &at);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && chunk > bytes)
		r = memory_take(c, chunk = bytes, &at);
	pthread_mutex_lock(&timelineLock);
	p->growing--;
	p->coming -= coming;
	atomic_fetch_add_explicit(&answers, 1, memory_order_relaxed);
	futex_wake(&answers, INT_MAX);
	if (r == CUDA_SUCCESS && !add_chunk(p, c, at, chunk)) {
		memory_give(c->wire, at);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return r;
}

/* --- interface --- */

struct pool *pool_new(int device, uint64_t most)
{
	struct pool *p = handle_new(&pools);
	if (!p)
		return NULL;
	memset((uint8_t *)p + sizeof p->object, 0, sizeof *p - sizeof p->object);
	p->device = device;
	p->most = most;
	p->followEvents = p->opportunistic = p->dependencies = true;
	p->next = all;
	all = p;
	handle_publish(p);
	return p;
}

/* Frees a destroyed pool when none of its memory is in use. */
static void finish(struct pool *p)
{
	if (!p->ends || p->used || p->growing)
		return;
	pool_trim(p, 0);
	if (p->chunks)
		return;
	struct pool **at = &all;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	exports_free(p->exports);
	handle_free(&pools, p);
}

void pool_end(struct pool *p)
{
	if (!handle_retire(p))
		return;
	p->ends = true;
	finish(p);
}

static struct block *obtain(struct pool *p, const struct stream_ref *ref, uint64_t bytes, CUresult *why)
{
	struct block *b = find(p, ref, bytes);
	if (!b && p->opportunistic) {
		look(p);
		b = find(p, ref, bytes);
	}
	while (!b) {
		struct context *c = handle_find(&contexts, ref->contextHandle);
		*why = c ? grow(p, c, bytes) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
		if (*why == CUDA_SUCCESS)
			b = find(p, ref, bytes);
		else if (*why != CUDA_ERROR_OUT_OF_MEMORY || !p->dependencies || (b = force(p, ref, bytes)) || !make_room(p, bytes, releasable))
			break;
	}
	return b;
}

static CUresult take_for(struct pool *p, const struct stream_ref *ref, uint64_t bytes, struct graph_piece *graph, uint64_t *address)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t whole = apart() ? bytes : round_up(bytes, GRANULE);
	if (bytes > UINT64_MAX / 2)
		return r;
	struct block *b = obtain(p, ref, whole, &r);
	if (b) {
		take(b, whole);
		b->graph = graph;
		struct range range = {
			.base = b->at, .size = bytes, .kind = RANGE_POOL, .context = ref->contextHandle, .owner = (uint64_t)(uintptr_t)b,
		};
		r = range_add_fresh(&range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		*address = b->at;
		if (r != CUDA_SUCCESS)
			let_go(b);
	}
	finish(p); /* it may have been destroyed meanwhile */
	return r;
}

CUresult pool_take(struct pool *p, const struct stream_ref *ref, uint64_t bytes, uint64_t *address)
{
	return take_for(p, ref, bytes, NULL, address);
}

static bool graphsHave; /* graph memory was allocated at least once; guarded by the lock */

CUresult pool_take_for_graph(struct pool *p, uint64_t context, uint64_t bytes, struct graph_piece *piece, uint64_t *address)
{
	const struct stream_ref anywhere = {.contextHandle = context};
	graphsHave = true;
	return take_for(p, &anywhere, bytes, piece, address);
}

/* Returns the block in use that begins at an address, or NULL. */
static struct block *in_use(uint64_t address)
{
	struct range range;
	bool ours = range_find(address, &range) && range.kind == RANGE_POOL && range.base == address;
	return ours ? (struct block *)(uintptr_t)range.owner : NULL;
}

struct graph_piece *pool_graph_piece(uint64_t address)
{
	const struct block *b = in_use(address);
	return b ? b->graph : NULL;
}

void pool_give_of_graph(uint64_t address, const struct graph_piece *piece, const struct stream_position *since)
{
	struct range range;
	struct block *b = in_use(address);
	if (!b || b->graph != piece) /* its context was destroyed */
		return;
	range_remove(address, RANGE_POOL, &range);
	b->graph = NULL;
	b->since = *since;
	let_go(b);
}

CUresult pool_give(uint64_t address, const struct stream_ref *ref)
{
	struct range range;
	pthread_mutex_lock(&timelineLock);
	if (UNLIKELY(graphsHave) && pool_graph_piece(address)) {
		pthread_mutex_unlock(&timelineLock);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	bool ours = range_remove(address, RANGE_POOL, &range);
	if (ours) {
		struct block *b = (struct block *)(uintptr_t)range.owner;
		b->since = (struct stream_position){0};
		if (ref && !position_now(ref, &b->since)) {
			CUresult r = range_add(&range) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
			pthread_mutex_unlock(&timelineLock);
			return r;
		}
		struct pool *p = b->chunk->pool;
		let_go(b);
		finish(p);
	}
	pthread_mutex_unlock(&timelineLock);
	return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool pools_trim(void)
{
	bool any = false;
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return false;
	pthread_mutex_lock(&timelineLock);
	for (struct pool *p = all; p; p = p->next)
		any |= pool_trim(p, 0);
	pthread_mutex_unlock(&timelineLock);
	return any;
}

void pools_synchronised(void)
{
	imports_settle();
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&timelineLock);
	for (struct pool *p = all; p; p = p->next)
		if (p->reserved > p->threshold && p->reserved > p->used)
			trim(p, p->threshold, 0, releasable);
	pthread_mutex_unlock(&timelineLock);
}

CUresult pool_locate(uint64_t address, struct pool_location *ref)
{
	struct range range;
	pthread_mutex_lock(&timelineLock);
	bool ours = range_find(address, &range) && range.kind == RANGE_POOL;
	const struct block *b = ours ? (const struct block *)(uintptr_t)range.owner : NULL;
	bool named = b && b->chunk->pool->name;
	if (named)
		*ref = (struct pool_location){.context = b->chunk->context, .chunk = b->chunk->at, .shared = b->exported != 0};
	pthread_mutex_unlock(&timelineLock);
	return named ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult share(struct block *b, uint64_t bytes, const struct mem_lend_result *chunk, struct pool_export *e)
{
	struct pool *p = b->chunk->pool;
	if (b->exported) {
		*e = exports_entry(p->exports, b->exported);
		return CUDA_SUCCESS;
	}
	if (!chunk)
		return CUDA_ERROR_INVALID_VALUE; /* freed and allocated again meanwhile */
	*e = (struct pool_export){
		.pool = p->name, .tag = chunk->tag, .chunkOffset = chunk->offset, .chunkBytes = chunk->bytes, .segment = chunk->segment,
		.offset = b->at - b->chunk->at, .bytes = bytes,
	};
	if (!exports_add(p->exports, e))
		return CUDA_ERROR_OUT_OF_MEMORY;
	b->exported = e->number;
	return CUDA_SUCCESS;
}

CUresult pool_share(uint64_t address, const struct pool_location *ref, const struct mem_lend_result *chunk, struct pool_export *e)
{
	struct range range;
	pthread_mutex_lock(&timelineLock);
	bool ours = range_find(address, &range) && range.kind == RANGE_POOL;
	struct block *b = ours ? (struct block *)(uintptr_t)range.owner : NULL;
	bool same = b && b->chunk->pool->name && b->chunk->at == ref->chunk && b->chunk->context == ref->context;
	CUresult r = same ? share(b, range.size, chunk, e) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&timelineLock);
	return r;
}

uint64_t pool_of(uint64_t address)
{
	struct range range;
	uint64_t handle = 0;
	pthread_mutex_lock(&timelineLock);
	if (range_find(address, &range) && range.kind == RANGE_POOL) {
		const struct block *b = (const struct block *)(uintptr_t)range.owner;
		handle = b->graph ? 0 : b->chunk->pool->object.id;
	}
	pthread_mutex_unlock(&timelineLock);
	return handle;
}

static void drop_of_context(struct pool *p, uint64_t context)
{
	for (struct chunk **at = &p->chunks; *at;)
		if ((*at)->context == context)
			drop_chunk(at);
		else
			at = &(*at)->next;
}

void pool_context_ends(uint64_t context)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&timelineLock);
	for (struct pool *p = all, *next; p; p = next) {
		next = p->next;
		drop_of_context(p, context);
		finish(p);
	}
	pthread_mutex_unlock(&timelineLock);
}

/* Pools are on devices: there are none of host or managed memory (the attributes for those are 0). */
CUresult pool_check_kind(const CUmemLocation *where, CUmemAllocationType type)
{
	if (!where)
		return CUDA_ERROR_INVALID_VALUE;
	if (where->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return (unsigned)type > CU_MEM_ALLOCATION_TYPE_MANAGED || !type ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
	return device_exists(where->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pool_check_props(const CUmemPoolProps *props)
{
	CUresult r = pool_check_kind(&props->location, props->allocType);
	if (r != CUDA_SUCCESS)
		return r;
	for (size_t i = 0; i < sizeof props->reserved; i++)
		if (props->reserved[i])
			return CUDA_ERROR_INVALID_VALUE;
	const unsigned exist = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC; /* on Linux */
	if ((unsigned)props->handleTypes & ~exist)
		return CUDA_ERROR_INVALID_VALUE;
	/* CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES gives the handle types by which processes can share a pool. */
	unsigned supported = (unsigned)device_attribute(props->location.id, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES);
	if (((unsigned)props->handleTypes & ~supported) || props->usage != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult pool_check_access(int device, const CUmemAccessDesc *access, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_exists(access[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		if (access[i].location.id != device && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			return CUDA_ERROR_INVALID_DEVICE;
		if (access[i].location.id == device && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}
