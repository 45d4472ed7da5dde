/* Device, pinned, managed and registered memory: allocation, registration and queries. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/device.h"
#include "core/range.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/memory.h"
#include "object/context.h"
#include "work/hostmap.h"
#include "work/memory.h"
#include "work/pool.h"
#include "work/pool_share.h"
#include "work/vmm.h"

#define PITCH_ALIGNMENT 512

CUresult pg_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!dptr || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t address;
	r = memory_alloc(c, bytes, &address);
	if (r == CUDA_SUCCESS)
		*dptr = address;
	return r;
}

CUresult pg_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!dptr || !pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t row, bytes, address;
	if (__builtin_add_overflow(width, PITCH_ALIGNMENT - 1, &row))
		return CUDA_ERROR_OUT_OF_MEMORY;
	row &= ~(uint64_t)(PITCH_ALIGNMENT - 1);
	if (__builtin_mul_overflow(row, height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = memory_alloc(c, bytes, &address);
	if (r != CUDA_SUCCESS)
		return r;
	*dptr = address;
	*pitch = row;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!dptr || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t address;
	r = memory_pin(c, bytes, RANGE_MANAGED, flags, &address);
	if (r == CUDA_SUCCESS)
		*dptr = address;
	return r;
}

/*
 * Checks that an allocation may be freed. Without a current context the allocation's own counts: Numba frees after it
 * has popped its context. Without a current context, too, an address of no allocation is CUDA_ERROR_INVALID_VALUE, and
 * null is a success, as with NVIDIA's driver (580, on an H200).
 */
static CUresult may_free(uint64_t address)
{
	struct context *c;
	struct range range;
	if (context_top())
		return context_current(&c);
	if (!address)
		return CUDA_SUCCESS;
	if (!range_find(address, &range) || range.base != address)
		return CUDA_ERROR_INVALID_VALUE;
	c = handle_find(&contexts, range.context);
	return c ? context_error(c->wire) : CUDA_SUCCESS; /* pool memory belongs to its device */
}

CUresult pg_cuMemFree_v2(CUdeviceptr dptr)
{
	CUresult r = may_free(dptr);
	if (r != CUDA_SUCCESS)
		return r;
	if (!dptr)
		return CUDA_SUCCESS; /* like free */
	struct range range;
	if (range_remove(dptr, RANGE_MANAGED, &range))
		return memory_unpin(&range);
	if (LIKELY(!range_find(dptr, &range) || range.base != dptr || (range.kind != RANGE_POOL && range.kind != RANGE_IMPORTED)))
		return memory_free(dptr);
	r = contexts_drain();
	CUresult given = range.kind == RANGE_POOL ? pool_give(dptr, NULL) : import_free(dptr, NULL);
	if (given == CUDA_ERROR_NOT_PERMITTED)
		given = graph_memory_free(dptr, NULL);
	return given == CUDA_SUCCESS ? r : given;
}

CUresult pg_cuMemGetInfo_v2(size_t *available, size_t *total)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct mem_info_result answer;
	struct packet p = CONTEXT_PACKET(c, OP_MEM_INFO);
	r = ring_call(&p, &answer, sizeof answer);
	if (r != CUDA_SUCCESS)
		return r;
	if (available)
		*available = answer.free;
	if (total)
		*total = answer.total;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!base && !size)
		return CUDA_SUCCESS; /* for any address, as with NVIDIA's driver (580, on an H200) */
	struct range range;
	uint32_t access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (!range_find(dptr, &range) || range.kind == RANGE_REGISTERED)
		return CUDA_ERROR_NOT_FOUND;
	/* Mapped memory counts once a device may access it. */
	if (range.kind == RANGE_RESERVED && (!vmm_mapping(dptr, &range, &access) || access == CU_MEM_ACCESS_FLAGS_PROT_NONE))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = range.base;
	if (size)
		*size = range.size;
	return CUDA_SUCCESS;
}

/* --- host memory --- */

CUresult pg_cuMemHostAlloc(void **pp, size_t bytes, unsigned int flags)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
	if (!pp || (flags & ~known))
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes == 0) {
		*pp = NULL;
		return CUDA_SUCCESS;
	}
	if (device_attribute(c->device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY))
		flags |= CU_MEMHOSTALLOC_DEVICEMAP; /* it is mapped in any case */
	uint64_t address;
	r = memory_pin(c, bytes, RANGE_PINNED, flags, &address);
	if (r == CUDA_SUCCESS)
		*pp = (void *)(uintptr_t)address;
	return r;
}

CUresult pg_cuMemAllocHost_v2(void **pp, size_t bytes)
{
	return pg_cuMemHostAlloc(pp, bytes, 0);
}

CUresult pg_cuMemFreeHost(void *p)
{
	CUresult r = may_free((uint64_t)(uintptr_t)p);
	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		return CUDA_SUCCESS;
	struct range range;
	if (!range_remove((uint64_t)(uintptr_t)p, RANGE_PINNED, &range))
		return CUDA_ERROR_INVALID_VALUE;
	return memory_unpin(&range);
}

