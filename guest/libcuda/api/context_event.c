/*
 * Events of all work of a context (cuCtxRecordEvent, cuCtxWaitEvent). They are recorded in an internal stream, the
 * joint, which waits for the others; the legacy stream stands for all streams that synchronise with it. A wait of the
 * context orders the later work of all its streams, including streams created later.
 */
#include "api/context_event.h"

#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/capture.h"
#include "object/context.h"
#include "object/event.h"
#include "object/stream.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the contexts' joints; the lock of events nests inside it */

static struct stream_ref ref_of_stream(const struct stream *s)
{
	return (struct stream_ref){.context = s->wireContext, .stream = s->object.id, .contextHandle = s->context, .marker = (struct completion_marker *)&s->marker};
}

static struct stream_ref ref_of_legacy(struct context *c)
{
	return (struct stream_ref){.context = c->wire, .stream = WIRE_LEGACY, .contextHandle = c->object.id, .marker = &c->marker};
}

static CUresult record(struct event *e, const struct stream_ref *ref)
{
	uint64_t serial = atomic_load_explicit(&e->recorded, memory_order_relaxed) + 1;
	struct event_record_args args = {.event = e->object.id, .serial = serial};
	struct packet p = {.op = OP_EVENT_RECORD, .context = ref->context, .stream = ref->stream, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_post(&p);
	if (r == CUDA_SUCCESS) {
		atomic_store_explicit(&e->recorded, serial, memory_order_release);
		atomic_store_explicit(&e->used, true, memory_order_release);
	}
	return r;
}

static CUresult wait(const struct stream_ref *ref, const struct event *e)
{
	struct stream_wait_event_args args = {.event = e->object.id};
	struct packet p = {
		.op = OP_STREAM_WAIT_EVENT, .context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .fixed = &args,
		.fixedBytes = sizeof args,
	};
	return ring_post(&p);
}

/* Returns the joint of a context and its event, created on first use. */
static CUresult joint_of(struct context *c, struct stream **s, struct event **e)
{
	CUresult r = CUDA_SUCCESS;
	if (!(*s = handle_find(&streams, c->joint)) && (r = stream_create(c, CU_STREAM_NON_BLOCKING, STREAM_PRIORITY_LEAST, s)) == CUDA_SUCCESS)
		c->joint = (*s)->object.id;
	if (r == CUDA_SUCCESS && !(*e = handle_find(&events, c->jointEvent)) && (r = event_create(c, CU_EVENT_DISABLE_TIMING, e)) == CUDA_SUCCESS)
		c->jointEvent = (*e)->object.id;
	return r;
}

struct visit {
	struct stream *joint;
	struct event *event;
	const struct event *waited; /* NULL: the joint waits for each stream, else each stream for this event */
	CUresult result;
};

static void visit_stream(void *object, void *argument)
{
	struct stream *s = object;
	struct visit *v = argument;
	if (s->context != v->joint->context || s == v->joint || !(s->flags & CU_STREAM_NON_BLOCKING) || v->result != CUDA_SUCCESS)
		return;
	struct stream_ref ref = ref_of_stream(s), joint = ref_of_stream(v->joint);
	if (v->waited) {
		v->result = wait(&ref, v->waited);
		return;
	}
	v->result = record(v->event, &ref);
	if (v->result == CUDA_SUCCESS)
		v->result = wait(&joint, v->event);
}

static CUresult find_both(CUcontext context, CUevent handle, struct context **c, struct event **e)
{
	CUresult r = context_of(context, c);
	if (r != CUDA_SUCCESS)
		return r;
	*e = handle_find(&events, (uint64_t)(uintptr_t)handle);
	return *e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult pg_cuCtxRecordEvent(CUcontext context, CUevent handle)
{
	struct context *c;
	struct event *e;
	CUresult r = find_both(context, handle, &c, &e);
	if (r == CUDA_SUCCESS && e->context != c->object.id)
		r = CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS)
		r = capture_refuse_context(c->object.id);
	if (r != CUDA_SUCCESS)
		return r;
	struct visit v = {.result = CUDA_SUCCESS};
	pthread_mutex_lock(&lock);
	r = joint_of(c, &v.joint, &v.event);
	if (r == CUDA_SUCCESS) {
		struct stream_ref legacy = ref_of_legacy(c), joint = ref_of_stream(v.joint);
		r = record(v.event, &legacy);
		if (r == CUDA_SUCCESS)
			r = wait(&joint, v.event);
		if (r == CUDA_SUCCESS) {
			handle_each(&streams, visit_stream, &v);
			r = v.result;
		}
		if (r == CUDA_SUCCESS)
			r = pg_cuEventRecord(handle, HANDLE_OF(CUstream, v.joint));
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult pg_cuCtxWaitEvent(CUcontext context, CUevent handle)
{
	struct context *c;
	struct event *e;
	CUresult r = find_both(context, handle, &c, &e);
	if (r == CUDA_SUCCESS && UNLIKELY(e->captured))
		r = capture_refuse_event(e);
	if (r == CUDA_SUCCESS)
		r = capture_refuse_context(c->object.id);
	if (r != CUDA_SUCCESS || !e->used)
		return r;
	struct visit v = {.waited = e, .result = CUDA_SUCCESS};
	pthread_mutex_lock(&lock);
	r = joint_of(c, &v.joint, &v.event);
	if (r == CUDA_SUCCESS) {
		struct stream_ref legacy = ref_of_legacy(c), joint = ref_of_stream(v.joint);
		if ((r = wait(&joint, e)) == CUDA_SUCCESS && (r = wait(&legacy, e)) == CUDA_SUCCESS) {
			handle_each(&streams, visit_stream, &v);
			r = v.result;
		}
		atomic_store_explicit(&c->waits, true, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/*
 * A stream that synchronises with the legacy stream is ordered after its waits anyway; any other stream waits for the
 * events that the joint waits for.
 */
CUresult stream_joins(struct context *c, struct stream *s)
{
	if (LIKELY(!atomic_load_explicit(&c->waits, memory_order_acquire)) || !(s->flags & CU_STREAM_NON_BLOCKING))
		return CUDA_SUCCESS;
	struct visit v = {0};
	pthread_mutex_lock(&lock);
	CUresult r = joint_of(c, &v.joint, &v.event);
	if (r == CUDA_SUCCESS) {
		struct stream_ref joint = ref_of_stream(v.joint), ref = ref_of_stream(s);
		r = record(v.event, &joint);
		if (r == CUDA_SUCCESS)
			r = wait(&ref, v.event);
	}
	pthread_mutex_unlock(&lock);
	return r;
}
