/* Events: creation, destruction, records, waits and queries. */
#include "api/event.h"

#include "api/entry.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/capture.h"
#include "graph/version.h"
#include "object/event.h"
#include "work/pool.h"

static struct event *event_find(CUevent handle) { return handle_find(&events, (uint64_t)(uintptr_t)handle); }

CUresult pg_cuEventCreate(CUevent *out, unsigned int flags)
{
	struct context *c;
	struct event *e;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
	if (!out || (flags & ~known))
		return CUDA_ERROR_INVALID_VALUE;
	if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
		return CUDA_ERROR_INVALID_VALUE;
	r = event_create(c, flags, &e);
	if (r == CUDA_SUCCESS)
		*out = HANDLE_OF(CUevent, e);
	return r;
}

CUresult pg_cuEventDestroy_v2(CUevent handle)
{
	struct event *e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = context_error(e->wireContext); /* as with streams */
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_retire(e))
		return CUDA_ERROR_INVALID_HANDLE;
	capture_event_gone(e);
	return event_free(e);
}

CUresult pg_cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags)
{
	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	struct event *e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	if (ref.contextHandle != e->context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (UNLIKELY(ref.capturing))
		return capture_record(&ref, e, flags & CU_EVENT_RECORD_EXTERNAL);
	if (flags & CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE; /* valid only in a capture */
	if (UNLIKELY(e->captured))
		capture_event_gone(e);
	r = event_record(e, &ref);
	return r == CUDA_SUCCESS && UNLIKELY(e->shared) ? event_settle(e) : r;
}

CUresult pg_cuEventRecord(CUevent handle, CUstream stream)
{
	return pg_cuEventRecordWithFlags(handle, stream, CU_EVENT_RECORD_DEFAULT);
}

static bool is_complete(const struct event *e)
{
	return !atomic_load_explicit(&e->used, memory_order_acquire) ||
		event_reached(event_word_of(e), atomic_load_explicit(&e->recorded, memory_order_acquire));
}

CUresult pg_cuEventQuery(CUevent handle)
{
	struct event *e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = context_error(e->wireContext);
	if (r == CUDA_SUCCESS)
		r = UNLIKELY(e->captured) ? capture_refuse_event(e) : capture_permits();
	if (r != CUDA_SUCCESS)
		return r;
	if (is_complete(e))
		return context_error(e->wireContext); /* errors before the record have arrived by now */
	r = process_check_alive(); /* a polling loop has to end if the worker does */
	return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : r;
}

/* Blocks until the latest record of the event with this id has completed. */
static CUresult settle(struct event *e, uint64_t id)
{
	if (UNLIKELY(e->captured))
		return capture_refuse_event(e);
	bool sleeps = (e->flags & CU_EVENT_BLOCKING_SYNC) || context_sleeps(handle_find(&contexts, e->context));
	/* Read before waiting: meanwhile the event may be destroyed and its slot reused. */
	struct event_synchronize_args args = {.event = id};
	struct packet p = {.op = OP_EVENT_SYNCHRONIZE, .context = e->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	if (atomic_load_explicit(&e->used, memory_order_acquire)) {
		/*
		 * Waits at the event's word, not in the ring, where the wait would queue behind calls that the gate holds back.
		 */
		const struct record latest = {
			.word = event_word_of(e), .serial = atomic_load_explicit(&e->recorded, memory_order_acquire),
			.context = p.context, .event = &e->object, .handle = args.event,
		};
		CUresult r = record_wait(&latest, sleeps);
		if (r != CUDA_ERROR_NOT_READY) {
			pools_synchronised();
			versions_synchronised();
			return text_shown(p.context, r);
		}
	}
	CUresult r = text_shown(p.context, ring_wait(&p, sleeps));
	pools_synchronised();
	versions_synchronised();
	return r;
}

CUresult event_settle(struct event *e) { return settle(e, e->object.id); }

CUresult pg_cuEventSynchronize(CUevent handle)
{
	struct event *e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = UNLIKELY(e->captured) ? CUDA_SUCCESS : capture_permits();
	return r == CUDA_SUCCESS ? settle(e, (uint64_t)(uintptr_t)handle) : r;
}

CUresult pg_cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	struct event *a = event_find(start), *b = event_find(end);
	if (!milliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	if (!a || !b || a->context != b->context || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING))
		return CUDA_ERROR_INVALID_HANDLE;
	if (UNLIKELY(a->captured || b->captured))
		return capture_refuse_event(a->captured ? a : b);
	if (!a->used || !b->used)
		return CUDA_ERROR_INVALID_HANDLE;
	struct event_elapsed_args args = {.start = a->object.id, .end = b->object.id};
	struct event_elapsed_result answer;
	struct packet p = {.op = OP_EVENT_ELAPSED, .context = a->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS)
		*milliseconds = (float)((double)answer.nanoseconds / 1e6);
	return r;
}

CUresult pg_cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int flags)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	struct event *e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (UNLIKELY(ref.capturing || e->captured))
		return capture_wait(&ref, e, flags & CU_EVENT_WAIT_EXTERNAL);
	if (flags & CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE; /* valid only in a capture */
	if (!e->used)
		return CUDA_SUCCESS;
	return event_wait(e, &ref);
}
