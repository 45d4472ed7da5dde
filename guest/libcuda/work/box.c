#define _GNU_SOURCE
#include "work/box.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/range.h"
#include "object/array.h"
#include "work/vmm.h"

static bool in_device_window(uint64_t address)
{
	/* Without a device window of its own, device memory may have any address: look it up in the table. */
	return process.deviceBytes == 0 || address - process.deviceBase < process.deviceBytes;
}

CUresult endpoint_from_address(uint64_t address, uint64_t bytes, bool deviceOnly, struct copy_endpoint *end)
{
	struct range range;
	end->address = address;
	end->where = AT_HOST;
	end->sync = false;
	bool inArena = process.arenaShared && arena_holds(address, bytes);
	if (inArena || deviceOnly || in_device_window(address)) {
		bool known = range_find(address, &range) && range.kind != RANGE_REGISTERED;
		if (known && range.size - (address - range.base) < bytes)
			return CUDA_ERROR_INVALID_VALUE;
		if (known && range.kind == RANGE_RESERVED && !vmm_usable(address, bytes))
			return CUDA_ERROR_INVALID_VALUE;
		if (!known && (deviceOnly || (process.deviceBytes != 0 && in_device_window(address))))
			return CUDA_ERROR_INVALID_VALUE;
		if (known && range_on_device(&range))
			end->where = AT_DEVICE;
		end->sync = known && range.sync;
	}
	if (end->where == AT_HOST && inArena) {
		end->where = AT_ARENA;
		end->address = arena_offset(address);
	}
	return CUDA_SUCCESS;
}

/* Reports whether a byte can be read, and with write also written; tested by system calls, which do not fault. */
static bool touchable(uint64_t address, bool write)
{
	uint8_t byte;
	struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)address, 1};
	if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1)
		return errno == EPERM || errno == ENOSYS; /* a sandbox forbids the call: assume that it can */
	return !write || process_vm_writev(getpid(), &here, 1, &there, 1, 0) == 1;
}

static bool all_mapped(uint64_t address, uint64_t bytes)
{
	enum { PAGE = 4096, PAGES = 1024 };
	unsigned char resident[PAGES];
	uint64_t at = address & ~(uint64_t)(PAGE - 1), end = address + bytes;
	for (; at < end; at += (uint64_t)PAGE * PAGES) {
		uint64_t part = end - at < (uint64_t)PAGE * PAGES ? end - at : (uint64_t)PAGE * PAGES;
		if (mincore((void *)(uintptr_t)at, part, resident) != 0)
			return false;
	}
	return true;
}

bool endpoint_usable(const struct copy_endpoint *end, uint64_t bytes, bool write)
{
	int saved = errno;
	uint64_t last;
	bool usable = end->where != AT_HOST || (!__builtin_add_overflow(end->address, bytes, &last) &&
		all_mapped(end->address, bytes) && touchable(end->address, write) && touchable(last - 1, write));
	errno = saved;
	return usable;
}
static bool fits(uint64_t at, uint64_t count, uint64_t size) { return at <= size && count <= size - at; }

CUresult endpoint_from_array(CUarray handle, uint64_t x, uint64_t y, uint64_t z, uint64_t width, uint64_t height, uint64_t depth,
	struct copy_endpoint *end)
{
	struct array *a = array_find(handle);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	uint64_t rows = a->height ? a->height : 1, slices = a->depth ? a->depth : 1;
	if (!fits(x, width, a->width * a->elementBytes) || !fits(y, height, rows) || !fits(z, depth, slices))
		return CUDA_ERROR_INVALID_VALUE;
	*end = (struct copy_endpoint){.where = AT_ARRAY, .address = a->object.id, .x = x, .y = y, .z = z};
	return CUDA_SUCCESS;
}

/* One side of a 2-D or 3-D copy in the program's description. */
struct side {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	uint64_t pitch, height, x, y, z, lod;
};

