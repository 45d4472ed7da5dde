#include "object/stream_timeline.h"

#include <string.h>

#include "core/ring.h"
#include "core/zz_wire.h"
#include "object/context.h"
#include "object/event.h"

enum { SEEN_MOST = 32 };

/* Record of a stream in which memory was freed, or which waits for one. */
struct stream_timeline {
	struct object object;
	uint64_t context;
	uint64_t stream;    /* handle, or WIRE_LEGACY */
	uint32_t wire;      /* of the context */
	bool orderly;       /* synchronises with the legacy stream; also true for the legacy stream itself */
	uint64_t at;        /* number of positions so far */
	uint64_t ended;     /* all work before this position has completed */
	uint64_t covered;   /* work before this position precedes the latest record of event */
	uint64_t event;     /* handle of an internal event, or 0 */
	uint64_t serial;    /* of its latest record */
	bool gone;          /* the stream was destroyed */
	struct stream_position seen[SEEN_MOST]; /* positions that the stream has waited for */
	uint32_t seenNext;
};

pthread_mutex_t timelineLock = PTHREAD_MUTEX_INITIALIZER;
static struct table timelines = HANDLE_TABLE(HANDLE_TIMELINE, struct stream_timeline, 60000);
static _Atomic bool used; /* a timeline was created: until then notifications are unnecessary */

static struct stream_timeline *find(const struct stream_position *m) { return m->timeline ? handle_find(&timelines, m->timeline) : NULL; }

/* Returns the field with a stream's timeline handle. */
static uint64_t *number_of(const struct stream_ref *ref)
{
	if (ref->stream == WIRE_LEGACY) {
		struct context *c = handle_find(&contexts, ref->contextHandle);
		return c ? &c->timeline : NULL;
	}
	struct stream *s = handle_find(&streams, ref->stream);
	return s ? &s->timeline : NULL;
}

static struct stream_timeline *timeline_at(const struct stream_ref *ref)
{
	uint64_t *number = number_of(ref);
	return number ? handle_find(&timelines, *number) : NULL;
}

static struct stream_timeline *timeline_of(const struct stream_ref *ref)
{
	uint64_t *number = number_of(ref);
	struct stream_timeline *t = number ? handle_find(&timelines, *number) : NULL;
	if (t || !number || !(t = handle_new(&timelines)))
		return t;
	const struct stream *s = handle_find(&streams, ref->stream);
	t->context = ref->contextHandle;
	t->stream = ref->stream;
	t->wire = ref->context;
	t->orderly = ref->stream == WIRE_LEGACY || (s && !(s->flags & CU_STREAM_NON_BLOCKING));
	t->at = t->ended = t->covered = t->event = t->serial = t->seenNext = 0;
	t->gone = false;
	memset(t->seen, 0, sizeof t->seen);
	*number = t->object.id;
	handle_publish(t);
	atomic_store_explicit(&used, true, memory_order_release);
	return t;
}

bool position_now(const struct stream_ref *ref, struct stream_position *now)
{
	struct stream_timeline *t = timeline_of(ref);
	if (!t)
		return false;
	*now = (struct stream_position){t->object.id, ++t->at};
	return true;
}

static struct event *event_of(const struct stream_timeline *t) { return handle_find(&events, t->event); }

/* Checks whether the latest record has completed, and updates t->ended from it. */
static bool reached(struct stream_timeline *t)
{
	struct event *e = event_of(t);
	if (!e || t->covered == t->ended)
		return true;
	if (!event_reached(event_word_of(e), t->serial))
		return false;
	t->ended = t->covered;
	return true;
}