/* Reports whether the process has mapped all of these addresses, as far as the kernel reports it. */
static bool is_mapped(uint64_t at, uint64_t end)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned char resident[4096];
	int saved = errno;
	bool mapped = true;
	for (at -= at % page; mapped && at < end; at += page * sizeof resident) {
		uint64_t rest = end - at, step = page * sizeof resident;
		mapped = mincore((void *)(uintptr_t)at, rest < step ? rest : step, resident) == 0 || errno != ENOMEM;
		if (end - at <= step)
			break;
	}
	errno = saved;
	return mapped;
}

/*
 * Reports whether addresses lie in the library's own mappings, where allocations begin: a registration of freed memory
 * there would keep later allocations from its addresses.
 */
static bool is_own(uint64_t at, uint64_t end)
{
	const uint64_t own[][2] = {
		{(uint64_t)(uintptr_t)process.view, process.viewBytes}, {(uint64_t)(uintptr_t)process.arena, process.arenaBytes},
		{process.deviceBase, process.deviceBytes},
	};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (at < own[i][0] + own[i][1] && own[i][0] < end)
			return true;
	return false;
}

/*
 * A range of registered memory whose pages cuMemHostUnregister is moving back. The list has the ranges of all threads.
 * A range counts as registered until the call returns. The lock is never held during a blocking call.
 */
struct leaving {
	uint64_t begin, end;
	struct leaving *next;
};
static struct leaving *leavers;
static pthread_mutex_t leavingLock = PTHREAD_MUTEX_INITIALIZER;

/* Adds registered memory; false if it overlaps other memory that is still registered. */
static bool add_registered(const struct range *range, uint64_t end)
{
	pthread_mutex_lock(&leavingLock);
	const struct leaving *l = leavers;
	while (l && (l->end <= range->base || end <= l->begin))
		l = l->next;
	bool added = !l && range_add(range);
	pthread_mutex_unlock(&leavingLock);
	return added;
}

/*
 * Removes the registered memory that begins at an address. If it has a device address, leaving lists it until
 * end_leaving.
 */
static bool begin_leaving(uint64_t address, struct range *range, struct leaving *leaving)
{
	pthread_mutex_lock(&leavingLock);
	bool removed = range_remove(address, RANGE_REGISTERED, range);
	if (removed && range->owner) {
		*leaving = (struct leaving){.begin = address, .end = address + range->size, .next = leavers};
		leavers = leaving;
	}
	pthread_mutex_unlock(&leavingLock);
	return removed;
}

static void end_leaving(const struct leaving *leaving)
{
	pthread_mutex_lock(&leavingLock);
	struct leaving **at = &leavers;
	while (*at != leaving)
		at = &(*at)->next;
	*at = leaving->next;
	pthread_mutex_unlock(&leavingLock);
}

/*
 * The worker cannot access the program's pages: registered memory is copied like any other, until the program requests
 * a device address for it, here or later. Memory of another device is not supported (CU_MEMHOSTREGISTER_IOMEMORY).
 */
CUresult pg_cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
		CU_MEMHOSTREGISTER_READ_ONLY;
	uint64_t end;
	if (!p || bytes == 0 || (flags & ~known) || __builtin_add_overflow((uint64_t)(uintptr_t)p, bytes, &end))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!is_mapped((uint64_t)(uintptr_t)p, end))
		return CUDA_ERROR_INVALID_VALUE;
	struct range range = {
		.base = (uint64_t)(uintptr_t)p, .size = bytes, .kind = RANGE_REGISTERED, .context = c->object.id, .flags = flags,
	}, allocated;
	if (is_own(range.base, end))
		return range_find(range.base, &allocated) ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
	if (!add_registered(&range, end))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	uint64_t address;
	r = flags & CU_MEMHOSTREGISTER_DEVICEMAP ? hostmap_device(&range, &address) : CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		range_remove(range.base, RANGE_REGISTERED, &range);
	return r;
}

CUresult pg_cuMemHostUnregister(void *p)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	struct range range;
	struct leaving leaving; /* lives on the stack of a thread that cannot be cancelled */
	int cancelable;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	bool removed = begin_leaving((uint64_t)(uintptr_t)p, &range, &leaving);
	if (removed && range.owner) {
		r = contexts_drain();
		hostmap_drop(range.owner);
		end_leaving(&leaving);
	}
	pthread_setcancelstate(cancelable, NULL);
	if (removed)
		return r;
	bool known = range_find((uint64_t)(uintptr_t)p, &range); /* but the address is not its begin, or it is not registered memory */
	return known && (range.kind == RANGE_REGISTERED || range.kind == RANGE_PINNED) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult pg_cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *p, unsigned int flags)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range range;
	if (!dptr || flags != 0 || !range_find((uint64_t)(uintptr_t)p, &range))
		return CUDA_ERROR_INVALID_VALUE;
	if (range.kind == RANGE_REGISTERED) {
		uint64_t address;
		r = hostmap_device(&range, &address);
		if (r == CUDA_SUCCESS)
			*dptr = address + ((uint64_t)(uintptr_t)p - range.base);
		return r;
	}
	if (range.kind != RANGE_PINNED && range.kind != RANGE_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemHostGetFlags(unsigned int *flags, void *p)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range range;
	if (!flags || !range_find((uint64_t)(uintptr_t)p, &range) ||
		(range.kind != RANGE_PINNED && range.kind != RANGE_REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = range.flags;
	return CUDA_SUCCESS;
}
