/*
 * The producer's side of the ring. Any thread may send at any time: a packet's slots are claimed with one
 * compare-and-swap and published one by one, the first slot last, so that the host sees whole packets in the order of
 * claims.
 */
#include "core/ring.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/futex.h"
#include "core/lifecycle.h"

static struct ring_slot *slot_at(uint32_t index)
{
	return &process.ring[index & (process.ringSlots - 1)];
}

/*
 * Sleeps while a word that the host changes equals seen, for at most a slice. The host's kernel cannot wake processes
 * of another kernel: there a sleep is a sequence of short ones.
 */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen, long slice)
{
	if (LIKELY(!process.apart))
		futex_wait_for(word, seen, slice);
	else
		poll_backoff(word, seen, slice);
}

/* Sleeps until the host has advanced head beyond seen, for at most a slice. */
static CUresult wait_for_head(uint32_t seen, long slice)
{
	struct segment_header *h = process.header;
	atomic_store_explicit(&h->producersWaiting, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&h->head, memory_order_relaxed) == seen)
		sleep_on(&h->head, seen, slice);
	atomic_store_explicit(&process.checkNext, 0, memory_order_relaxed);
	return process_check_alive();
}

/* The host may start to wait while this thread falls asleep, and then head does not move: so no sleep is long. */
#define TAKEN_SLICE_NS 1000000

static CUresult claim(uint32_t slots, uint32_t *index)
{
	struct segment_header *h = process.header;
	for (;;) {
		uint32_t tail = atomic_load_explicit(&h->tail, memory_order_acquire);
		uint32_t head = atomic_load_explicit(&h->head, memory_order_acquire);
		if (LIKELY(tail + slots - head <= process.ringSlots)) {
			if (LIKELY(atomic_compare_exchange_weak_explicit(&h->tail, &tail, tail + slots,
				memory_order_acq_rel, memory_order_relaxed))) {
				*index = tail;
				return CUDA_SUCCESS;
			}
			continue;
		}
		CUresult r = wait_for_head(head, FUTEX_SLICE_NS); /* the ring is full */
		if (r != CUDA_SUCCESS)
			return r;
	}
}

static void publish(uint32_t index)
{
	atomic_store_explicit(&slot_at(index)->seq, (uint64_t)index + 1, memory_order_release);
}

/* Wakes the poller if it sleeps; returns whether it did. */
static bool wake_poller(void)
{
	struct segment_header *h = process.header;
	atomic_thread_fence(memory_order_seq_cst);
	if (LIKELY(atomic_load_explicit(&h->pollerParked, memory_order_relaxed) == 0))
		return false;
	if (atomic_exchange_explicit(&h->pollerParked, 0, memory_order_relaxed) == 0)
		return false; /* another thread wakes it */
	if (process.bell)
		process_notify_worker();
	else
		futex_wake(&h->pollerParked, 1);
	return true;
}

/* Appends bytes to the bodies of consecutive slots, starting at offset at of the packet's body. */
static uint32_t put(uint32_t index, uint32_t at, const void *bytes, uint32_t length)
{
	const uint8_t *from = bytes;
	while (length > 0) {
		uint32_t within = at % SLOT_BODY;
		uint32_t part = SLOT_BODY - within;
		if (part > length)
			part = length;
		memcpy(slot_at(index + at / SLOT_BODY)->body + within, from, part);
		from += part;
		at += part;
		length -= part;
	}
	return at;
}

/*
 * Posts a packet where the host finds it even while it waits with a call and cannot consume the full ring. The host has
 * consumed the previous one, since that was answered.
 */
static CUresult send_beside(const struct packet *p, const struct packet_header *head, bool *woke)
{
	struct segment_header *h = process.header;
	uint32_t seen = 0;
	if (!atomic_compare_exchange_strong(&h->report, &seen, REPORT_NONE))
		while (seen == REPORT_MADE) { /* posted by a thread that has ended */
			CUresult r = wait_for_head(atomic_load_explicit(&h->head, memory_order_relaxed), TAKEN_SLICE_NS);
			if (r != CUDA_SUCCESS)
				return r;
			seen = atomic_load_explicit(&h->report, memory_order_acquire);
		}
	memcpy(h->reportBody, head, sizeof *head);
	if (p->fixedBytes > 0)
		memcpy(h->reportBody + sizeof *head, p->fixed, p->fixedBytes);
	atomic_store_explicit(&h->report, REPORT_MADE, memory_order_release);
	*woke = wake_poller();
	return CUDA_SUCCESS;
}