/* Records the event after all positions so far. */
static CUresult cover(struct stream_timeline *t)
{
	struct event *e = event_of(t);
	if (!e) {
		struct context *c = handle_find(&contexts, t->context);
		CUresult r = c ? event_create(c, CU_EVENT_DISABLE_TIMING, &e) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
		if (r != CUDA_SUCCESS)
			return r;
		t->event = e->object.id;
		t->serial = atomic_load_explicit(&e->recorded, memory_order_relaxed);
	}
	struct event_record_args args = {.event = t->event, .serial = t->serial + 1};
	struct packet p = {.op = OP_EVENT_RECORD, .context = t->wire, .stream = t->stream, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_post(&p);
	if (r == CUDA_SUCCESS) {
		t->covered = t->at;
		t->serial++;
		atomic_store_explicit(&e->recorded, t->serial, memory_order_release);
		atomic_store_explicit(&e->used, true, memory_order_release);
	}
	return r;
}

bool position_passed(const struct stream_position *m)
{
	struct stream_timeline *t = find(m);
	if (!t || m->at <= t->ended || (reached(t) && m->at <= t->ended))
		return true;
	/* One record at a time: otherwise a stream that is never idle would never show progress. */
	if (t->covered > t->ended || m->at <= t->covered)
		return false;
	return cover(t) == CUDA_SUCCESS && reached(t) && m->at <= t->ended;
}

static bool seen(const struct stream_ref *ref, const struct stream_position *m)
{
	const struct stream_timeline *t = timeline_at(ref);
	for (int i = 0; t && i < SEEN_MOST; i++)
		if (t->seen[i].timeline == m->timeline && t->seen[i].at >= m->at)
			return true;
	return false;
}

static void see(const struct stream_ref *ref, const struct stream_position *m)
{
	struct stream_timeline *t = timeline_of(ref);
	if (!t || t->object.id == m->timeline)
		return;
	for (int i = 0; i < SEEN_MOST; i++)
		if (t->seen[i].timeline == m->timeline) {
			if (t->seen[i].at < m->at)
				t->seen[i].at = m->at;
			return;
		}
	t->seen[t->seenNext++ % SEEN_MOST] = *m;
}

static bool orderly(const struct stream_ref *ref)
{
	const struct stream *s = ref->stream == WIRE_LEGACY ? NULL : handle_find(&streams, ref->stream);
	return !s || !(s->flags & CU_STREAM_NON_BLOCKING);
}

bool position_before(const struct stream_position *m, const struct stream_ref *ref, bool events)
{
	const struct stream_timeline *t = find(m);
	if (!t || m->at <= t->ended)
		return true;
	if (t->context == ref->contextHandle) {
		if (t->stream == ref->stream)
			return true;
		if ((t->stream == WIRE_LEGACY || ref->stream == WIRE_LEGACY) && t->orderly && orderly(ref))
			return true;
	}
	return events && seen(ref, m);
}

CUresult position_await(const struct stream_position *m, const struct stream_ref *ref)
{
	if (position_before(m, ref, true))
		return CUDA_SUCCESS;
	struct stream_timeline *t = find(m);
	CUresult r = m->at <= t->covered ? CUDA_SUCCESS : cover(t);
	if (r != CUDA_SUCCESS)
		return r;
	struct stream_wait_event_args args = {.event = t->event};
	struct packet p = {
		.op = OP_STREAM_WAIT_EVENT, .context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .fixed = &args,
		.fixedBytes = sizeof args,
	};
	r = ring_post(&p);
	if (r == CUDA_SUCCESS)
		see(ref, &(struct stream_position){t->object.id, t->covered});
	return r;
}

bool position_merge(const struct stream_position *a, const struct stream_position *b, struct stream_position *both)
{
	const struct stream_timeline *x = find(a), *y = find(b);
	bool past = !x || a->at <= x->ended, alsoPast = !y || b->at <= y->ended;
	if (past != alsoPast || (!past && x != y))
		return false;
	*both = past ? (struct stream_position){0} : a->at > b->at ? *a : *b;
	return true;
}

bool position_within(const struct stream_position *m, uint64_t context)
{
	const struct stream_timeline *t = find(m);
	return !t || m->at <= t->ended || t->context == context;
}

/* --- notifications by streams and events --- */

void timeline_recorded(struct event *e, const struct stream_ref *ref)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&timelineLock);
	const struct stream_timeline *t = timeline_at(ref);
	e->behind = t ? (struct stream_position){t->object.id, t->at} : (struct stream_position){0};
	pthread_mutex_unlock(&timelineLock);
}

void timeline_waits(const struct stream_ref *ref, const struct event *e)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&timelineLock);
	if (find(&e->behind))
		see(ref, &e->behind);
	pthread_mutex_unlock(&timelineLock);
}

static void drop(struct stream_timeline *t)
{
	struct event *e = event_of(t);
	if (e)
		event_destroy(e);
	if (handle_retire(t))
		handle_free(&timelines, t);
}

static void drop_over(void *object, void *unused)
{
	struct stream_timeline *t = object;
	(void)unused;
	if (t->gone && reached(t) && t->ended == t->at)
		drop(t);
}

/* Covers all work of the stream with a last record, which stands for it after the stream is destroyed. */
void timeline_stream_ends(struct stream *s)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&timelineLock);
	struct stream_timeline *t = handle_find(&timelines, s->timeline);
	if (t && t->covered < t->at)
		cover(t);
	if (t)
		t->gone = true;
	s->timeline = 0;
	handle_each(&timelines, drop_over, NULL);
	pthread_mutex_unlock(&timelineLock);
}

static void forget(void *object, void *argument)
{
	struct stream_timeline *t = object;
	if (t->context == *(const uint64_t *)argument)
		drop(t);
}

void timeline_context_ended(uint64_t context)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&timelineLock);
	handle_each(&timelines, forget, &context);
	pthread_mutex_unlock(&timelineLock);
}