/* Returns the distance from the first to the last byte of the box. */
static CUresult span(uint64_t pitch, uint64_t rows, const CUDA_MEMCPY3D *c, uint64_t *bytes)
{
	uint64_t slice, slices, lines;
	if (__builtin_mul_overflow(pitch, rows, &slice) || __builtin_mul_overflow(slice, c->Depth - 1, &slices) ||
		__builtin_mul_overflow(pitch, c->Height - 1, &lines) || __builtin_add_overflow(slices, lines, bytes) ||
		__builtin_add_overflow(*bytes, c->WidthInBytes, bytes) || *bytes > (uint64_t)INT64_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult begin_at(const struct side *s, uint64_t pitch, uint64_t rows, uint64_t *address)
{
	uint64_t y, offset;
	if (__builtin_mul_overflow(s->z, rows, &y) || __builtin_add_overflow(y, s->y, &y) ||
		__builtin_mul_overflow(y, pitch, &offset) || __builtin_add_overflow(offset, s->x, &offset) ||
		__builtin_add_overflow(*address, offset, address))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult side_endpoint(const struct side *s, const CUDA_MEMCPY3D *c, bool write, struct copy_endpoint *end)
{
	if (s->lod != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->type == CU_MEMORYTYPE_ARRAY)
		return endpoint_from_array(s->array, s->x, s->y, s->z, c->WidthInBytes, c->Height, c->Depth, end);
	if (s->type != CU_MEMORYTYPE_HOST && s->type != CU_MEMORYTYPE_DEVICE && s->type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t address = s->type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)s->host : s->device;
	uint64_t right, pitch = s->pitch, rows = s->height, bytes;
	if (!address || __builtin_add_overflow(s->x, (uint64_t)c->WidthInBytes, &right))
		return CUDA_ERROR_INVALID_VALUE;
	if (pitch == 0) /* a single row needs no pitch */
		pitch = right;
	if (rows == 0)
		rows = s->y + c->Height;
	if (pitch < right || (c->Depth > 1 && rows < c->Height))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = span(pitch, rows, c, &bytes);
	if (r == CUDA_SUCCESS)
		r = begin_at(s, pitch, rows, &address);
	if (r == CUDA_SUCCESS)
		r = endpoint_from_address(address, bytes, s->type == CU_MEMORYTYPE_DEVICE, end);
	if (r == CUDA_SUCCESS && s->type == CU_MEMORYTYPE_UNIFIED && !endpoint_usable(end, bytes, write))
		r = CUDA_ERROR_INVALID_VALUE;
	end->pitch = pitch;
	end->height = rows;
	return r;
}

CUresult box_of(const CUDA_MEMCPY3D *c, struct box *box)
{
	*box = (struct box){.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
	if (c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0)
		return CUDA_SUCCESS;
	struct side to = {
		.type = c->dstMemoryType, .host = c->dstHost, .device = c->dstDevice, .array = c->dstArray, .pitch = c->dstPitch,
		.height = c->dstHeight, .x = c->dstXInBytes, .y = c->dstY, .z = c->dstZ, .lod = c->dstLOD,
	};
	struct side from = {
		.type = c->srcMemoryType, .host = c->srcHost, .device = c->srcDevice, .array = c->srcArray, .pitch = c->srcPitch,
		.height = c->srcHeight, .x = c->srcXInBytes, .y = c->srcY, .z = c->srcZ, .lod = c->srcLOD,
	};
	CUresult r = side_endpoint(&to, c, true, &box->dst);
	return r == CUDA_SUCCESS ? side_endpoint(&from, c, false, &box->src) : r;
}

static void describe(const struct copy_endpoint *e, CUmemorytype *type, void **hostAddress, CUdeviceptr *device, CUarray *array, size_t ref[3])
{
	ref[0] = ref[1] = ref[2] = 0;
	*type = e->where == AT_ARRAY ? CU_MEMORYTYPE_ARRAY : e->where == AT_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	if (e->where == AT_ARRAY) {
		*array = (CUarray)(uintptr_t)e->address;
		ref[0] = e->x;
		ref[1] = e->y;
		ref[2] = e->z;
	} else if (e->where == AT_DEVICE)
		*device = e->address;
	else
		*hostAddress = e->where == AT_ARENA ? arena_at(e->address) : (void *)(uintptr_t)e->address;
}

CUDA_MEMCPY3D copy_of(const struct box *b)
{
	CUDA_MEMCPY3D c = {
		.srcPitch = b->src.pitch, .srcHeight = b->src.height, .dstPitch = b->dst.pitch, .dstHeight = b->dst.height,
		.WidthInBytes = b->width, .Height = b->height, .Depth = b->depth,
	};
	void *from = NULL;
	size_t at[3];
	describe(&b->dst, &c.dstMemoryType, &c.dstHost, &c.dstDevice, &c.dstArray, at);
	c.dstXInBytes = at[0], c.dstY = at[1], c.dstZ = at[2];
	describe(&b->src, &c.srcMemoryType, &from, &c.srcDevice, &c.srcArray, at);
	c.srcXInBytes = at[0], c.srcY = at[1], c.srcZ = at[2];
	c.srcHost = from;
	return c;
}