/* Returns the largest number of slots of a packet. */
static uint32_t most_slots(void)
{
	uint32_t most = atomic_load_explicit(&process.header->packetSlots, memory_order_relaxed);
	if (most > PACKET_SLOTS_MOST)
		most = PACKET_SLOTS_MOST;
	if (most > process.ringSlots / 2)
		most = process.ringSlots / 2;
	return most;
}

static CUresult send(const struct packet *p, uint16_t flags, uint32_t slot, uint32_t tag, bool *woke, uint32_t *end)
{
	uint32_t payload = p->fixedBytes + p->tailBytes;
	uint32_t slots = (PACKET_HEADER + payload + SLOT_BODY - 1) / SLOT_BODY;
	if (UNLIKELY(payload > PACKET_PAYLOAD_MOST || (slots > PACKET_SLOTS && slots > most_slots())))
		return CUDA_ERROR_NOT_SUPPORTED;
	struct packet_header head = {
		.op = p->op, .payloadLength = (uint16_t)payload, .flags = flags, .replySlot = (uint16_t)slot,
		.replyTag = tag, .context = p->context, .stream = p->stream,
	};
	if (UNLIKELY(p->beside) && p->fixedBytes <= sizeof process.header->reportBody - sizeof head &&
		atomic_load_explicit(&process.header->reportTaken, memory_order_relaxed) != 0)
		return send_beside(p, &head, woke);
	uint32_t index;
	CUresult r = claim(slots, &index);
	if (r != CUDA_SUCCESS)
		return r;
#ifdef __SANITIZE_THREAD__
	/* Earlier users of the slots had published them: the sanitizer cannot see that the host has read them since. */
	for (uint32_t i = 0; i < slots; i++)
		(void)atomic_load_explicit(&slot_at(index + i)->seq, memory_order_acquire);
#endif
	uint8_t *body = slot_at(index)->body;
	memcpy(body, &head, sizeof head);
	if (LIKELY(slots == 1)) {
		body += sizeof head;
		if (p->fixedBytes > 0)
			memcpy(body, p->fixed, p->fixedBytes);
		if (p->tailBytes > 0)
			memcpy(body + p->fixedBytes, p->tail, p->tailBytes);
	} else {
		uint32_t at = put(index, sizeof head, p->fixed, p->fixedBytes);
		put(index, at, p->tail, p->tailBytes);
	}
	for (uint32_t i = 1; i < slots; i++)
		publish(index + i);
	publish(index);
	if (p->sent)
		atomic_fetch_add_explicit(p->sent, 1, memory_order_release); /* not earlier: a thread that reads the count sends its packets later */
	*end = index + slots;
	*woke = wake_poller();
	return CUDA_SUCCESS;
}

/* Returns a failed context's error, which all of its calls return. */
static CUresult sticky(uint32_t context)
{
	if (UNLIKELY(context >= SEGMENT_CONTEXTS))
		return CUDA_ERROR_INVALID_CONTEXT;
	uint32_t poison = atomic_load_explicit(&process.header->contextPoison[context], memory_order_relaxed);
	return LIKELY(poison == 0) ? CUDA_SUCCESS : process_result(poison);
}

static CUresult failed(uint32_t context)
{
	CUresult r = process_check_alive();
	return LIKELY(r == CUDA_SUCCESS) ? sticky(context) : r;
}

static CUresult may_send(const struct packet *p) { return LIKELY(!p->anyway) ? failed(p->context) : process_check_alive(); }

CUresult ring_post_until(const struct packet *p, uint32_t *end)
{
	CUresult r = may_send(p);
	bool woke;
	return UNLIKELY(r != CUDA_SUCCESS) ? r : send(p, 0, 0, 0, &woke, end);
}

