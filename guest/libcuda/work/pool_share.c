#include "work/pool_share.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/device.h"
#include "core/range.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "object/context.h"
#include "object/stream_timeline.h"
#include "work/ipc.h"
#include "work/pool_exports.h"

/* A chunk of another process, mapped in a context. */
struct import {
	uint64_t context; /* handle */
	struct mem_lend_result chunk;
	uint64_t address, pool; /* the pool's handle */
	uint32_t times;         /* imported allocations, minus frees */
	struct stream_position since;    /* position of the last work that may use it */
	struct import *next;
};
static pthread_mutex_t importLock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct import *imports;
static _Atomic bool any; /* an import was made */

static struct pool *find(CUmemoryPool handle) { return handle_find(&pools, (uint64_t)(uintptr_t)handle); }

/* --- exporting --- */

/* Gives the pool a name that is unique among the pools of all processes, and a table of exported allocations. */
static CUresult name_pool(struct pool *p)
{
	uint64_t fresh;
	if (!p->name && getrandom(&fresh, sizeof fresh, 0) == (ssize_t)sizeof fresh && (p->exports = exports_new(fresh | 1)))
		p->name = fresh | 1;
	return p->name ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult pg_cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	int file = -1;
	if (!out || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = find(handle);
	bool shared = p && !p->imported && p->handleTypes == type && type != CU_MEM_HANDLE_TYPE_NONE;
	CUresult r = shared ? name_pool(p) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && (file = exports_file(p->exports)) < 0)
		r = CUDA_ERROR_OPERATING_SYSTEM;
	pthread_mutex_unlock(&timelineLock);
	if (r == CUDA_SUCCESS)
		*(int *)out = file;
	return r;
}

CUresult pg_cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
	struct pool_export e;
	struct mem_lend_result loan;
	struct pool_location ref;
	struct context *c;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = pool_locate(address, &ref);
	if (r == CUDA_SUCCESS)
		r = context_of((CUcontext)(uintptr_t)ref.context, &c);
	if (r == CUDA_SUCCESS && !ref.shared)
		r = ipc_lend(ref.chunk, &loan);
	if (r == CUDA_SUCCESS)
		r = pool_share(address, &ref, ref.shared ? NULL : &loan, &e);
	if (r == CUDA_SUCCESS)
		memcpy(out, &e, sizeof e);
	return r;
}

/* --- importing --- */

/* Reports whether a handle type belongs to other systems, or is for sharing between machines. */
static bool elsewhere(CUmemAllocationHandleType type)
{
	return type == CU_MEM_HANDLE_TYPE_WIN32 || type == CU_MEM_HANDLE_TYPE_WIN32_KMT || type == CU_MEM_HANDLE_TYPE_FABRIC;
}

