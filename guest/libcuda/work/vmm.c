#define _GNU_SOURCE
#include "work/vmm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/device.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "object/object.h"
#include "work/pool.h"

#define GRANULE ((uint64_t)2 << 20)

/* Physical memory. It is found by its handle while the program holds a reference, and lives on while it is mapped. */
struct physical {
	struct object object;
	uint32_t held, mapped; /* number of references; of mappings */
	uint64_t bytes;
	CUmemAllocationProp prop;
};

struct mapping {
	uint64_t at, bytes;
	struct physical *of;
	uint32_t access; /* CUmemAccess_flags */
	struct mapping *next;
};

struct reservation {
	uint64_t at, bytes; /* as requested: the host rounds up to granules */
	struct mapping *first; /* in order */
	struct reservation *next;
};

static struct table physicals = HANDLE_TABLE(HANDLE_MEMORY, struct physical, 60000);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists and the counts */
static struct reservation *reservations;

static bool whole(uint64_t n) { return n % GRANULE == 0; }

static CUresult tell(uint16_t op, const void *args, uint32_t bytes)
{
	struct packet p = {.op = op, .fixed = args, .fixedBytes = bytes};
	return ring_call(&p, NULL, 0);
}

static struct reservation *reservation_of(uint64_t address)
{
	struct reservation *r = reservations;
	while (r && address - r->at >= r->bytes)
		r = r->next;
	return r;
}

/* Returns the first mapping that ends beyond an address. */
static struct mapping **mapping_at(struct reservation *r, uint64_t address)
{
	struct mapping **m = &r->first;
	while (*m && (*m)->at + (*m)->bytes <= address)
		m = &(*m)->next;
	return m;
}

/* Reports whether [at, at + bytes) consists of whole mappings; *first is set to the first of them. */
static bool made_of(uint64_t at, uint64_t bytes, struct mapping ***first)
{
	struct reservation *r = reservation_of(at);
	if (!r || bytes == 0 || bytes > r->at + r->bytes - at)
		return false;
	*first = mapping_at(r, at);
	uint64_t end = at + bytes;
	for (struct mapping *m = **first; at < end; at += m->bytes, m = m->next)
		if (!m || m->at != at || m->bytes > end - at)
			return false;
	return true;
}

