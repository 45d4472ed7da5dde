/* Streams: creation, destruction, synchronisation and queries. */
#include "api/stream.h"

#include "api/context_event.h"
#include "api/entry.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/capture.h"
#include "graph/version.h"
#include "object/marker.h"
#include "object/stream_timeline.h"
#include "work/pool.h"

/* In a failed context nothing is destroyed before the context. */
static CUresult destroy(struct stream *s)
{
	CUresult r = context_error(s->wireContext);
	if (r != CUDA_SUCCESS)
		return r;
	timeline_stream_ends(s);
	if (!marker_retire(s))
		return CUDA_ERROR_INVALID_HANDLE;
	capture_stream_gone(s);
	struct stream_destroy_args args = {.stream = s->object.id};
	struct packet p = {.op = OP_STREAM_DESTROY, .context = s->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_post(&p);
	handle_free(&streams, s);
	return r;
}

void stream_release_thread(void)
{
	struct stream *s;
	while (stream_take_default(&s))
		if (s)
			destroy(s);
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
	r = stream_create(c, flags, stream_priority(priority), &s);
	if (r == CUDA_SUCCESS)
		r = stream_joins(c, s);
	if (r == CUDA_SUCCESS)
		*stream = HANDLE_OF(CUstream, s);
	return r;
}

CUresult pg_cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return pg_cuStreamCreateWithPriority(stream, flags, STREAM_PRIORITY_LEAST);
}

CUresult pg_cuStreamDestroy_v2(CUstream stream)
{
	struct stream *s = handle_find(&streams, (uint64_t)(uintptr_t)stream);
	return s ? destroy(s) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult pg_cuStreamSynchronize(CUstream stream)
{
	struct stream_ref ref;
	CUresult r = stream_resolve(stream, &ref);
	if (r == CUDA_SUCCESS)
		r = capture_permits();
	if (r != CUDA_SUCCESS)
		return r;
	r = text_shown(ref.context, stream_wait(&ref));
	pools_synchronised();
	versions_synchronised();
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

/* Unique in the process: a stream's own number; for default streams one derived from the context's. */
CUresult pg_cuStreamGetId(CUstream stream, unsigned long long *id)
{
	struct stream *s;
	struct context *c;
	struct stream_ref ref;
	CUresult r = id ? stream_look_up(stream, &s, &c) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = stream_ref_of(stream, &ref);
	if (r == CUDA_SUCCESS)
		*id = ref.stream ? ref.stream : c->serial;
	return r;
}

CUresult pg_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (least)
		*least = STREAM_PRIORITY_LEAST;
	if (greatest)
		*greatest = STREAM_PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}

CUresult pg_cuStreamQuery(CUstream stream)
{
	struct stream_ref ref;
	CUresult r = stream_resolve(stream, &ref);
	if (r == CUDA_SUCCESS)
		r = capture_permits();
	if (r != CUDA_SUCCESS)
		return r;
	r = marker_query(&ref);
	CUresult failed = context_error(ref.context); /* errors before the marker have arrived by now */
	return failed != CUDA_SUCCESS ? failed : r;
}