CUresult ring_post(const struct packet *p)
{
	uint32_t end;
	return ring_post_until(p, &end);
}

CUresult ring_taken(uint32_t end)
{
	struct segment_header *h = process.header;
	CUresult r = CUDA_SUCCESS;
	for (int i = 0; r == CUDA_SUCCESS; i++) {
		uint32_t head = atomic_load_explicit(&h->head, memory_order_acquire);
		if ((int32_t)(head - end) >= 0)
			return CUDA_SUCCESS;
		if (atomic_load_explicit(&h->held, memory_order_acquire) != 0) {
			r = process_check_alive(); /* a worker that is killed while it waits leaves the flag set */
			return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : r;
		}
		if (i < 1000)
			cpu_relax();
		else
			r = wait_for_head(head, TAKEN_SLICE_NS);
	}
	return r;
}

/*
 * Reply slots. A thread claims one with its first blocking call and keeps it. The last quarter is claimed for single
 * calls only, so that any number of threads can be served.
 */
static struct {
	_Atomic uint64_t *taken; /* bit per slot */
	uint32_t *lastTag;       /* by slot; owned by the slot's holder */
	_Atomic uint32_t held;   /* slots in use */
	_Atomic uint32_t returns; /* futex word: number of slots released so far */
	_Atomic uint32_t waiters;
} slots;

static bool take_slot(uint32_t *slot)
{
	uint32_t words = (process.replySlots + 63) / 64;
	for (uint32_t w = 0; w < words; w++) {
		uint64_t seen = atomic_load_explicit(&slots.taken[w], memory_order_relaxed);
		while (seen != UINT64_MAX) {
			uint32_t bit = (uint32_t)__builtin_ctzll(~seen);
			if (w * 64 + bit >= process.replySlots)
				break;
			if (atomic_compare_exchange_weak_explicit(&slots.taken[w], &seen, seen | UINT64_C(1) << bit,
				memory_order_acquire, memory_order_relaxed)) {
				atomic_fetch_add_explicit(&slots.held, 1, memory_order_relaxed);
				*slot = w * 64 + bit;
				return true;
			}
		}
	}
	return false;
}

static void give_slot(uint32_t slot)
{
	atomic_fetch_and_explicit(&slots.taken[slot / 64], ~(UINT64_C(1) << slot % 64), memory_order_release);
	atomic_fetch_sub_explicit(&slots.held, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&slots.returns, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&slots.waiters, memory_order_seq_cst) != 0)
		futex_wake(&slots.returns, 1);
}

