#include "object/stream.h"

#include <stdlib.h>

#include "core/lifecycle.h"
#include "core/ring.h"
#include "core/zz_wire.h"
#include "object/marker.h"

struct table streams = HANDLE_TABLE(HANDLE_STREAM, struct stream, 60000);

/* A thread's default stream in one context. */
struct thread_stream {
	uint64_t context; /* handle */
	struct stream *stream;
	uint64_t id;
	struct thread_stream *next;
};

CUresult stream_create(struct context *c, uint32_t flags, int priority, struct stream **created)
{
	struct stream *s = handle_new(&streams);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct stream_create_args args = {.stream = s->object.id, .flags = flags, .priority = priority};
	struct packet p = {.op = OP_STREAM_CREATE, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_post(&p);
	if (r != CUDA_SUCCESS) {
		handle_free(&streams, s);
		return r;
	}
	s->context = c->object.id;
	s->wireContext = c->wire;
	s->flags = flags;
	s->priority = priority;
	s->marker = (struct completion_marker){.at = NO_MARKER};
	s->timeline = 0;
	s->attributes = (struct stream_attributes){0};
	s->capturing = NULL;
	handle_publish(s);
	*created = s;
	return CUDA_SUCCESS;
}

int stream_priority(int wanted)
{
	return wanted > STREAM_PRIORITY_LEAST ? STREAM_PRIORITY_LEAST : wanted < STREAM_PRIORITY_GREATEST ? STREAM_PRIORITY_GREATEST : wanted;
}

/* --- resolving stream handles --- */

/* Drops the calling thread's default streams of destroyed contexts. */
static void forget_ended(void)
{
	struct thread_stream **at = &thread.streams;
	while (*at) {
		struct thread_stream *t = *at;
		if (handle_find(&streams, t->id) == t->stream) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		free(t);
	}
}

static void set_stream(struct stream *s, struct stream_ref *ref)
{
	ref->stream = s->object.id;
	ref->marker = &s->marker;
	ref->capturing = UNLIKELY(atomic_load_explicit(&s->capturing, memory_order_acquire) != NULL) ? s : NULL;
}

static CUresult own_stream(struct context *c, struct stream_ref *ref)
{
	for (struct thread_stream *t = thread.streams; t; t = t->next)
		if (t->context == c->object.id && LIKELY(handle_find(&streams, t->id) == t->stream)) {
			set_stream(t->stream, ref);
			return CUDA_SUCCESS;
		}
	forget_ended();
	struct thread_stream *t = malloc(sizeof *t);
	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = stream_create(c, CU_STREAM_DEFAULT, STREAM_PRIORITY_LEAST, &t->stream);
	if (r != CUDA_SUCCESS) {
		free(t);
		return r;
	}
	t->context = c->object.id;
	t->id = t->stream->object.id;
	t->next = thread.streams;
	thread.streams = t;
	thread_register();
	set_stream(t->stream, ref);
	return CUDA_SUCCESS;
}

static CUresult resolve_default(bool own, struct stream_ref *ref)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	ref->context = c->wire;
	ref->contextHandle = c->object.id;
	ref->stream = WIRE_LEGACY;
	ref->marker = &c->marker;
	ref->capturing = NULL;
	return LIKELY(!own) ? CUDA_SUCCESS : own_stream(c, ref);
}

CUresult stream_ref_of(CUstream handle, struct stream_ref *ref)
{
	if (LIKELY(handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD))
		return resolve_default(handle == CU_STREAM_PER_THREAD, ref);
	struct stream *s = handle_find(&streams, (uint64_t)(uintptr_t)handle);
	if (UNLIKELY(!s))
		return CUDA_ERROR_INVALID_HANDLE;
	ref->context = s->wireContext;
	ref->contextHandle = s->context;
	set_stream(s, ref);
	return context_error(s->wireContext);
}

/* Sends nothing if no work is pending: so two event records around such a call have no packet between them. */
CUresult stream_wait(const struct stream_ref *ref)
{
	struct packet p = {.op = OP_STREAM_SYNCHRONIZE, .context = ref->context, .stream = ref->stream};
	struct sent sent;
	if (marker_completed(ref, &sent)) {
		CUresult r = process_check_alive();
		return r == CUDA_SUCCESS ? context_error(ref->context) : r;
	}
	CUresult r = ring_wait(&p, stream_sleeps(ref));
	if (r == CUDA_SUCCESS)
		marker_set_completed(ref, &sent);
	return r;
}

bool stream_take_default(struct stream **s)
{
	struct thread_stream *t = thread.streams;
	if (!t)
		return false;
	thread.streams = t->next;
	*s = handle_find(&streams, t->id) == t->stream ? t->stream : NULL;
	free(t);
	return true;
}

CUresult stream_look_up(CUstream handle, struct stream **s, struct context **c)
{
	*s = NULL;
	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return context_current(c);
	*s = handle_find(&streams, (uint64_t)(uintptr_t)handle);
	if (!*s)
		return CUDA_ERROR_INVALID_HANDLE;
	*c = handle_find(&contexts, (*s)->context);
	return *c ? context_error((*c)->wire) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool stream_sleeps(const struct stream_ref *ref)
{
	const struct context *c = handle_find(&contexts, ref->contextHandle);
	const struct stream *s = ref->stream == WIRE_LEGACY ? NULL : handle_find(&streams, ref->stream);
	CUsynchronizationPolicy policy = s ? s->attributes.policy : c ? c->attributes.policy : 0;
	if (policy == 0 || policy == CU_SYNC_POLICY_AUTO)
		return context_sleeps(c);
	return policy == CU_SYNC_POLICY_BLOCKING_SYNC;
}
