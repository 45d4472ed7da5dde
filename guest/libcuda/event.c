/*
 * Events. A record carries a serial number; the host stores it in the event's word of the segment when the record has
 * completed, so a query is a load.
 */
#include "event.h"

#include "capture.h"
#include "context.h"
#include "entry.h"
#include "graphexec.h"
#include "moment.h"
#include "pool.h"
#include "ring.h"
#include "stream.h"
#include "zz_impl.h"
#include "zz_wire.h"

struct table events = HANDLE_TABLE(HANDLE_EVENT, struct event, 65000);

static struct event *event_find(CUevent handle) { return handle_find(&events, (uint64_t)(uintptr_t)handle); }

CUresult event_create(struct context *c, uint32_t flags, struct event **created)
{
	struct event *e = handle_new(&events);
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct event_create_args args = {.event = e->object.id, .flags = flags};
	struct packet p = {.op = OP_EVENT_CREATE, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = e->object.index >= process.eventWords ? CUDA_ERROR_OUT_OF_MEMORY : ring_post(&p);
	if (r != CUDA_SUCCESS) {
		handle_free(&events, e);
		return r;
	}
	e->context = c->object.id;
	e->wireContext = c->wire;
	e->flags = flags;
	e->used = e->shared = false;
	e->behind = (struct moment){0};
	e->captured = NULL;
	handle_publish(e);
	*created = e;
	return CUDA_SUCCESS;
}

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

CUresult event_destroy(struct event *e)
{
	if (!handle_retire(e))
		return CUDA_ERROR_INVALID_HANDLE;
	capture_event_gone(e);
	struct event_destroy_args args = {.event = e->object.id};
	struct packet p = {.op = OP_EVENT_DESTROY, .context = e->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_post(&p);
	handle_free(&events, e);
	return r;
}

CUresult pg_cuEventDestroy_v2(CUevent handle)
{
	struct event *e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = context_error(e->wireContext); /* as with streams */
	return r == CUDA_SUCCESS ? event_destroy(e) : r;
}

/*
 * Serials must enter the ring in the order in which they are drawn: of two concurrent records the one with the later
 * serial must be the later packet. The same holds for records and waits: the position stored for an event's latest
 * record is right for a wait only if that record is also the latest in the ring. One lock per event would do; both
 * operations are rare enough for one global lock.
 */
static pthread_mutex_t recordLock = PTHREAD_MUTEX_INITIALIZER;

CUresult event_record(struct event *e, const struct place *place)
{
	pthread_mutex_lock(&recordLock);
	moment_recorded(e, place);
	uint64_t serial = atomic_load_explicit(&e->recorded, memory_order_relaxed) + 1;
	struct event_record_args args = {.event = e->object.id, .serial = serial};
	struct packet p = {
		.op = OP_EVENT_RECORD, .context = place->context, .stream = place->stream, .sent = &place->mark->sent, .fixed = &args, .fixedBytes = sizeof args,
	};
	CUresult r = ring_post(&p);
	if (r == CUDA_SUCCESS) {
		atomic_store_explicit(&e->recorded, serial, memory_order_release);
		atomic_store_explicit(&e->used, true, memory_order_release);
	}
	pthread_mutex_unlock(&recordLock);
	return r;
}

CUresult event_record_many(struct event *const *all, uint32_t count, struct event_record_args *records, const struct place *place, const struct packet *p)
{
	pthread_mutex_lock(&recordLock);
	for (uint32_t i = 0; i < count; i++) {
		moment_recorded(all[i], place);
		records[i].event = all[i]->object.id;
		records[i].serial = atomic_load_explicit(&all[i]->recorded, memory_order_relaxed) + 1;
		for (uint32_t j = i; j > 0; j--) /* of an event that occurs more than once */
			if (all[j - 1] == all[i]) {
				records[i].serial = records[j - 1].serial + 1;
				break;
			}
	}
	CUresult r = ring_post(p);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
		atomic_store_explicit(&all[i]->recorded, records[i].serial, memory_order_release);
		atomic_store_explicit(&all[i]->used, true, memory_order_release);
	}
	pthread_mutex_unlock(&recordLock);
	return r;
}

CUresult pg_cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags)
{
	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	struct event *e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	struct place place;
	CUresult r = stream_resolve_any(stream, &place);
	if (r != CUDA_SUCCESS)
		return r;
	if (place.contextHandle != e->context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (UNLIKELY(place.capturing))
		return capture_record(&place, e, flags & CU_EVENT_RECORD_EXTERNAL);
	if (flags & CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE; /* valid only in a capture */
	if (UNLIKELY(e->captured))
		capture_event_gone(e);
	r = event_record(e, &place);
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
	r = process_look(); /* a polling loop has to end if the worker does */
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
			stocks_synchronised();
			return text_shown(p.context, r);
		}
	}
	CUresult r = text_shown(p.context, ring_wait(&p, sleeps));
	pools_synchronised();
	stocks_synchronised();
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
	struct place place;
	CUresult r = stream_resolve_any(stream, &place);
	if (r != CUDA_SUCCESS)
		return r;
	struct event *e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (UNLIKELY(place.capturing || e->captured))
		return capture_wait(&place, e, flags & CU_EVENT_WAIT_EXTERNAL);
	if (flags & CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE; /* valid only in a capture */
	if (!e->used)
		return CUDA_SUCCESS;
	struct stream_wait_event_args args = {.event = e->object.id};
	struct packet p = {
		.op = OP_STREAM_WAIT_EVENT, .context = place.context, .stream = place.stream, .sent = &place.mark->sent, .fixed = &args,
		.fixedBytes = sizeof args,
	};
	pthread_mutex_lock(&recordLock);
	r = ring_post(&p);
	if (r == CUDA_SUCCESS)
		moment_waits(&place, e);
	pthread_mutex_unlock(&recordLock);
	return r;
}