static CUresult wait_for_slot(uint32_t *slot)
{
	while (!take_slot(slot)) {
		uint32_t seen = atomic_load_explicit(&slots.returns, memory_order_seq_cst);
		atomic_fetch_add_explicit(&slots.waiters, 1, memory_order_seq_cst);
		if (take_slot(slot)) {
			atomic_fetch_sub_explicit(&slots.waiters, 1, memory_order_relaxed);
			return CUDA_SUCCESS;
		}
		futex_wait(&slots.returns, seen);
		atomic_fetch_sub_explicit(&slots.waiters, 1, memory_order_relaxed);
		CUresult r = process_check_alive();
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

static CUresult choose_slot(struct call *c)
{
	c->own = false;
	if (LIKELY(thread.replySlot != 0 && !thread.replyBusy)) {
		thread.replyBusy = true;
		c->own = true;
		c->slot = thread.replySlot - 1;
		return CUDA_SUCCESS;
	}
	if (c->holding)
		return take_slot(&c->slot) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	CUresult r = wait_for_slot(&c->slot);
	if (r != CUDA_SUCCESS)
		return r;
	c->own = thread.replySlot == 0 &&
		atomic_load_explicit(&slots.held, memory_order_relaxed) <= process.replySlots - process.replySlots / 4;
	if (c->own) {
		thread_register();
		thread.replySlot = c->slot + 1;
		thread.replyBusy = true;
	}
	return CUDA_SUCCESS;
}

static void leave_slot(struct call *c)
{
	if (c->own)
		thread.replyBusy = false;
	else
		give_slot(c->slot);
}

static void choose_tag(struct call *c)
{
	c->old = slots.lastTag[c->slot];
	c->tag = c->old + 1 == 0 ? 1 : c->old + 1;
}

CUresult call_start(struct call *c, const struct packet *p)
{
	CUresult r = may_send(p);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	r = choose_slot(c);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	choose_tag(c);
	uint32_t end;
	r = send(p, PACKET_WANTS_REPLY, c->slot, c->tag, &c->woke, &end);
	if (UNLIKELY(r != CUDA_SUCCESS)) {
		leave_slot(c);
		return r;
	}
	slots.lastTag[c->slot] = c->tag;
	return CUDA_SUCCESS;
}

/* The condition that a call waits for. */
struct wish {
	struct reply_slot *slot;
	uint32_t tag;
	const struct event_word *event; /* or, if not NULL, a record of this event */
	uint64_t serial;
};

static bool answered(struct reply_slot *s, uint32_t tag)
{
	return atomic_load_explicit(&s->tag, memory_order_acquire) == tag;
}

static inline bool fulfilled(const struct wish *w)
{
	return w->event ? event_reached(w->event, w->serial) : answered(w->slot, w->tag);
}

/* How long a spinning thread keeps the processor without yielding, in nanoseconds. */
#define GREEDY_NS 3000

static bool spin(struct wish w)
{
	uint32_t budget = atomic_load_explicit(&process.header->spinNanoseconds, memory_order_relaxed);
	if (budget == 0)
		return fulfilled(&w);
	int64_t begin = 0;
	for (;;) {
		for (int i = 0; i < 32; i++) {
			if (fulfilled(&w))
				return true;
			cpu_relax();
		}
		int64_t now = clock_ns(CLOCK_MONOTONIC);
		if (begin == 0)
			begin = now;
		else if (now - begin >= budget)
			return false;
		else if (now - begin > GREEDY_NS)
			sched_yield(); /* the worker may need this processor */
	}
}

/*
 * The process has failed while a call waits: a reply that arrived just before counts. The host does not clear waiting:
 * it may be late, and another call may wait here by then.
 */
static CUresult sleep_for(struct call *c, struct reply_slot *s)
{
	CUresult r = CUDA_SUCCESS;
	for (;;) {
		atomic_store_explicit(&s->waiting, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
		uint32_t seen = atomic_load_explicit(&s->tag, memory_order_acquire);
		if (seen == c->tag) {
			atomic_store_explicit(&s->waiting, 0, memory_order_relaxed);
			return CUDA_SUCCESS;
		}
		if (r != CUDA_SUCCESS)
			return r;
		sleep_on(&s->tag, seen, FUTEX_SLICE_NS);
		if (answered(s, c->tag))
			continue;
		atomic_store_explicit(&process.checkNext, 0, memory_order_relaxed);
		r = process_check_alive();
	}
}

CUresult call_finish(struct call *c, void *reply, uint32_t replyBytes, uint32_t *got)
{
	struct reply_slot *s = &process.replies[c->slot];
	if (UNLIKELY(c->woke) && !answered(s, c->tag))
		sched_yield(); /* the poller often wakes on the waking thread's processor */
	if (c->patient || !spin((struct wish){.slot = s, .tag = c->tag})) {
		CUresult r = sleep_for(c, s);
		if (UNLIKELY(r != CUDA_SUCCESS))
			return r; /* the slot stays claimed: a reply may still arrive */
	}
	uint32_t length = s->length;
	CUresult r = (CUresult)s->result;
	if (length > REPLY_DATA)
		length = REPLY_DATA;
	if (length > replyBytes)
		length = replyBytes;
	if (length > 0)
		memcpy(reply, s->data, length);
	if (got)
		*got = length;
	leave_slot(c);
	return LIKELY(r == CUDA_SUCCESS) ? r : process_result((uint32_t)r);
}

CUresult ring_call(const struct packet *p, void *reply, uint32_t replyBytes)
{
	struct call c = {0};
	CUresult r = call_start(&c, p);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	uint32_t got = 0;
	r = call_finish(&c, reply, replyBytes, &got);
	if (r == CUDA_SUCCESS && got != replyBytes)
		return CUDA_ERROR_UNKNOWN;
	return r;
}

CUresult ring_wait(const struct packet *p, bool asleep)
{
	struct call c = {.patient = asleep};
	CUresult r = call_start(&c, p);
	return r == CUDA_SUCCESS ? call_finish(&c, NULL, 0, NULL) : r;
}

static CUresult hopeless(const struct record *r)
{
	if (atomic_load_explicit(&r->event->handle, memory_order_relaxed) != r->handle)
		return CUDA_ERROR_NOT_READY;
	return failed(r->context);
}

/*
 * Sleeps until the record has completed, the host has answered the thread (whose slot and tag are in the event's word),
 * or no answer can arrive any more.
 */
static CUresult sleep_at(const struct record *record, uint64_t name, struct call *c)
{
	struct reply_slot *s = &process.replies[c->slot];
	CUresult r = CUDA_SUCCESS;
	for (;;) {
		atomic_store_explicit(&s->waiting, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
		uint32_t seen = atomic_load_explicit(&s->tag, memory_order_acquire);
		if (seen == c->tag || r != CUDA_SUCCESS || event_reached(record->word, record->serial))
			break;
		sleep_on(&s->tag, seen, FUTEX_SLICE_NS);
		atomic_store_explicit(&process.checkNext, 0, memory_order_relaxed);
		r = hopeless(record);
	}
	atomic_store_explicit(&s->waiting, 0, memory_order_relaxed);
	if (answered(s, c->tag))
		return CUDA_SUCCESS;
	if (atomic_compare_exchange_strong(&record->word->waiter, &name, 0)) {
		slots.lastTag[c->slot] = c->old; /* the tag stays unused */
		return r;
	}
	CUresult answer = sleep_for(c, s); /* it will arrive */
	c->lost = answer != CUDA_SUCCESS;
	return r != CUDA_SUCCESS ? r : answer;
}

/* One attempt; the host's answer may have been for an earlier record of the event. */
static CUresult wait_at(const struct record *record)
{
	struct call c = {0};
	CUresult r = choose_slot(&c);
	if (r != CUDA_SUCCESS)
		return r;
	choose_tag(&c);
	uint64_t nobody = 0, name = (uint64_t)c.tag << 32 | (c.slot + 1);
	if (!atomic_compare_exchange_strong(&record->word->waiter, &nobody, name)) {
		leave_slot(&c);
		return CUDA_ERROR_NOT_READY;
	}
	slots.lastTag[c.slot] = c.tag;
	r = sleep_at(record, name, &c);
	if (!c.lost)
		leave_slot(&c);
	return r;
}

CUresult record_wait(const struct record *record, bool asleep)
{
	CUresult r = failed(record->context);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	if (asleep || !spin((struct wish){.event = record->word, .serial = record->serial}))
		while (!event_reached(record->word, record->serial)) {
			r = wait_at(record);
			if (r != CUDA_SUCCESS)
				return r;
		}
	r = sticky(record->context); /* errors before the record have arrived by now */
	if (r == CUDA_SUCCESS && atomic_load_explicit(&process.header->contextOwes[record->context], memory_order_relaxed) != 0)
		return CUDA_ERROR_NOT_READY;
	return r;
}

void call_release_thread(void)
{
	if (thread.replySlot == 0)
		return;
	if (!thread.replyBusy)
		give_slot(thread.replySlot - 1);
	thread.replySlot = 0;
	thread.replyBusy = false;
}

CUresult call_reset(void)
{
	_Atomic uint64_t *taken = calloc((process.replySlots + 63) / 64, sizeof *taken);
	uint32_t *tags = calloc(process.replySlots, sizeof *tags);
	if (!taken || !tags) {
		free(taken);
		free(tags);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	free(slots.taken);
	free(slots.lastTag);
	slots.taken = taken;
	slots.lastTag = tags;
	atomic_store_explicit(&slots.held, 0, memory_order_relaxed);
	return CUDA_SUCCESS;
}