CUresult pg_cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	struct context *c;
	uint64_t name;
	if (!out || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return elsewhere(type) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	struct pool_exports *exports = exports_open((int)(intptr_t)handle, &name);
	if (!exports)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = pool_new(context_current(&c) == CUDA_SUCCESS ? c->device : 0, 0);
	if (p) {
		p->imported = true;
		p->handleTypes = type;
		p->name = name;
		p->exports = exports;
		*out = HANDLE_OF(CUmemoryPool, p);
	} else
		exports_free(exports);
	pthread_mutex_unlock(&timelineLock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Finds an import; requires importLock, as the functions below. */
static struct import *find_import(const struct context *c, uint64_t pool, const struct mem_lend_result *chunk)
{
	struct import *i = imports;
	while (i && (i->context != c->object.id || i->pool != pool || memcmp(&i->chunk, chunk, sizeof *chunk) != 0))
		i = i->next;
	return i;
}

static struct import **import_at(uint64_t address)
{
	struct import **i = &imports;
	while (*i && address - (*i)->address >= (*i)->chunk.bytes)
		i = &(*i)->next;
	return i;
}

static CUresult map_chunk(const struct context *c, uint64_t pool, const struct mem_lend_result *chunk, struct import **mapped)
{
	struct import *i = find_import(c, pool, chunk);
	if (!i) {
		if (!(i = calloc(1, sizeof *i)))
			return CUDA_ERROR_OUT_OF_MEMORY;
		CUresult r = ipc_borrow(c, chunk, &i->address);
		if (r != CUDA_SUCCESS) {
			free(i);
			return r;
		}
		i->context = c->object.id;
		i->pool = pool;
		i->chunk = *chunk;
		i->next = imports;
		imports = i;
		any = true;
	}
	*mapped = i;
	return CUDA_SUCCESS;
}

/*
 * Moves imports without allocations whose work has completed to *unused; of the destroyed pool `pool` also those with
 * pending work.
 */
static void take_unused(struct import **unused, uint64_t pool)
{
	for (struct import **at = &imports; *at;) {
		struct import *i = *at;
		bool over = i->times == 0 && i->pool == pool;
		if (i->times == 0 && !over) {
			pthread_mutex_lock(&timelineLock);
			over = position_passed(&i->since);
			pthread_mutex_unlock(&timelineLock);
		}
		if (!over) {
			at = &i->next;
			continue;
		}
		*at = i->next;
		i->next = *unused;
		*unused = i;
	}
}

/* Requires no lock: the host waits for work that may use the memory. */
static void unmap_all(struct import *unused)
{
	while (unused) {
		struct import *i = unused;
		const struct context *c = handle_find(&contexts, i->context);
		unused = i->next;
		if (c)
			ipc_give_back(c, i->address);
		free(i);
	}
}

/* An allocation that is imported again keeps its address, and has to be freed once more. */
static bool import_again(const struct range *range)
{
	struct range there;
	return range_find(range->base, &there) && there.kind == RANGE_IMPORTED && there.base == range->base && there.size == range->size &&
		there.owner == range->owner && range_set_flags(range->base, RANGE_IMPORTED, there.flags + 1);
}

static CUresult import(CUdeviceptr *out, const struct context *c, uint64_t pool, const struct pool_export *t)
{
	struct import *i;
	const struct mem_lend_result chunk = {.tag = t->tag, .offset = t->chunkOffset, .bytes = t->chunkBytes, .segment = t->segment};
	CUresult r = map_chunk(c, pool, &chunk, &i);
	if (r != CUDA_SUCCESS)
		return r;
	const struct range range = {.base = i->address + t->offset, .size = t->bytes, .kind = RANGE_IMPORTED, .context = c->object.id, .owner = pool};
	/* While no allocation of the chunk is in use, entries of the table there are stale. */
	if (i->times && import_again(&range)) {
		*out = range.base;
		return CUDA_SUCCESS;
	}
	if (!(i->times ? range_add(&range) : range_add_fresh(&range)))
		return CUDA_ERROR_INVALID_VALUE; /* part of it overlaps another import */
	i->times++;
	*out = range.base;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool handle, CUmemPoolPtrExportData *data)
{
	struct context *c;
	struct pool_export t;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !data)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&t, data, sizeof t);
	pthread_mutex_lock(&timelineLock);
	const struct pool *p = find(handle);
	bool good = p && p->imported && t.pool == p->name && exports_contains(p->exports, &t) && t.bytes != 0 &&
		t.offset < t.chunkBytes && t.bytes <= t.chunkBytes - t.offset;
	pthread_mutex_unlock(&timelineLock);
	if (!good)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&importLock);
	r = import(out, c, (uint64_t)(uintptr_t)handle, &t);
	pthread_mutex_unlock(&importLock);
	return r;
}

/* --- destruction of pools and contexts --- */

CUresult import_free(uint64_t address, const struct stream_ref *ref)
{
	struct range range;
	struct import *unused = NULL;
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&importLock);
	bool known = range_find(address, &range) && range.kind == RANGE_IMPORTED && range.base == address;
	bool more = known && range.flags && range_set_flags(address, RANGE_IMPORTED, range.flags - 1);
	if (more || (known && range_remove(address, RANGE_IMPORTED, &range))) {
		struct import *i = *import_at(address);
		r = CUDA_SUCCESS;
		pthread_mutex_lock(&timelineLock);
		if (i && ref && !position_now(ref, &i->since))
			i->since = (struct stream_position){0}; /* the host waits for it */
		pthread_mutex_unlock(&timelineLock);
		if (i && !more)
			i->times--;
		if (!ref)
			take_unused(&unused, 0);
	}
	pthread_mutex_unlock(&importLock);
	unmap_all(unused);
	return r;
}

static void settle(uint64_t pool)
{
	struct import *unused = NULL;
	if (LIKELY(!atomic_load_explicit(&any, memory_order_acquire)))
		return;
	pthread_mutex_lock(&importLock);
	take_unused(&unused, pool);
	pthread_mutex_unlock(&importLock);
	unmap_all(unused);
}

void imports_settle(void) { settle(0); }
void imports_end(uint64_t pool) { settle(pool); }

void imports_context_ends(uint64_t context)
{
	pthread_mutex_lock(&importLock);
	for (struct import **at = &imports; *at;) {
		struct import *i = *at;
		if (i->context != context) {
			at = &i->next;
			continue;
		}
		*at = i->next;
		free(i);
	}
	pthread_mutex_unlock(&importLock);
}
