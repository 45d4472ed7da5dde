/*
 * cuStreamQuery: whether a stream has pending work. A query through the ring would block while the host's gate is
 * closed. Therefore the query posts a marker, if the stream got work since the last one, and reads an event's word that
 * the marker completes: a marker that the host has not consumed, or that has not completed, means pending work.
 *
 * Work of streams that synchronise with the legacy stream is also work of the legacy stream. The reverse holds for
 * cuStreamSynchronize, but not for queries: NVIDIA's driver (580, on an H200) reports a stream whose own work has
 * completed as ready, whatever runs in the legacy stream.
 */
#include "context.h"
#include "entry.h"
#include "event.h"
#include "ring.h"
#include "stream.h"
#include "zz_impl.h"
#include "zz_wire.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all markers except their counters */

static struct event *event_of(const struct mark *mark) { return handle_find(&events, mark->event); }

/* Queries through the ring, if there is no room for the marker's event. */
static CUresult ask(const struct place *place)
{
	struct packet p = {.op = OP_STREAM_QUERY, .context = place->context, .stream = place->stream};
	return ring_call(&p, NULL, 0);
}

static uint64_t sent_to(const struct mark *m) { return atomic_load_explicit(&m->sent, memory_order_acquire); }

static bool keeps_order(const struct stream *s) { return !(s->flags & CU_STREAM_NON_BLOCKING); }

struct sum {
	uint64_t context, sent;
};

static void add_ordered(void *object, void *argument)
{
	struct stream *s = object;
	struct sum *sum = argument;
	if (s->context == sum->context && keeps_order(s))
		sum->sent += sent_to(&s->mark);
}

/*
 * Returns the number of packets that precede a stream's marker. It never decreases, since destroying a stream takes the
 * lock.
 */
static uint64_t sent_before(const struct place *place)
{
	struct sum sum = {.context = place->contextHandle, .sent = sent_to(place->mark)};
	if (place->stream == WIRE_LEGACY) {
		handle_each(&streams, add_ordered, &sum);
		return sum.sent;
	}
	const struct stream *s = handle_find(&streams, place->stream);
	const struct context *c = handle_find(&contexts, place->contextHandle);
	return s && c && keeps_order(s) ? sum.sent + sent_to(&c->mark) : sum.sent;
}

/* Returns the number of packets whose work a query of the stream covers. */
static uint64_t sent_asked(const struct place *place)
{
	return place->stream == WIRE_LEGACY ? sent_before(place) : sent_to(place->mark);
}

static CUresult mark(const struct place *place, struct event *e)
{
	struct mark *m = place->mark;
	uint64_t sent = sent_asked(place);
	if (m->at == sent)
		return CUDA_SUCCESS;
	uint64_t serial = atomic_load_explicit(&e->recorded, memory_order_relaxed) + 1;
	struct stream_mark_args args = {.event = e->object.id, .serial = serial};
	struct packet p = {
		.op = OP_STREAM_MARK, .context = place->context, .stream = place->stream, .fixed = &args, .fixedBytes = sizeof args,
	};
	CUresult r = ring_post_until(&p, &m->end);
	if (r == CUDA_SUCCESS) {
		m->at = sent;
		m->taken = false;
		atomic_store_explicit(&e->recorded, serial, memory_order_relaxed);
	}
	return r;
}

static uint64_t known(_Atomic uint64_t *count) { return atomic_load_explicit(count, memory_order_relaxed); }

/* Records that packets up to a number have completed; requires the lock. */
static void note(_Atomic uint64_t *count, uint64_t completed)
{
	if (known(count) < completed)
		atomic_store_explicit(count, completed, memory_order_release);
}

static bool reached(const struct event *e)
{
	return event_reached(event_word_of(e), atomic_load_explicit(&e->recorded, memory_order_relaxed));
}

/*
 * Requires the lock. A stream whose work has completed as far as recorded gets no marker: the marker would queue behind other
 * streams' work at the host's gate.
 */
static CUresult look(const struct place *place)
{
	uint64_t asked = sent_asked(place);
	if (place->stream == WIRE_LEGACY ? asked == known(&place->mark->ended) : asked == known(&place->mark->own))
		return process_look();
	struct event *e = event_of(place->mark);
	if (!e) {
		struct context *c = handle_find(&contexts, place->contextHandle);
		if (!c || event_create(c, CU_EVENT_DISABLE_TIMING, &e) != CUDA_SUCCESS)
			return ask(place);
		place->mark->event = e->object.id;
	}
	struct mark *m = place->mark;
	CUresult r = mark(place, e);
	if (r == CUDA_SUCCESS && !reached(e)) {
		r = m->taken ? process_look() : ring_taken(m->end); /* a polling loop has to end if the worker does */
		m->taken = r == CUDA_SUCCESS;
		if (r == CUDA_SUCCESS && !reached(e))
			r = CUDA_ERROR_NOT_READY;
	}
	if (r == CUDA_SUCCESS) {
		note(&m->own, m->at);
		note(&m->ended, m->at); /* as long as the legacy stream gets no work, a wait covers no more */
	}
	return r;
}

CUresult pg_cuStreamQuery(CUstream stream)
{
	struct place place;
	CUresult r = stream_resolve(stream, &place);
	if (r == CUDA_SUCCESS)
		r = capture_permits();
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	r = look(&place);
	pthread_mutex_unlock(&lock);
	CUresult failed = context_error(place.context); /* errors before the marker have arrived by now */
	return failed != CUDA_SUCCESS ? failed : r;
}

/* Only the legacy stream's count needs the lock: it sums over streams that may be destroyed. */
bool mark_ended(const struct place *place, struct sent *sent)
{
	bool sums = place->stream == WIRE_LEGACY;
	if (sums)
		pthread_mutex_lock(&lock);
	*sent = (struct sent){.own = sent_to(place->mark), .all = sent_before(place)};
	bool ended = sent->all == atomic_load_explicit(&place->mark->ended, memory_order_acquire);
	if (sums)
		pthread_mutex_unlock(&lock);
	return ended;
}

/* Reports whether the stream still exists: during the call it may have been destroyed and its slot reused. */
static bool is_there(const struct place *place)
{
	if (place->stream == WIRE_LEGACY)
		return handle_find(&contexts, place->contextHandle);
	return handle_find(&streams, place->stream);
}

void mark_waited(const struct place *place, const struct sent *sent)
{
	pthread_mutex_lock(&lock);
	if (is_there(place)) {
		note(&place->mark->ended, sent->all);
		note(&place->mark->own, sent->own);
	}
	pthread_mutex_unlock(&lock);
}

bool mark_retire(struct stream *s)
{
	pthread_mutex_lock(&lock);
	bool mine = handle_retire(s);
	struct context *c = mine ? handle_find(&contexts, s->context) : NULL;
	struct event *e = mine ? event_of(&s->mark) : NULL;
	if (c && keeps_order(s))
		atomic_fetch_add_explicit(&c->mark.sent, sent_to(&s->mark), memory_order_relaxed);
	if (e)
		event_destroy(e);
	pthread_mutex_unlock(&lock);
	return mine;
}
