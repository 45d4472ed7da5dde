/*
 * A query through the ring would block while the host's gate is closed. Therefore the query posts a marker, if the
 * stream got work since the last one, and reads an event's word that the marker completes: a marker that the host has
 * not consumed, or that has not completed, means pending work.
 *
 * Work of streams that synchronise with the legacy stream is also work of the legacy stream. The reverse holds for
 * cuStreamSynchronize, but not for queries: NVIDIA's driver (580, on an H200) reports a stream whose own work has
 * completed as ready, whatever runs in the legacy stream.
 */
#include "object/marker.h"

#include "core/ring.h"
#include "core/zz_wire.h"
#include "object/event.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all markers except their counters */

static struct event *event_of(const struct completion_marker *marker) { return handle_find(&events, marker->event); }

/* Queries through the ring, if there is no room for the marker's event. */
static CUresult ask(const struct stream_ref *ref)
{
	struct packet p = {.op = OP_STREAM_QUERY, .context = ref->context, .stream = ref->stream};
	return ring_call(&p, NULL, 0);
}

static uint64_t sent_to(const struct completion_marker *m) { return atomic_load_explicit(&m->sent, memory_order_acquire); }

static bool keeps_order(const struct stream *s) { return !(s->flags & CU_STREAM_NON_BLOCKING); }

struct sum {
	uint64_t context, sent;
};

static void add_ordered(void *object, void *argument)
{
	struct stream *s = object;
	struct sum *sum = argument;
	if (s->context == sum->context && keeps_order(s))
		sum->sent += sent_to(&s->marker);
}

/*
 * Returns the number of packets that precede a stream's marker. It never decreases, since destroying a stream takes the
 * lock.
 */
static uint64_t sent_before(const struct stream_ref *ref)
{
	struct sum sum = {.context = ref->contextHandle, .sent = sent_to(ref->marker)};
	if (ref->stream == WIRE_LEGACY) {
		handle_each(&streams, add_ordered, &sum);
		return sum.sent;
	}
	const struct stream *s = handle_find(&streams, ref->stream);
	const struct context *c = handle_find(&contexts, ref->contextHandle);
	return s && c && keeps_order(s) ? sum.sent + sent_to(&c->marker) : sum.sent;
}

/* Returns the number of packets with work that a query of the stream covers. */
static uint64_t sent_asked(const struct stream_ref *ref)
{
	return ref->stream == WIRE_LEGACY ? sent_before(ref) : sent_to(ref->marker);
}

static CUresult post_marker(const struct stream_ref *ref, struct event *e)
{
	struct completion_marker *m = ref->marker;
	uint64_t sent = sent_asked(ref);
	if (m->at == sent)
		return CUDA_SUCCESS;
	uint64_t serial = atomic_load_explicit(&e->recorded, memory_order_relaxed) + 1;
	struct stream_mark_args args = {.event = e->object.id, .serial = serial};
	struct packet p = {
		.op = OP_STREAM_MARK, .context = ref->context, .stream = ref->stream, .fixed = &args, .fixedBytes = sizeof args,
	};
	CUresult r = ring_post_until(&p, &m->end);
	if (r == CUDA_SUCCESS) {
		m->at = sent;
		m->taken = false;
		atomic_store_explicit(&e->recorded, serial, memory_order_relaxed);
	}
	return r;
}

static uint64_t completed(_Atomic uint64_t *count) { return atomic_load_explicit(count, memory_order_relaxed); }

/* Records that packets up to a number have completed; requires the lock. */
static void set_completed(_Atomic uint64_t *count, uint64_t packets)
{
	if (completed(count) < packets)
		atomic_store_explicit(count, packets, memory_order_release);
}

static bool reached(const struct event *e)
{
	return event_reached(event_word_of(e), atomic_load_explicit(&e->recorded, memory_order_relaxed));
}

/*
 * Requires the lock. A stream with completed work, as far as recorded, gets no marker: the marker would queue behind other
 * streams' work at the host's gate.
 */
static CUresult look(const struct stream_ref *ref)
{
	uint64_t asked = sent_asked(ref);
	if (asked == completed(ref->stream == WIRE_LEGACY ? &ref->marker->ended : &ref->marker->own))
		return process_check_alive();
	struct event *e = event_of(ref->marker);
	if (!e) {
		struct context *c = handle_find(&contexts, ref->contextHandle);
		if (!c || event_create(c, CU_EVENT_DISABLE_TIMING, &e) != CUDA_SUCCESS)
			return ask(ref);
		ref->marker->event = e->object.id;
	}
	struct completion_marker *m = ref->marker;
	CUresult r = post_marker(ref, e);
	if (r == CUDA_SUCCESS && !reached(e)) {
		r = m->taken ? process_check_alive() : ring_taken(m->end); /* a polling loop has to end if the worker does */
		m->taken = r == CUDA_SUCCESS;
		if (r == CUDA_SUCCESS && !reached(e))
			r = CUDA_ERROR_NOT_READY;
	}
	if (r == CUDA_SUCCESS) {
		set_completed(&m->own, m->at);
		set_completed(&m->ended, m->at); /* as long as the legacy stream gets no work, a wait covers no more */
	}
	return r;
}

CUresult marker_query(const struct stream_ref *ref)
{
	pthread_mutex_lock(&lock);
	CUresult r = look(ref);
	pthread_mutex_unlock(&lock);
	return r;
}

/* Only the legacy stream's count needs the lock: it sums over streams that may be destroyed. */
bool marker_completed(const struct stream_ref *ref, struct sent *sent)
{
	bool sums = ref->stream == WIRE_LEGACY;
	if (sums)
		pthread_mutex_lock(&lock);
	*sent = (struct sent){.own = sent_to(ref->marker), .all = sent_before(ref)};
	bool ended = sent->all == atomic_load_explicit(&ref->marker->ended, memory_order_acquire);
	if (sums)
		pthread_mutex_unlock(&lock);
	return ended;
}

/* Reports whether the stream still exists: during the call it may have been destroyed and its slot reused. */
static bool is_there(const struct stream_ref *ref)
{
	if (ref->stream == WIRE_LEGACY)
		return handle_find(&contexts, ref->contextHandle);
	return handle_find(&streams, ref->stream);
}

void marker_set_completed(const struct stream_ref *ref, const struct sent *sent)
{
	pthread_mutex_lock(&lock);
	if (is_there(ref)) {
		set_completed(&ref->marker->ended, sent->all);
		set_completed(&ref->marker->own, sent->own);
	}
	pthread_mutex_unlock(&lock);
}

bool marker_retire(struct stream *s)
{
	pthread_mutex_lock(&lock);
	bool mine = handle_retire(s);
	struct context *c = mine ? handle_find(&contexts, s->context) : NULL;
	struct event *e = mine ? event_of(&s->marker) : NULL;
	if (c && keeps_order(s))
		atomic_fetch_add_explicit(&c->marker.sent, sent_to(&s->marker), memory_order_relaxed);
	if (e)
		event_destroy(e);
	pthread_mutex_unlock(&lock);
	return mine;
}
