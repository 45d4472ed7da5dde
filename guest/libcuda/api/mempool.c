/* API calls for memory pools. Allocation and reuse of pool memory are in work/pool.c. */
#include "core/device.h"
#include "core/zz_impl.h"
#include "graph/capture.h"
#include "graph/memory.h"
#include "object/context.h"
#include "object/stream_timeline.h"
#include "work/memory.h"
#include "work/pool.h"
#include "work/pool_share.h"

/* Handles of each device's default pool, created on first use, and of its current pool. Guarded by timelineLock. */
static struct {
	uint64_t own, current;
} ofDevice[DEVICES_MOST];

static struct pool *find(CUmemoryPool handle) { return handle_find(&pools, (uint64_t)(uintptr_t)handle); }

/* Returns a device's default pool; requires the lock. */
static struct pool *own_pool(int device)
{
	struct pool *p = handle_find(&pools, ofDevice[device].own);
	if (!p && (p = pool_new(device, 0)))
		ofDevice[device].own = p->object.id;
	return p;
}

static struct pool *current_pool(int device)
{
	struct pool *p = handle_find(&pools, ofDevice[device].current);
	return p ? p : own_pool(device);
}

static CUresult answer_pool(CUmemoryPool *out, CUdevice device, struct pool *(*which)(int))
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = which(device);
	if (p)
		*out = HANDLE_OF(CUmemoryPool, p);
	pthread_mutex_unlock(&timelineLock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pg_cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device) { return answer_pool(out, device, own_pool); }
CUresult pg_cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device) { return answer_pool(out, device, current_pool); }

CUresult pg_cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle)
{
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = find(handle);
	bool ok = p && p->device == device && !p->imported;
	if (ok)
		ofDevice[device].current = p->object.id;
	pthread_mutex_unlock(&timelineLock);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *where, CUmemAllocationType type)
{
	CUresult r = pool_check_kind(where, type);
	return r == CUDA_SUCCESS ? pg_cuDeviceGetDefaultMemPool(out, where->id) : r;
}

CUresult pg_cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *where, CUmemAllocationType type)
{
	CUresult r = pool_check_kind(where, type);
	return r == CUDA_SUCCESS ? pg_cuDeviceGetMemPool(out, where->id) : r;
}

CUresult pg_cuMemSetMemPool(CUmemLocation *where, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult r = pool_check_kind(where, type);
	return r == CUDA_SUCCESS ? pg_cuDeviceSetMemPool(where->id, pool) : r;
}

CUresult pg_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	if (!out || !props)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = pool_check_props(props);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&timelineLock);
	struct pool *p = pool_new(props->location.id, props->maxSize);
	if (p) {
		p->handleTypes = props->handleTypes;
		*out = HANDLE_OF(CUmemoryPool, p);
	}
	pthread_mutex_unlock(&timelineLock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pg_cuMemPoolDestroy(CUmemoryPool handle)
{
	pthread_mutex_lock(&timelineLock);
	struct pool *p = find(handle);
	bool ok = p && p->object.id != ofDevice[p->device].own;
	if (ok)
		pool_end(p); /* if it is a device's current pool, lookups miss it from now on */
	pthread_mutex_unlock(&timelineLock);
	if (ok)
		imports_end((uint64_t)(uintptr_t)handle);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	pthread_mutex_lock(&timelineLock);
	struct pool *p = find(handle);
	if (p)
		pool_trim(p, keep);
	pthread_mutex_unlock(&timelineLock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * --- attributes: three flags, which are ints, and numbers; those from CU_MEMPOOL_ATTR_ALLOCATION_TYPE on came after
 * CUDA 13.0 ---
 */

static bool *switch_of(struct pool *p, CUmemPool_attribute what)
{
	switch ((unsigned)what) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		return &p->followEvents;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		return &p->opportunistic;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return &p->dependencies;
	default:
		return NULL;
	}
}

static uint64_t *number_of(struct pool *p, CUmemPool_attribute what)
{
	switch ((unsigned)what) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &p->threshold;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &p->reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &p->reservedHigh;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &p->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &p->usedHigh;
	default:
		return NULL;
	}
}

static CUresult get(struct pool *p, CUmemPool_attribute what, void *value)
{
	const bool *flag = switch_of(p, what);
	const uint64_t *number = number_of(p, what);
	if (flag)
		*(int *)value = *flag;
	else if (number)
		*(cuuint64_t *)value = *number;
	return flag || number ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* High-water marks can only be reset. */
static CUresult set(struct pool *p, CUmemPool_attribute what, const void *value)
{
	bool *flag = switch_of(p, what);
	if (flag) {
		*flag = *(const int *)value != 0;
		return CUDA_SUCCESS;
	}
	switch ((unsigned)what) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		p->threshold = *(const cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(const cuuint64_t *)value != 0)
			return CUDA_ERROR_INVALID_VALUE;
		*number_of(p, what) = what == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? p->used : p->reserved;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult pg_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute what, void *value)
{
	pthread_mutex_lock(&timelineLock);
	struct pool *p = find(handle);
	CUresult r = p && value ? get(p, what, value) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&timelineLock);
	return r;
}

CUresult pg_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute what, void *value)
{
	pthread_mutex_lock(&timelineLock);
	struct pool *p = find(handle);
	CUresult r = p && value ? set(p, what, value) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&timelineLock);
	return r;
}

