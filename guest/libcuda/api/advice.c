/*
 * Managed memory lies where host and kernels both reach it, so nothing moves and advice has no effect. It is still
 * checked, and stored per page range, since a program can query its advice. Devices report no concurrent managed access
 * (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS); a driver then rejects advice that names such a device. Here that
 * advice is accepted: a hint does no harm, and programs work that do not check the attribute first.
 */
#include "core/range.h"
#include "core/zz_impl.h"
#include "graph/capture.h"
#include "object/context.h"
#include "work/advice.h"

/* --- setting advice --- */

static void read_mostly(struct advice *a, CUmemLocation unused)
{
	(void)unused;
	a->readMostly = true;
}

static void read_and_write(struct advice *a, CUmemLocation unused)
{
	(void)unused;
	a->readMostly = false;
}

static void prefer(struct advice *a, CUmemLocation where) { a->preferred = where; }

static uint32_t bit_of(CUmemLocation where) { return where.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << where.id : HOST_BIT; }
static void accessed(struct advice *a, CUmemLocation where) { a->accessedBy |= bit_of(where); }
static void not_accessed(struct advice *a, CUmemLocation where) { a->accessedBy &= ~bit_of(where); }
static void prefetched(struct advice *a, CUmemLocation where) { a->prefetched = where; }

/* Checks that a location exists; nodes: permits NUMA nodes of the host, too. */
static CUresult check_location(CUmemLocation *where, bool nodes)
{
	switch ((unsigned)where->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_exists(where->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		where->id = 0; /* ignored */
		return nodes || where->type == CU_MEM_LOCATION_TYPE_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return nodes && where->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Returns the location of a device number, which may be CU_DEVICE_CPU. */
static CUmemLocation location_of(CUdevice device)
{
	return (CUmemLocation){.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

CUresult pg_cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation where)
{
	struct context *c;
	struct advice_part part;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS || (r = advice_part(address, bytes, &part)) != CUDA_SUCCESS)
		return r;
	switch ((unsigned)advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
		return advice_change(&part, read_mostly, where);
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		return advice_change(&part, read_and_write, where);
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		r = check_location(&where, true);
		return r == CUDA_SUCCESS ? advice_change(&part, prefer, where) : r;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		return advice_change(&part, prefer, (CUmemLocation){0});
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		r = check_location(&where, false);
		return r == CUDA_SUCCESS ? advice_change(&part, advice == CU_MEM_ADVISE_SET_ACCESSED_BY ? accessed : not_accessed, where) : r;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult pg_cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
	return pg_cuMemAdvise_v2(address, bytes, advice, location_of(device));
}

CUresult pg_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation where, unsigned int flags, CUstream stream)
{
	struct stream_ref ref;
	struct advice_part part;
	CUresult r = stream_resolve(stream, &ref);
	if (r != CUDA_SUCCESS || (r = advice_part(address, bytes, &part)) != CUDA_SUCCESS)
		return r;
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = check_location(&where, true);
	return r == CUDA_SUCCESS ? advice_change(&part, prefetched, where) : r;
}

CUresult pg_cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
	return pg_cuMemPrefetchAsync_v2(address, bytes, location_of(device), 0, stream);
}

/*
 * Without effect: any stream may use managed memory at any time here, and programs must observe their own attachments.
 */
CUresult pg_cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags)
{
	struct stream_ref ref;
	struct range range;
	CUresult r = stream_resolve(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	if (!range_find(address, &range) || range.kind != RANGE_MANAGED || range.base != address || (bytes != 0 && bytes != range.size))
		return CUDA_ERROR_INVALID_VALUE;
	bool single = flags == CU_MEM_ATTACH_SINGLE && stream != NULL;
	return single || flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- queries --- */

static int number_of(CUmemLocation where)
{
	if (where.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return where.id;
	return (unsigned)where.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

static void list_devices(uint32_t bits, int *devices, size_t room)
{
	size_t n = 0;
	if (bits & HOST_BIT)
		devices[n++] = CU_DEVICE_CPU;
	for (int i = 0; i < DEVICES_MOST && n < room; i++)
		if (bits & 1u << i)
			devices[n++] = i;
	while (n < room)
		devices[n++] = CU_DEVICE_INVALID;
}

static CUresult answer(const struct advice *a, CUmem_range_attribute attribute, int *data, size_t bytes)
{
	bool many = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
	if (!data || bytes == 0 || (many ? bytes % sizeof *data != 0 : bytes != sizeof *data))
		return CUDA_ERROR_INVALID_VALUE;
	switch ((unsigned)attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*data = a->readMostly;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		*data = number_of(a->preferred);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		list_devices(a->accessedBy, data, bytes / sizeof *data);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*data = number_of(a->prefetched);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		*data = (int)a->preferred.type;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		*data = a->preferred.id;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		*data = (int)a->prefetched.type;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		*data = a->prefetched.id;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult pg_cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes, size_t count,
	CUdeviceptr address, size_t bytes)
{
	struct advice_part part;
	if (!data || !sizes || !attributes || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = advice_part(address, bytes, &part);
	if (r != CUDA_SUCCESS)
		return r;
	struct advice a = advice_common(&part);
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = answer(&a, attributes[i], data[i], sizes[i]);
	return r;
}

CUresult pg_cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes)
{
	return pg_cuMemRangeGetAttributes(&data, &size, &attribute, 1, address, bytes);
}
