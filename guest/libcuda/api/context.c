/* Creation and destruction of contexts, the stack of each thread, and primary contexts. */
#include "api/context.h"

#include <stdlib.h>
#include <string.h>

#include "api/coredump.h"
#include "api/export.h"
#include "api/stream.h"
#include "core/device.h"
#include "core/lifecycle.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/exec.h"
#include "graph/version.h"
#include "image/module.h"
#include "object/context.h"
#include "work/callback.h"
#include "work/memory.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below; table locks nest inside it */
static uint8_t wireUsed[SEGMENT_CONTEXTS];
static uint64_t contextSerials;
static struct primary {
	struct context *context; /* stays allocated once used, since programs keep using the handle after a reset */
	bool active;
	uint32_t references, flags;
} primaries[DEVICES_MOST];

#define FLAGS_KNOWN 0xffu

/* --- the stack --- */

static CUresult push(uint64_t handle)
{
	if (UNLIKELY(thread.depth == thread.capacity)) {
		if (!thread.stack) {
			thread.stack = thread.inlineStack;
			thread.capacity = sizeof thread.inlineStack / sizeof *thread.inlineStack;
		} else {
			bool inlined = thread.stack == thread.inlineStack;
			uint64_t *more = realloc(inlined ? NULL : thread.stack, 2 * thread.capacity * sizeof *more);
			if (!more)
				return CUDA_ERROR_OUT_OF_MEMORY;
			if (inlined)
				memcpy(more, thread.inlineStack, sizeof thread.inlineStack);
			thread.stack = more;
			thread.capacity *= 2;
			thread_register();
		}
	}
	thread.stack[thread.depth++] = handle;
	return CUDA_SUCCESS;
}

struct context *context_kept(uint64_t handle)
{
	struct context *kept = handle_find(&contexts, handle);
	if (LIKELY(kept))
		return kept;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < DEVICES_MOST && !kept; i++)
		if (primaries[i].context && primaries[i].context->object.id == handle)
			kept = primaries[i].context;
	pthread_mutex_unlock(&lock);
	return kept;
}

CUresult pg_cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (UNLIKELY(!context_kept((uint64_t)(uintptr_t)ctx)))
		return CUDA_ERROR_INVALID_CONTEXT;
	return push((uint64_t)(uintptr_t)ctx);
}

CUresult pg_cuCtxPopCurrent_v2(CUcontext *pctx)
{
	if (UNLIKELY(thread.depth == 0))
		return CUDA_ERROR_INVALID_CONTEXT;
	uint64_t top = thread.stack[--thread.depth];
	if (pctx)
		*pctx = (CUcontext)(uintptr_t)top;
	return CUDA_SUCCESS;
}

CUresult pg_cuCtxSetCurrent(CUcontext ctx)
{
	if (!ctx) {
		if (thread.depth)
			thread.depth--;
		return CUDA_SUCCESS;
	}
	if (UNLIKELY(!context_kept((uint64_t)(uintptr_t)ctx)))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (thread.depth == 0)
		return push((uint64_t)(uintptr_t)ctx);
	thread.stack[thread.depth - 1] = (uint64_t)(uintptr_t)ctx;
	return CUDA_SUCCESS;
}

CUresult pg_cuCtxGetCurrent(CUcontext *pctx)
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = (CUcontext)(uintptr_t)context_top();
	return CUDA_SUCCESS;
}

/* --- creation and destruction --- */

static uint32_t take_wire_id(void)
{
	for (uint32_t i = 1; i < SEGMENT_CONTEXTS; i++)
		if (!wireUsed[i]) {
			wireUsed[i] = 1;
			return i;
		}
	return 0;
}

/* Returns the limit's value in a new context. */
static uint64_t default_limit(CUlimit limit)
{
	switch ((unsigned)limit) {
	case CU_LIMIT_STACK_SIZE:
		return 1024;
	case CU_LIMIT_PRINTF_FIFO_SIZE:
		return 1 << 20;
	case CU_LIMIT_MALLOC_HEAP_SIZE:
		return 8 << 20;
	case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
		return 2;
	case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
		return 2048;
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
		return 64;
	default:
		return 0;
	}
}

