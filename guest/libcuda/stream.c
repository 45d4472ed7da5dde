/*
 * Streams, and the default streams: the legacy one that all threads share, and one for each thread, which on the wire
 * is an ordinary stream.
 */
#include "stream.h"

#include <stdlib.h>

#include "capture.h"
#include "context.h"
#include "entry.h"
#include "graphexec.h"
#include "moment.h"
#include "pool.h"
#include "ring.h"
#include "zz_impl.h"
#include "zz_wire.h"

#define PRIORITY_LEAST 0
#define PRIORITY_GREATEST (-5)

struct table streams = HANDLE_TABLE(HANDLE_STREAM, struct stream, 60000);

/* A thread's default stream in one context. */
struct thread_stream {
	uint64_t context; /* handle */
	struct stream *stream;
	uint64_t id;
	struct thread_stream *next;
};

static CUresult create(struct context *c, uint32_t flags, int priority, struct stream **created)
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
	return wanted > PRIORITY_LEAST ? PRIORITY_LEAST : wanted < PRIORITY_GREATEST ? PRIORITY_GREATEST : wanted;
}

CUresult stream_create(struct context *c, uint32_t flags, struct stream **created) { return create(c, flags, PRIORITY_LEAST, created); }

/* In a failed context nothing is destroyed before the context. */
static CUresult destroy(struct stream *s)
{
	CUresult r = context_error(s->wireContext);
	if (r != CUDA_SUCCESS)
		return r;
	moment_stream_ends(s);
	if (!mark_retire(s))
		return CUDA_ERROR_INVALID_HANDLE;
	capture_stream_gone(s);
	struct stream_destroy_args args = {.stream = s->object.id};
	struct packet p = {.op = OP_STREAM_DESTROY, .context = s->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_post(&p);
	handle_free(&streams, s);
	return r;
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
	CUresult r = create(c, CU_STREAM_DEFAULT, PRIORITY_LEAST, &t->stream);
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

CUresult stream_resolve(CUstream handle, struct place *place)
{
	CUresult r = stream_resolve_any(handle, place);
	return LIKELY(r != CUDA_SUCCESS || !place->capturing) ? r : capture_refuse(place->capturing);
}

CUresult stream_resolve_any(CUstream handle, struct place *place)
{
	CUresult r = stream_place(handle, place);
	if (UNLIKELY(captures_any()) && r == CUDA_SUCCESS && place->stream == WIRE_LEGACY)
		r = capture_implies(place->contextHandle);
	return r;
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
	struct sent sent;
	if (mark_ended(place, &sent)) {
		CUresult r = process_look();
		return r == CUDA_SUCCESS ? context_error(place->context) : r;
	}
	CUresult r = ring_wait(&p, stream_sleeps(place));
	if (r == CUDA_SUCCESS)
		mark_waited(place, &sent);
	return r;
}

void stream_release_thread(void)
{
	while (thread.streams) {
		struct thread_stream *t = thread.streams;
		thread.streams = t->next;
		if (handle_find(&streams, t->id) == t->stream)
			destroy(t->stream);
		free(t);
	}
}

struct doomed {
	struct table *table;
	uint64_t context;
};

/* The common head of streams, events, arrays and textures. */
struct owned {
	struct object object;
	uint64_t context;
};
_Static_assert(offsetof(struct owned, context) == offsetof(struct stream, context), "stream");
_Static_assert(offsetof(struct owned, context) == offsetof(struct event, context), "event");
_Static_assert(offsetof(struct owned, context) == offsetof(struct array, context), "array");
_Static_assert(offsetof(struct owned, context) == offsetof(struct mipmap, context), "mipmapped array");
_Static_assert(offsetof(struct owned, context) == offsetof(struct texture, context), "texture");

static void forget(void *object, void *argument)
{
	struct owned *o = object;
	struct doomed *d = argument;
	if (o->context != d->context || !handle_retire(o))
		return;
	if (d->table == &streams)
		capture_stream_gone(object);
	if (d->table == &events)
		capture_event_gone(object);
	handle_free(d->table, o);
}

void stream_context_gone(uint64_t context)
{
	struct table *all[] = {&surfaces, &textures, &mipmaps, &arrays, &events, &streams};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct doomed d = {.table = all[i], .context = context};
		handle_each(all[i], forget, &d);
	}
}

/* --- API calls --- */

CUresult pg_cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	struct stream *s;
	r = create(c, flags, stream_priority(priority), &s);
	if (r == CUDA_SUCCESS)
		r = stream_joins(c, s);
	if (r == CUDA_SUCCESS)
		*stream = HANDLE_OF(CUstream, s);
	return r;
}

CUresult pg_cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return pg_cuStreamCreateWithPriority(stream, flags, PRIORITY_LEAST);
}

CUresult pg_cuStreamDestroy_v2(CUstream stream)
{
	struct stream *s = handle_find(&streams, (uint64_t)(uintptr_t)stream);
	return s ? destroy(s) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult pg_cuStreamSynchronize(CUstream stream)
{
	struct place place;
	CUresult r = stream_resolve(stream, &place);
	if (r == CUDA_SUCCESS)
		r = capture_permits();
	if (r != CUDA_SUCCESS)
		return r;
	r = text_shown(place.context, stream_wait(&place));
	pools_synchronised();
	stocks_synchronised();
	return r;
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

CUresult pg_cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
	struct stream *s;
	struct context *c;
	CUresult r = stream_look_up(stream, flags, &s, &c);
	if (r == CUDA_SUCCESS)
		*flags = s ? s->flags : CU_STREAM_DEFAULT;
	return r;
}

CUresult pg_cuStreamGetPriority(CUstream stream, int *priority)
{
	struct stream *s;
	struct context *c;
	CUresult r = stream_look_up(stream, priority, &s, &c);
	if (r == CUDA_SUCCESS)
		*priority = s ? s->priority : PRIORITY_LEAST;
	return r;
}

CUresult pg_cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	struct stream *s;
	struct context *c;
	CUresult r = stream_look_up(stream, context, &s, &c);
	if (r == CUDA_SUCCESS)
		*context = HANDLE_OF(CUcontext, c);
	return r;
}

/* There are no green contexts. */
CUresult pg_cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
	CUresult r = pg_cuStreamGetCtx(stream, context);
	if (r == CUDA_SUCCESS && green)
		*green = NULL;
	return r;
}

CUresult pg_cuStreamGetDevice(CUstream stream, CUdevice *device)
{
	struct stream *s;
	struct context *c;
	CUresult r = stream_look_up(stream, device, &s, &c);
	if (r == CUDA_SUCCESS)
		*device = c->device;
	return r;
}

/* Unique in the process: a stream's own number; for default streams one derived from the context's. */
CUresult pg_cuStreamGetId(CUstream stream, unsigned long long *id)
{
	struct stream *s;
	struct context *c;
	struct place place;
	CUresult r = stream_look_up(stream, id, &s, &c);
	if (r == CUDA_SUCCESS)
		r = stream_place(stream, &place);
	if (r == CUDA_SUCCESS)
		*id = place.stream ? place.stream : c->serial;
	return r;
}

CUresult pg_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (least)
		*least = PRIORITY_LEAST;
	if (greatest)
		*greatest = PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}
