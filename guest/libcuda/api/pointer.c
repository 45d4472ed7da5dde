/* Pointer attributes, from the table of ranges. */
#include <string.h>

#include "core/device.h"
#include "core/range.h"
#include "core/zz_impl.h"
#include "object/context.h"
#include "work/hostmap.h"
#include "work/pool.h"
#include "work/vmm.h"

/* An attribute's value, with its size. */
struct answer {
	uint64_t bits;
	size_t bytes;
};

/* The result of a lookup by address. */
struct found {
	struct range range;
	struct range piece; /* equals range, or for a reserved range the mapping at the address */
	uint32_t access;    /* CU_POINTER_ATTRIBUTE_ACCESS_FLAG_… */
};

static CUmemorytype memory_type(const struct range *r)
{
	return r->kind == RANGE_PINNED || r->kind == RANGE_REGISTERED || r->kind == RANGE_MAPPED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static int ordinal_of(const struct range *r)
{
	struct context *c = handle_find(&contexts, r->context);
	return c ? c->device : 0;
}

/* Computes an attribute of an address in a range; invalid value if it does not apply. */
static CUresult answer_for(const struct found *f, CUpointer_attribute what, uint64_t address, struct answer *a)
{
	const struct range *r = &f->range;
	bool onHost = !range_on_device(r), onDevice = r->kind != RANGE_REGISTERED || r->owner;
	uint64_t onThere = r->owner + (address - r->base); /* address of registered memory on the other side */
	switch ((unsigned)what) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*a = (struct answer){r->context, sizeof(CUcontext)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*a = (struct answer){(uint64_t)memory_type(r), sizeof(unsigned int)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*a = (struct answer){r->kind == RANGE_REGISTERED ? onThere : address, sizeof(CUdeviceptr)};
		return onDevice ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*a = (struct answer){r->kind == RANGE_MAPPED ? onThere : address, sizeof(void *)};
		return onHost ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*a = (struct answer){r->sync, sizeof(unsigned int)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*a = (struct answer){r->serial, sizeof(unsigned long long)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*a = (struct answer){r->kind == RANGE_MANAGED, sizeof(unsigned int)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*a = (struct answer){(uint64_t)ordinal_of(r), sizeof(int)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*a = (struct answer){r->kind == RANGE_DEVICE && device_attribute(ordinal_of(r), CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED), sizeof(int)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*a = (struct answer){0, sizeof(int)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*a = (struct answer){r->base, sizeof(CUdeviceptr)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*a = (struct answer){r->size, sizeof(size_t)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*a = (struct answer){f->piece.base, sizeof(CUdeviceptr)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*a = (struct answer){f->piece.size, sizeof(size_t)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*a = (struct answer){onDevice, sizeof(int)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*a = (struct answer){r->kind == RANGE_RESERVED ? f->piece.flags : 0, sizeof(uint64_t)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*a = (struct answer){f->access, sizeof(int)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*a = (struct answer){r->kind == RANGE_POOL ? pool_of(address) : r->kind == RANGE_IMPORTED ? r->owner : 0, sizeof(void *)};
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*a = (struct answer){r->serial, sizeof(unsigned long long)};
		return CUDA_SUCCESS;
	default:
		return (unsigned)what == CU_POINTER_ATTRIBUTE_P2P_TOKENS ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	}
}

/* Returns false for addresses without an allocation, including reserved ones without a mapping. */
static bool find(uint64_t address, struct found *f)
{
	if (!range_find(address, &f->range))
		return false;
	f->piece = f->range;
	f->access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
	return f->range.kind != RANGE_RESERVED || vmm_mapping(address, &f->piece, &f->access);
}

CUresult pg_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct found found;
	struct answer a;
	uint64_t device;
	if (!data || !find(ptr, &found))
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && found.range.kind == RANGE_REGISTERED && !found.range.owner &&
		hostmap_device(&found.range, &device) == CUDA_SUCCESS)
		found.range.owner = device; /* the first query creates the device address, as cuMemHostGetDevicePointer does */
	CUresult r = answer_for(&found, attribute, ptr, &a);
	if (r == CUDA_SUCCESS)
		memcpy(data, &a.bits, a.bytes); /* little-endian: the low bytes come first */
	return r;
}

/* Accepts any address: for unknown addresses the values are null. */
CUresult pg_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	struct found found, any = {.range = {.kind = RANGE_PINNED}};
	if (count == 0 || !attributes || !data || count > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	bool known = find(ptr, &found);
	for (unsigned int i = 0; i < count; i++) {
		struct answer a = {0};
		CUresult r = answer_for(known ? &found : &any, attributes[i], ptr, &a);
		if (!data[i] || (r != CUDA_SUCCESS && a.bytes == 0))
			return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
		if (!known || r != CUDA_SUCCESS)
			a.bits = 0;
		if (!known && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			a.bits = (uint64_t)CU_DEVICE_INVALID;
		memcpy(data[i], &a.bits, a.bytes);
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	unsigned int sync;
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&sync, value, sizeof sync);
	return range_set_sync(ptr, sync != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