/* Creates a context; requires the lock. A primary context reuses its table entry, if it has one. */
static CUresult create(int device, uint32_t flags, bool primary, struct context **created)
{
	uint32_t wire = take_wire_id();
	if (wire == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct context *c = primary ? primaries[device].context : NULL;
	if (!c)
		c = handle_new(&contexts);
	if (!c) {
		wireUsed[wire] = 0;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	struct context_create_args args = {.device = device, .flags = flags};
	struct packet p = {.op = OP_CONTEXT_CREATE, .context = wire, .anyway = true, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_call(&p, NULL, 0);
	if (r != CUDA_SUCCESS) {
		if (!primary || c != primaries[device].context)
			handle_free(&contexts, c);
		wireUsed[wire] = 0;
		return r;
	}
	c->wire = wire;
	c->device = device;
	c->primary = primary;
	c->serial = ++contextSerials;
	c->flags = flags;
	c->attached = 0;
	c->cacheConfig = CU_FUNC_CACHE_PREFER_NONE;
	c->marker = (struct completion_marker){.at = NO_MARKER};
	c->timeline = c->joint = c->jointEvent = 0;
	c->waits = false;
	c->attributes = (struct stream_attributes){0};
	c->sharedConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	for (size_t i = 0; i < sizeof c->limits / sizeof *c->limits; i++)
		c->limits[i] = default_limit((CUlimit)i);
	coredump_context_begins(c->serial, flags);
	handle_publish(c);
	*created = c;
	return CUDA_SUCCESS;
}

/*
 * Destroys a context; requires the lock. Its objects are removed first, so that no lookup finds them half destroyed.
 * Streams and events are removed only after OP_CONTEXT_DESTROY is queued: new ones in their slots share an event's
 * word, so the host must process the destruction before their packets.
 */
static CUresult destroy(struct context *c)
{
	if (!handle_retire(c))
		return CUDA_ERROR_INVALID_CONTEXT;
	uint64_t handle = c->object.id;
	uint32_t wire = c->wire;
	module_context_gone(handle);
	memory_context_ends(handle);
	struct packet p = {.op = OP_CONTEXT_DESTROY, .context = wire, .anyway = true};
	struct call call = {.patient = context_sleeps(c)};
	CUresult r = call_start(&call, &p);
	stream_context_gone(handle);
	if (r == CUDA_SUCCESS)
		r = call_finish(&call, NULL, 0, NULL);
	memory_context_ended(handle);
	execs_context_ended(handle);
	coredump_context_gone(c->serial);
	export_context_ended((CUcontext)(uintptr_t)handle);
	if (!c->primary)
		handle_free(&contexts, c);
	wireUsed[wire] = 0;
	return r;
}

/*
 * As destroy, by handle. It first waits for callbacks and prints pending output; the work may take long, so this part
 * runs without the lock. Another thread may destroy the context meanwhile, and a primary context may already exist
 * again under the same handle, hence the serial.
 */
static CUresult end(uint64_t handle, uint64_t serial)
{
	struct context *c = handle_find(&contexts, handle);
	if (c && c->serial == serial) {
		callback_await(serial, c->wire);
		export_context_ends((CUcontext)(uintptr_t)handle);
		text_show_last(c->wire);
	}
	pthread_mutex_lock(&lock);
	c = handle_find(&contexts, handle);
	CUresult r = c && c->serial == serial ? destroy(c) : CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_unlock(&lock);
	versions_synchronised();
	callback_context_gone(serial);
	return r;
}

static bool valid_flags(uint32_t flags)
{
	uint32_t schedule = flags & CU_CTX_SCHED_MASK;
	return (flags & ~FLAGS_KNOWN) == 0 && schedule != 3 && schedule <= CU_CTX_SCHED_BLOCKING_SYNC;
}

CUresult pg_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	CUresult r = CUDA_SUCCESS;
	if (!pctx || !valid_flags(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct context *c;
	pthread_mutex_lock(&lock);
	r = create(dev, flags, false, &c);
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS)
		return r;
	r = push(c->object.id);
	*pctx = HANDLE_OF(CUcontext, c);
	return r;
}

CUresult pg_cuCtxDestroy_v2(CUcontext ctx)
{
	struct context *c = handle_find(&contexts, (uint64_t)(uintptr_t)ctx);
	if (!c || c->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult r = end((uint64_t)(uintptr_t)ctx, c->serial);
	if (context_top() == (uint64_t)(uintptr_t)ctx)
		thread.depth--;
	return r;
}

/* --- primary contexts --- */

/* Creates the device's primary context if it does not exist; requires the lock. */
static CUresult make_primary(CUdevice dev)
{
	struct primary *p = &primaries[dev];
	if (p->active)
		return CUDA_SUCCESS;
	if (p->context)
		destroy(p->context); /* unless it is already being destroyed */
	CUresult r = create(dev, p->flags, true, &p->context);
	p->active = r == CUDA_SUCCESS;
	return r;
}

/* Retains the primary context references times, which may be 0, and returns its handle. */
static CUresult take_hold(CUdevice dev, CUcontext *pctx, uint32_t references)
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	CUresult r = make_primary(dev);
	if (r == CUDA_SUCCESS) {
		primaries[dev].references += references;
		*pctx = HANDLE_OF(CUcontext, primaries[dev].context);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult context_primary(CUdevice dev, CUcontext *pctx) { return take_hold(dev, pctx, 0); }

CUresult pg_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) { return take_hold(dev, pctx, 1); }

/*
 * Requires the lock. The next retain creates a new primary context with the same handle; the caller destroys the old
 * one. Unlike other contexts a primary one stays on the stacks that contain it: as a destroyed context until it exists
 * again.
 */
static uint64_t take_primary(struct primary *p, uint64_t *serial)
{
	if (!p->active)
		return 0;
	p->active = false;
	*serial = p->context->serial;
	return p->context->object.id;
}

/* A thread that retains the context meanwhile first completes its destruction. */
static CUresult end_primary(uint64_t handle, uint64_t serial)
{
	CUresult r = handle ? end(handle, serial) : CUDA_SUCCESS;
	return r == CUDA_ERROR_INVALID_CONTEXT ? CUDA_SUCCESS : r;
}

CUresult pg_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUresult r = CUDA_SUCCESS;
	uint64_t last = 0, serial = 0;
	if (!device_exists(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	struct primary *p = &primaries[dev];
	if (p->references == 0)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (--p->references == 0)
		last = take_primary(p, &serial);
	pthread_mutex_unlock(&lock);
	return r == CUDA_SUCCESS ? end_primary(last, serial) : r;
}

/* The context's retain count stays: users still have to release it, and the next retain creates it anew. */
CUresult pg_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	if (!device_exists(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	struct primary *p = &primaries[dev];
	uint64_t serial = 0, last = take_primary(p, &serial);
	p->flags = 0;
	pthread_mutex_unlock(&lock);
	return end_primary(last, serial);
}

CUresult pg_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	if (!device_exists(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!valid_flags(flags))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	primaries[dev].flags = flags;
	if (primaries[dev].active)
		primaries[dev].context->flags = flags;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult pg_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	if (!device_exists(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	*flags = primaries[dev].flags;
	*active = primaries[dev].active && primaries[dev].references > 0;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* For a primary context this sets its device's flags. */
CUresult pg_cuCtxSetFlags(unsigned int flags)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!valid_flags(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (c->primary)
		return pg_cuDevicePrimaryCtxSetFlags_v2(c->device, flags);
	c->flags = flags;
	return CUDA_SUCCESS;
}

/* --- usage count of the old API --- */

CUresult pg_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!pctx || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_fetch_add(&c->attached, 1);
	*pctx = HANDLE_OF(CUcontext, c);
	return CUDA_SUCCESS;
}

CUresult pg_cuCtxDetach(CUcontext ctx)
{
	struct context *c = handle_find(&contexts, (uint64_t)(uintptr_t)ctx);
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	uint32_t attached = atomic_load(&c->attached);
	while (attached > 0)
		if (atomic_compare_exchange_weak(&c->attached, &attached, attached - 1))
			return CUDA_SUCCESS;
	return pg_cuCtxDestroy_v2(ctx);
}
