/*
 * IPC handles: memory and events that processes of a domain pass to each other as bytes.
 *
 * The host shares an allocation with other processes in place. An event needs no sharing between processes: recording
 * an interprocess event returns only after the record has completed, so any process that is notified of the record
 * finds it complete.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "api/event.h"
#include "core/range.h"
#include "core/zz_impl.h"
#include "object/context.h"
#include "object/event.h"
#include "work/ipc.h"

#define MEMORY_MAGIC UINT64_C(0x314d504953474550) /* "PEGSIPM1" */
#define EVENT_MAGIC UINT64_C(0x3145504953474550)  /* "PEGSIPE1" */

/* The contents of a handle. */
struct ticket {
	uint64_t magic, process;
	struct mem_lend_result memory;
};
_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle) && sizeof(struct ticket) <= sizeof(CUipcEventHandle), "a ticket fits a handle");

/* Returns a number unique to this process, so that it recognises its own handles. */
static uint64_t own_number(void)
{
	static _Atomic uint64_t number;
	uint64_t n = atomic_load(&number), fresh;
	if (n)
		return n;
	if (getrandom(&fresh, sizeof fresh, 0) != (ssize_t)sizeof fresh || !fresh)
		fresh = (uint64_t)getpid();
	return atomic_compare_exchange_strong(&number, &n, fresh) ? fresh : n;
}

static void write_ticket(void *handle, uint64_t magic, const struct mem_lend_result *memory)
{
	struct ticket t = {.magic = magic, .process = own_number()};
	if (memory)
		t.memory = *memory;
	memset(handle, 0, sizeof(CUipcMemHandle));
	memcpy(handle, &t, sizeof t);
}

/* Unused bytes of a handle are 0. */
static CUresult read_ticket(struct ticket *t, const void *handle, uint64_t magic)
{
	static const uint8_t zeros[sizeof(CUipcMemHandle) - sizeof *t];
	memcpy(t, handle, sizeof *t);
	if (t->magic != magic || t->memory.reserved || memcmp((const uint8_t *)handle + sizeof *t, zeros, sizeof zeros) != 0)
		return magic == EVENT_MAGIC ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_INVALID_VALUE;
	return t->process == own_number() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS; /* for other processes only */
}

CUresult pg_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
{
	struct context *c;
	struct range range;
	struct mem_lend_result answer;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle || !range_find(dptr, &range) || range.kind != RANGE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	r = ipc_lend(range.base, &answer);
	if (r == CUDA_SUCCESS)
		write_ticket(handle, MEMORY_MAGIC, &answer);
	return r;
}

/* Opened handles: a context that opens a handle again gets the same address, and has to close it as often. */
static struct opened {
	uint64_t serial; /* of the context */
	struct mem_lend_result memory;
	uint64_t address;
	uint32_t times;
} *opened;
static size_t opens, openRoom;
static pthread_mutex_t openLock = PTHREAD_MUTEX_INITIALIZER;

/* Finds an opened handle; requires the lock. */
static struct opened *find_open(const struct context *c, const struct mem_lend_result *memory)
{
	for (size_t i = 0; i < opens; i++)
		if (opened[i].serial == c->serial && memcmp(&opened[i].memory, memory, sizeof *memory) == 0)
			return &opened[i];
	return NULL;
}

static struct opened *find_open_at(uint64_t address)
{
	for (size_t i = 0; i < opens; i++)
		if (opened[i].address == address)
			return &opened[i];
	return NULL;
}

/* Records an opened address. An earlier entry for it is stale: its context was destroyed. */
static bool note_open(const struct context *c, const struct mem_lend_result *memory, uint64_t address)
{
	struct opened *o = find_open_at(address);
	if (!o && opens == openRoom) {
		size_t room = openRoom ? 2 * openRoom : 16;
		if (!(o = realloc(opened, room * sizeof *o)))
			return false;
		opened = o;
		openRoom = room;
		o = NULL;
	}
	if (!o)
		o = &opened[opens++];
	*o = (struct opened){.serial = c->serial, .memory = *memory, .address = address, .times = 1};
	return true;
}

static CUresult open_memory(struct context *c, const struct mem_lend_result *memory, uint64_t *address)
{
	uint64_t fresh;
	struct opened *o = find_open(c, memory);
	if (o && o->times < UINT32_MAX) {
		o->times++;
		*address = o->address;
		return CUDA_SUCCESS;
	}
	CUresult r = ipc_borrow(c, memory, &fresh);
	if (r != CUDA_SUCCESS)
		return r;
	struct range range = {.base = fresh, .size = memory->bytes, .kind = RANGE_BORROWED, .context = c->object.id};
	if (!range_add_fresh(&range)) {
		ipc_give_back(c, fresh);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!note_open(c, memory, fresh)) {
		range_remove(fresh, RANGE_BORROWED, &range);
		ipc_give_back(c, fresh);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address = fresh;
	return CUDA_SUCCESS;
}

CUresult pg_cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	struct context *c;
	struct ticket t;
	uint64_t address;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	r = read_ticket(&t, &handle, MEMORY_MAGIC);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&openLock);
	r = open_memory(c, &t.memory, &address);
	pthread_mutex_unlock(&openLock);
	if (r == CUDA_SUCCESS)
		*out = address;
	return r;
}

/* Reports whether this close is the last one for the memory opened at an address. */
static bool last_close(uint64_t address)
{
	pthread_mutex_lock(&openLock);
	struct opened *o = find_open_at(address);
	struct range range;
	const struct context *owner = range_find(address, &range) ? handle_find(&contexts, range.context) : NULL;
	bool last = true;
	if (o && owner && owner->serial == o->serial)
		last = --o->times == 0;
	if (o && last)
		*o = opened[--opens];
	pthread_mutex_unlock(&openLock);
	return last;
}

CUresult pg_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct context *c;
	struct range range;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!range_find(dptr, &range) || range.base != dptr || range.kind != RANGE_BORROWED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!last_close(dptr))
		return CUDA_SUCCESS;
	if (!range_remove(dptr, RANGE_BORROWED, &range))
		return CUDA_ERROR_INVALID_VALUE;
	struct context *owner = handle_find(&contexts, range.context);
	return owner ? ipc_give_back(owner, dptr) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* --- events --- */

CUresult pg_cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	struct event *e = handle_find(&events, (uint64_t)(uintptr_t)event);
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!e || !(e->flags & CU_EVENT_INTERPROCESS))
		return CUDA_ERROR_INVALID_HANDLE;
	atomic_store(&e->shared, true);
	CUresult r = event_settle(e);
	if (r == CUDA_SUCCESS)
		write_ticket(handle, EVENT_MAGIC, NULL);
	return r;
}

CUresult pg_cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
	struct context *c;
	struct event *e;
	struct ticket t;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	r = out ? read_ticket(&t, &handle, EVENT_MAGIC) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = event_create(c, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS, &e);
	if (r != CUDA_SUCCESS)
		return r;
	atomic_store(&e->shared, true);
	*out = HANDLE_OF(CUevent, e);
	return CUDA_SUCCESS;
}
