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
	s->mark = (struct mark){.at = NO_MARK};
	s->tail = 0;
	s->manner = (struct manner){0};
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

static void place_in(struct stream *s, struct place *place)
{
	place->stream = s->object.id;
	place->mark = &s->mark;
	place->capturing = UNLIKELY(atomic_load_explicit(&s->capturing, memory_order_acquire) != NULL) ? s : NULL;
}

static CUresult own_stream(struct context *c, struct place *place)
{
	for (struct thread_stream *t = thread.streams; t; t = t->next)
		if (t->context == c->object.id && LIKELY(handle_find(&streams, t->id) == t->stream)) {
			place_in(t->stream, place);
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
	place_in(t->stream, place);
	return CUDA_SUCCESS;
}

static CUresult resolve_default(bool own, struct place *place)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	place->context = c->wire;
	place->contextHandle = c->object.id;
	place->stream = WIRE_LEGACY;
	place->mark = &c->mark;
	place->capturing = NULL;
	return LIKELY(!own) ? CUDA_SUCCESS : own_stream(c, place);
}

CUresult stream_place(CUstream handle, struct place *place)
{
	if (LIKELY(handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD))
		return resolve_default(handle == CU_STREAM_PER_THREAD, place);
	struct stream *s = handle_find(&streams, (uint64_t)(uintptr_t)handle);
	if (UNLIKELY(!s))
		return CUDA_ERROR_INVALID_HANDLE;
	place->context = s->wireContext;
	place->contextHandle = s->context;
	place_in(s, place);
	return context_error(s->wireContext);
}

/* Sends nothing if no work is pending: so two event records around such a call have no packet between them. */
CUresult stream_wait(const struct place *place)
{
	struct packet p = {.op = OP_STREAM_SYNCHRONIZE, .context = place->context, .stream = place->stream};
	uint64_t sent;
	if (mark_ended(place, &sent)) {
		CUresult r = process_look();
		return r == CUDA_SUCCESS ? context_error(place->context) : r;
	}
	CUresult r = ring_wait(&p, stream_sleeps(place));
	if (r == CUDA_SUCCESS)
		mark_waited(place, sent);
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

CUresult stream_look_up(CUstream handle, const void *out, struct stream **s, struct context **c)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*s = NULL;
	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return context_current(c);
	*s = handle_find(&streams, (uint64_t)(uintptr_t)handle);
	if (!*s)
		return CUDA_ERROR_INVALID_HANDLE;
	*c = handle_find(&contexts, (*s)->context);
	return *c ? context_error((*c)->wire) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool stream_sleeps(const struct place *place)
{
	const struct context *c = handle_find(&contexts, place->contextHandle);
	const struct stream *s = place->stream == WIRE_LEGACY ? NULL : handle_find(&streams, place->stream);
	CUsynchronizationPolicy policy = s ? s->manner.policy : c ? c->manner.policy : 0;
	if (policy == 0 || policy == CU_SYNC_POLICY_AUTO)
		return context_sleeps(c);
	return policy == CU_SYNC_POLICY_BLOCKING_SYNC;
}