/* --- access: only a pool's own device has access --- */

CUresult pg_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *access, size_t count)
{
	struct pool *p = find(handle);
	return p && access && count ? pool_check_access(p->device, access, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *where)
{
	struct pool *p = find(handle);
	if (!p || !flags || !where || where->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_exists(where->id))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = where->id == p->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

/* --- allocating and freeing --- */

/* An empty allocation has the null address, which any call frees. It needs no memory of a pool and no graph node. */
static CUresult take_nothing(CUdeviceptr *out)
{
	*out = 0;
	return CUDA_SUCCESS;
}

/*
 * Allocates from a pool that was looked up under the lock, which is held without a gap: another thread might destroy
 * the pool.
 */
static CUresult take(CUdeviceptr *out, size_t bytes, struct pool *p, const struct stream_ref *ref)
{
	uint64_t address;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes == 0)
		return take_nothing(out);
	CUresult r = pool_take(p, ref, bytes, &address);
	if (r == CUDA_SUCCESS)
		*out = address;
	return r;
}

/* In a capturing stream the graph owns the allocation, and only the pool's device matters. */
static CUresult take_captured(CUdeviceptr *out, size_t bytes, int device, const struct stream_ref *ref)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
		.bytesize = bytes,
	};
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes == 0)
		return take_nothing(out);
	CUresult r = capture_alloc(ref, &p);
	if (r == CUDA_SUCCESS)
		*out = p.dptr;
	return r;
}

CUresult pg_cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	const struct context *c = handle_find(&contexts, ref.contextHandle);
	if (!c)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (UNLIKELY(ref.capturing))
		return take_captured(out, bytes, c->device, &ref);
	pthread_mutex_lock(&timelineLock);
	struct pool *p = current_pool(c->device);
	r = p ? take(out, bytes, p, &ref) : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&timelineLock);
	return r;
}

CUresult pg_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool handle, CUstream stream)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	const struct context *c = handle_find(&contexts, ref.contextHandle);
	pthread_mutex_lock(&timelineLock);
	struct pool *p = find(handle);
	if (!p || p->imported)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (c && p->device != c->device)
		r = CUDA_ERROR_INVALID_DEVICE;
	else if (!ref.capturing)
		r = take(out, bytes, p, &ref);
	pthread_mutex_unlock(&timelineLock);
	return r == CUDA_SUCCESS && UNLIKELY(ref.capturing) ? take_captured(out, bytes, c ? c->device : 0, &ref) : r;
}

/* Memory that belongs to no pool is freed on the host when all earlier work has ended. */
CUresult pg_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	if (!address)
		return CUDA_SUCCESS; /* like cuMemFree */
	if (UNLIKELY(ref.capturing))
		return capture_free(&ref, address);
	r = pool_give(address, &ref);
	if (r == CUDA_ERROR_NOT_PERMITTED)
		return graph_memory_free(address, &ref);
	if (r == CUDA_ERROR_INVALID_VALUE)
		r = import_free(address, &ref);
	return r == CUDA_ERROR_INVALID_VALUE ? memory_free(address) : r;
}
