#include "object/stream_timeline.h"

#include <string.h>

#include "core/ring.h"
#include "core/zz_wire.h"
#include "object/context.h"
#include "object/event.h"

enum { SEEN_MOST = 32 };

/* Record of a stream in which memory was freed, or which waits for one. */
struct tail {
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
	struct moment seen[SEEN_MOST]; /* positions that the stream has waited for */
	uint32_t seenNext;
};

pthread_mutex_t momentLock = PTHREAD_MUTEX_INITIALIZER;
static struct table tails = HANDLE_TABLE(HANDLE_TAIL, struct tail, 60000);
static _Atomic bool used; /* a tail was created: until then notifications are unnecessary */

static struct tail *find(const struct moment *m) { return m->tail ? handle_find(&tails, m->tail) : NULL; }

/* Returns the field with a stream's tail handle. */
static uint64_t *number_of(const struct place *place)
{
	if (place->stream == WIRE_LEGACY) {
		struct context *c = handle_find(&contexts, place->contextHandle);
		return c ? &c->tail : NULL;
	}
	struct stream *s = handle_find(&streams, place->stream);
	return s ? &s->tail : NULL;
}

static struct tail *tail_at(const struct place *place)
{
	uint64_t *number = number_of(place);
	return number ? handle_find(&tails, *number) : NULL;
}

static struct tail *tail_of(const struct place *place)
{
	uint64_t *number = number_of(place);
	struct tail *t = number ? handle_find(&tails, *number) : NULL;
	if (t || !number || !(t = handle_new(&tails)))
		return t;
	const struct stream *s = handle_find(&streams, place->stream);
	t->context = place->contextHandle;
	t->stream = place->stream;
	t->wire = place->context;
	t->orderly = place->stream == WIRE_LEGACY || (s && !(s->flags & CU_STREAM_NON_BLOCKING));
	t->at = t->ended = t->covered = t->event = t->serial = t->seenNext = 0;
	t->gone = false;
	memset(t->seen, 0, sizeof t->seen);
	*number = t->object.id;
	handle_publish(t);
	atomic_store_explicit(&used, true, memory_order_release);
	return t;
}

bool moment_now(const struct place *place, struct moment *now)
{
	struct tail *t = tail_of(place);
	if (!t)
		return false;
	*now = (struct moment){t->object.id, ++t->at};
	return true;
}

static struct event *event_of(const struct tail *t) { return handle_find(&events, t->event); }

/* Checks whether the latest record has completed, and updates t->ended from it. */
static bool reached(struct tail *t)
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
static CUresult cover(struct tail *t)
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

bool moment_passed(const struct moment *m)
{
	struct tail *t = find(m);
	if (!t || m->at <= t->ended || (reached(t) && m->at <= t->ended))
		return true;
	/* One record at a time: otherwise a stream that is never idle would never show progress. */
	if (t->covered > t->ended || m->at <= t->covered)
		return false;
	return cover(t) == CUDA_SUCCESS && reached(t) && m->at <= t->ended;
}

static bool seen(const struct place *place, const struct moment *m)
{
	const struct tail *t = tail_at(place);
	for (int i = 0; t && i < SEEN_MOST; i++)
		if (t->seen[i].tail == m->tail && t->seen[i].at >= m->at)
			return true;
	return false;
}

static void see(const struct place *place, const struct moment *m)
{
	struct tail *t = tail_of(place);
	if (!t || t->object.id == m->tail)
		return;
	for (int i = 0; i < SEEN_MOST; i++)
		if (t->seen[i].tail == m->tail) {
			if (t->seen[i].at < m->at)
				t->seen[i].at = m->at;
			return;
		}
	t->seen[t->seenNext++ % SEEN_MOST] = *m;
}

static bool orderly(const struct place *place)
{
	const struct stream *s = place->stream == WIRE_LEGACY ? NULL : handle_find(&streams, place->stream);
	return !s || !(s->flags & CU_STREAM_NON_BLOCKING);
}

bool moment_before(const struct moment *m, const struct place *place, bool events)
{
	const struct tail *t = find(m);
	if (!t || m->at <= t->ended)
		return true;
	if (t->context == place->contextHandle) {
		if (t->stream == place->stream)
			return true;
		if ((t->stream == WIRE_LEGACY || place->stream == WIRE_LEGACY) && t->orderly && orderly(place))
			return true;
	}
	return events && seen(place, m);
}

CUresult moment_await(const struct moment *m, const struct place *place)
{
	if (moment_before(m, place, true))
		return CUDA_SUCCESS;
	struct tail *t = find(m);
	CUresult r = m->at <= t->covered ? CUDA_SUCCESS : cover(t);
	if (r != CUDA_SUCCESS)
		return r;
	struct stream_wait_event_args args = {.event = t->event};
	struct packet p = {
		.op = OP_STREAM_WAIT_EVENT, .context = place->context, .stream = place->stream, .sent = &place->mark->sent, .fixed = &args,
		.fixedBytes = sizeof args,
	};
	r = ring_post(&p);
	if (r == CUDA_SUCCESS)
		see(place, &(struct moment){t->object.id, t->covered});
	return r;
}

bool moment_merge(const struct moment *a, const struct moment *b, struct moment *both)
{
	const struct tail *x = find(a), *y = find(b);
	bool past = !x || a->at <= x->ended, alsoPast = !y || b->at <= y->ended;
	if (past != alsoPast || (!past && x != y))
		return false;
	*both = past ? (struct moment){0} : a->at > b->at ? *a : *b;
	return true;
}

bool moment_within(const struct moment *m, uint64_t context)
{
	const struct tail *t = find(m);
	return !t || m->at <= t->ended || t->context == context;
}

/* --- notifications by streams and events --- */

void moment_recorded(struct event *e, const struct place *place)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&momentLock);
	const struct tail *t = tail_at(place);
	e->behind = t ? (struct moment){t->object.id, t->at} : (struct moment){0};
	pthread_mutex_unlock(&momentLock);
}

void moment_waits(const struct place *place, const struct event *e)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&momentLock);
	if (find(&e->behind))
		see(place, &e->behind);
	pthread_mutex_unlock(&momentLock);
}

static void drop(struct tail *t)
{
	struct event *e = event_of(t);
	if (e)
		event_destroy(e);
	if (handle_retire(t))
		handle_free(&tails, t);
}

static void drop_over(void *object, void *unused)
{
	struct tail *t = object;
	(void)unused;
	if (t->gone && reached(t) && t->ended == t->at)
		drop(t);
}

/* Covers all work of the stream with a last record, which stands for it after the stream is destroyed. */
void moment_stream_ends(struct stream *s)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&momentLock);
	struct tail *t = handle_find(&tails, s->tail);
	if (t && t->covered < t->at)
		cover(t);
	if (t)
		t->gone = true;
	s->tail = 0;
	handle_each(&tails, drop_over, NULL);
	pthread_mutex_unlock(&momentLock);
}

static void forget(void *object, void *argument)
{
	struct tail *t = object;
	if (t->context == *(const uint64_t *)argument)
		drop(t);
}

void moment_context_ended(uint64_t context)
{
	if (LIKELY(!atomic_load_explicit(&used, memory_order_acquire)))
		return;
	pthread_mutex_lock(&momentLock);
	handle_each(&tails, forget, &context);
	pthread_mutex_unlock(&momentLock);
}