bool vmm_usable(uint64_t address, uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	struct reservation *r = reservation_of(address);
	if (!r || bytes > r->at + r->bytes - address)
		r = NULL;
	uint64_t end = address + bytes;
	for (struct mapping *m = r ? *mapping_at(r, address) : NULL; m && address < end; m = m->next) {
		if (m->at > address || m->access == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			break;
		address = m->at + m->bytes;
	}
	pthread_mutex_unlock(&lock);
	return r && address >= end;
}

bool vmm_mapping(uint64_t address, struct range *range, uint32_t *access)
{
	pthread_mutex_lock(&lock);
	struct reservation *r = reservation_of(address);
	struct mapping *m = r ? *mapping_at(r, address) : NULL;
	bool inside = m && m->at <= address;
	if (inside) {
		range->base = m->at;
		range->size = m->bytes;
		range->flags = (uint32_t)m->of->prop.requestedHandleTypes;
		if (access)
			*access = m->access;
	}
	pthread_mutex_unlock(&lock);
	return inside;
}

/* --- addresses --- */

CUresult pg_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
	uint64_t granules;
	if (!out || bytes == 0 || bytes % (size_t)sysconf(_SC_PAGESIZE) || (alignment & (alignment - 1)) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_add_overflow(bytes, GRANULE - 1, &granules))
		return CUDA_ERROR_OUT_OF_MEMORY;
	granules &= ~(GRANULE - 1);
	struct reservation *r = malloc(sizeof *r);
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct range_reserve_args args = {.bytes = granules, .alignment = alignment, .wish = whole(wish) ? wish : 0};
	struct range_reserve_result answer;
	struct packet p = {.op = OP_RANGE_RESERVE, .fixed = &args, .fixedBytes = sizeof args};
	CUresult result = ring_call(&p, &answer, sizeof answer);
	if (result != CUDA_SUCCESS) {
		free(r);
		return result;
	}
	*r = (struct reservation){.at = answer.address, .bytes = bytes};
	struct range range = {.base = answer.address, .size = bytes, .kind = RANGE_RESERVED};
	pthread_mutex_lock(&lock);
	bool added = range_add_fresh(&range);
	if (added) {
		r->next = reservations;
		reservations = r;
	}
	pthread_mutex_unlock(&lock);
	if (!added) {
		free(r);
		struct range_free_args back = {.address = answer.address};
		tell(OP_RANGE_FREE, &back, sizeof back);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = answer.address;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range gone;
	pthread_mutex_lock(&lock);
	struct reservation **r = &reservations;
	while (*r && (*r)->at != at)
		r = &(*r)->next;
	struct reservation *found = *r;
	if (found && found->bytes == bytes && !found->first) {
		/* The host's release comes last: the host may give the addresses to another thread at once. */
		*r = found->next;
		range_remove(at, RANGE_RESERVED, &gone);
		free(found);
		struct range_free_args args = {.address = at};
		result = tell(OP_RANGE_FREE, &args, sizeof args);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* --- memory --- */

static CUresult check_props(const CUmemAllocationProp *p)
{
	if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return p && p->type == CU_MEM_ALLOCATION_TYPE_MANAGED ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!device_exists(p->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!device_attribute(p->location.id, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) || p->allocFlags.gpuDirectRDMACapable ||
		p->allocFlags.usage)
		return CUDA_ERROR_NOT_SUPPORTED;
	switch ((unsigned)p->requestedHandleTypes) {
	case CU_MEM_HANDLE_TYPE_NONE:
	case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: /* requested by programs that never export: an unsupported export fails when it is called */
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult pg_cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	if (!out || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = check_props(prop);
	if (r == CUDA_SUCCESS)
		*out = GRANULE;
	return r;
}

static struct physical *new_physical(uint64_t bytes, const CUmemAllocationProp *prop)
{
	struct physical *m = handle_new(&physicals);
	if (m) {
		m->bytes = bytes;
		m->prop = *prop;
		m->held = 1;
		m->mapped = 0;
	}
	return m;
}

CUresult pg_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult r = check_props(prop);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || bytes == 0 || !whole(bytes) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct physical *m = new_physical(bytes, prop);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct memory_create_args args = {
		.memory = m->object.id, .bytes = bytes, .device = (uint32_t)prop->location.id,
		.shared = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE,
	};
	r = tell(OP_MEMORY_CREATE, &args, sizeof args);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && pools_trim())
		r = tell(OP_MEMORY_CREATE, &args, sizeof args);
	if (r != CUDA_SUCCESS) {
		handle_free(&physicals, m);
		return r;
	}
	handle_publish(m);
	*out = m->object.id;
	return CUDA_SUCCESS;
}

static struct physical *find(CUmemGenericAllocationHandle handle) { return handle_find(&physicals, handle); }

/* Releases memory without handles and mappings. Requires the lock. */
static CUresult settle(struct physical *m)
{
	if (m->held || m->mapped)
		return CUDA_SUCCESS;
	struct memory_release_args args = {.memory = m->object.id};
	CUresult r = tell(OP_MEMORY_RELEASE, &args, sizeof args);
	handle_free(&physicals, m);
	return r;
}

CUresult pg_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&lock);
	struct physical *m = find(handle);
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	if (m) {
		if (--m->held == 0)
			handle_retire(m);
		r = settle(m);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult pg_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	uint64_t at = (uint64_t)(uintptr_t)address;
	pthread_mutex_lock(&lock);
	struct reservation *r = reservation_of(at);
	struct mapping *m = r ? *mapping_at(r, at) : NULL;
	if (out && m && m->at <= at) {
		if (m->of->held++ == 0)
			handle_publish(m->of);
		*out = m->of->object.id;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult pg_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&lock);
	struct physical *m = find(handle);
	if (out && m)
		*out = m->prop;
	pthread_mutex_unlock(&lock);
	return out && m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- mappings --- */

static CUresult map(uint64_t at, uint64_t bytes, uint64_t offset, struct physical *of, struct mapping *fresh)
{
	struct reservation *r = reservation_of(at);
	if (!r || bytes > r->at + r->bytes - at || !of || offset > of->bytes || bytes > of->bytes - offset)
		return CUDA_ERROR_INVALID_VALUE;
	struct mapping **m = mapping_at(r, at);
	if (*m && (*m)->at < at + bytes)
		return CUDA_ERROR_INVALID_VALUE;
	struct memory_map_args args = {.address = at, .bytes = bytes, .offset = offset, .memory = of->object.id};
	CUresult result = tell(OP_MEMORY_MAP, &args, sizeof args);
	if (result != CUDA_SUCCESS)
		return result;
	*fresh = (struct mapping){.at = at, .bytes = bytes, .of = of, .access = CU_MEM_ACCESS_FLAGS_PROT_NONE, .next = *m};
	*m = fresh;
	of->mapped++;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	if (bytes == 0 || !whole(at) || !whole(bytes) || !whole(offset) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct mapping *fresh = malloc(sizeof *fresh);
	if (!fresh)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	CUresult r = map(at, bytes, offset, find(handle), fresh);
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS)
		free(fresh);
	return r;
}

static CUresult unmap(uint64_t at, uint64_t bytes)
{
	struct mapping **first;
	if (!made_of(at, bytes, &first))
		return CUDA_ERROR_INVALID_VALUE;
	struct memory_unmap_args args = {.address = at, .bytes = bytes};
	CUresult r = tell(OP_MEMORY_UNMAP, &args, sizeof args);
	for (uint64_t end = at + bytes; r == CUDA_SUCCESS && at < end;) {
		struct mapping *m = *first;
		*first = m->next;
		at += m->bytes;
		m->of->mapped--;
		r = settle(m->of);
		free(m);
	}
	return r;
}

/*
 * Waits for queued work, which may still use memory that ends or loses access: the manual describes cuMemUnmap and
 * cuMemSetAccess alike, as synchronous for most uses and as calls that may return errors of earlier work. A driver may
 * let that work fail instead. Returns pending errors of the work.
 */
static CUresult await_users(void) { return contexts_drain(); }

/* Not that a context has failed, which every call for that context returns: mappings belong to no context. */
static CUresult with_error_of_work(CUresult r, CUresult waited)
{
	struct context *c;
	return r == CUDA_SUCCESS && context_current(&c) == CUDA_SUCCESS ? waited : r;
}

CUresult pg_cuMemUnmap(CUdeviceptr at, size_t bytes)
{
	CUresult waited = await_users();
	pthread_mutex_lock(&lock);
	CUresult r = unmap(at, bytes);
	pthread_mutex_unlock(&lock);
	return with_error_of_work(r, waited);
}

static CUresult check_access(const CUmemAccessDesc *a)
{
	if (a->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!device_exists(a->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	switch ((unsigned)a->flags) {
	case CU_MEM_ACCESS_FLAGS_PROT_NONE:
	case CU_MEM_ACCESS_FLAGS_PROT_READ:
	case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult set_access(uint64_t at, uint64_t bytes, const CUmemAccessDesc *a)
{
	struct mapping **first;
	if (!made_of(at, bytes, &first))
		return CUDA_ERROR_INVALID_VALUE;
	for (const struct mapping *m = *first; m && m->at < at + bytes; m = m->next)
		if (m->of->prop.location.id != a->location.id) /* devices cannot access each other's memory */
			return a->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	struct memory_access_args args = {.address = at, .bytes = bytes, .access = (uint32_t)a->flags};
	CUresult r = tell(OP_MEMORY_ACCESS, &args, sizeof args);
	for (struct mapping *m = *first; r == CUDA_SUCCESS && m && m->at < at + bytes; m = m->next)
		m->access = (uint32_t)a->flags;
	return r;
}

/* Reports whether a mapping in the range would lose access that it has. */
static bool takes_away(uint64_t at, uint64_t bytes, const CUmemAccessDesc *a)
{
	struct mapping **first;
	if (!made_of(at, bytes, &first))
		return false;
	for (const struct mapping *m = *first; m && m->at < at + bytes; m = m->next)
		if (m->of->prop.location.id == a->location.id && (m->access & ~(uint32_t)a->flags))
			return true;
	return false;
}

CUresult pg_cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	CUresult r = !access || count == 0 || count > DEVICES_MOST ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, waited = CUDA_SUCCESS;
	bool less = false;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = check_access(&access[i]);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		less |= takes_away(at, bytes, &access[i]);
	pthread_mutex_unlock(&lock);
	if (less)
		waited = await_users();
	pthread_mutex_lock(&lock);
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = set_access(at, bytes, &access[i]);
	pthread_mutex_unlock(&lock);
	return with_error_of_work(r, waited);
}

CUresult pg_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *where, CUdeviceptr at)
{
	if (!flags || !where || where->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_exists(where->id))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct reservation *r = reservation_of(at);
	const struct mapping *m = r ? *mapping_at(r, at) : NULL;
	if (m && m->at <= at) {
		*flags = m->of->prop.location.id == where->id ? m->access : CU_MEM_ACCESS_FLAGS_PROT_NONE;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* --- memory of other processes: a file descriptor that contains its name in the domain --- */

#define TICKET_MAGIC UINT64_C(0x314d454d53474550) /* "PEGSMEM1" */

struct ticket {
	uint64_t magic, secret;
	uint32_t segment, reserved;
};

/* Creates a file with count bytes, sealed against changes, for passing to other processes. */
static CUresult sealed_file(const void *bytes, size_t count, int *out)
{
	int fd = (int)syscall(SYS_memfd_create, "pegasus-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (write(fd, bytes, count) != (ssize_t)count || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
		close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*out = fd;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	if (!out || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	struct memory_export_args args = {.memory = handle};
	struct memory_export_result answer;
	struct packet p = {.op = OP_MEMORY_EXPORT, .fixed = &args, .fixedBytes = sizeof args};
	pthread_mutex_lock(&lock);
	struct physical *m = find(handle);
	CUresult r = m && m->prop.requestedHandleTypes == type ? ring_call(&p, &answer, sizeof answer) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS)
		return r;
	const struct ticket t = {.magic = TICKET_MAGIC, .secret = answer.secret, .segment = answer.segment};
	return sealed_file(&t, sizeof t, out);
}

CUresult pg_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *osHandle, CUmemAllocationHandleType type)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	struct ticket t;
	if (pread((int)(intptr_t)osHandle, &t, sizeof t, 0) != (ssize_t)sizeof t || t.magic != TICKET_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = type, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	struct physical *m = new_physical(0, &prop);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct memory_import_args args = {.memory = m->object.id, .secret = t.secret, .segment = t.segment};
	struct memory_import_result answer;
	struct packet p = {.op = OP_MEMORY_IMPORT, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_call(&p, &answer, sizeof answer);
	if (r != CUDA_SUCCESS) {
		handle_free(&physicals, m);
		return r;
	}
	m->bytes = answer.bytes;
	handle_publish(m);
	*out = m->object.id;
	return CUDA_SUCCESS;
}
