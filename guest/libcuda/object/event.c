#include "object/event.h"

#include "core/ring.h"
#include "core/zz_wire.h"
#include "object/stream_timeline.h"

struct table events = HANDLE_TABLE(HANDLE_EVENT, struct event, 65000);

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
	e->behind = (struct stream_position){0};
	e->captured = NULL;
	handle_publish(e);
	*created = e;
	return CUDA_SUCCESS;
}

CUresult event_destroy(struct event *e) { return handle_retire(e) ? event_free(e) : CUDA_ERROR_INVALID_HANDLE; }

CUresult event_free(struct event *e)
{
	struct event_destroy_args args = {.event = e->object.id};
	struct packet p = {.op = OP_EVENT_DESTROY, .context = e->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_post(&p);
	handle_free(&events, e);
	return r;
}

/*
 * Serials must enter the ring in the order in which they are drawn: of two concurrent records the one with the later
 * serial must be the later packet. The same holds for records and waits: the position stored for an event's latest
 * record is right for a wait only if that record is also the latest in the ring. One lock per event would do; both
 * operations are rare enough for one global lock.
 */
static pthread_mutex_t recordLock = PTHREAD_MUTEX_INITIALIZER;

CUresult event_record(struct event *e, const struct stream_ref *ref)
{
	pthread_mutex_lock(&recordLock);
	timeline_recorded(e, ref);
	uint64_t serial = atomic_load_explicit(&e->recorded, memory_order_relaxed) + 1;
	struct event_record_args args = {.event = e->object.id, .serial = serial};
	struct packet p = {
		.op = OP_EVENT_RECORD, .context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .fixed = &args, .fixedBytes = sizeof args,
	};
	CUresult r = ring_post(&p);
	if (r == CUDA_SUCCESS) {
		atomic_store_explicit(&e->recorded, serial, memory_order_release);
		atomic_store_explicit(&e->used, true, memory_order_release);
	}
	pthread_mutex_unlock(&recordLock);
	return r;
}

CUresult event_record_many(struct event *const *all, uint32_t count, struct event_record_args *records, const struct stream_ref *ref, const struct packet *p)
{
	pthread_mutex_lock(&recordLock);
	for (uint32_t i = 0; i < count; i++) {
		timeline_recorded(all[i], ref);
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

CUresult event_wait(const struct event *e, const struct stream_ref *ref)
{
	struct stream_wait_event_args args = {.event = e->object.id};
	struct packet p = {
		.op = OP_STREAM_WAIT_EVENT, .context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .fixed = &args,
		.fixedBytes = sizeof args,
	};
	pthread_mutex_lock(&recordLock);
	CUresult r = ring_post(&p);
	if (r == CUDA_SUCCESS)
		timeline_waits(ref, e);
	pthread_mutex_unlock(&recordLock);
	return r;
}
