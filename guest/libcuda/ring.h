/*
 * The way into the ring and back: packets, and calls that wait for a reply.
 */
#ifndef PEGASUS_RING_H
#define PEGASUS_RING_H

#include "handle.h"
#include "process.h"

/* One packet to be sent. The payload is fixed followed by tail. */
struct packet {
	uint16_t op;
	uint32_t context;
	uint64_t stream;
	const void *fixed;
	uint32_t fixedBytes;
	const void *tail;
	uint32_t tailBytes;
	bool beside; /* the ring, if the host looks there: it must not wait for what is in the ring. Of one thread at a time, and small */
	bool anyway; /* also to a context that has failed */
	_Atomic uint64_t *sent; /* counts it, if not NULL */
};

/* A call under way: a packet was sent, its reply is waited for in slot. */
struct call {
	uint32_t slot, tag, old;
	bool own;      /* the thread's own slot */
	bool woke;     /* the poller had to be woken */
	bool lost;     /* an answer may still come: the slot stays taken */
	bool patient;  /* sleep at once: nobody is in a hurry */
	bool holding;  /* the thread has another call under way: rather fail with CUDA_ERROR_NOT_READY than wait for a slot */
};

/* Queues a packet. Waits while the ring is full, but not for ever. */
CUresult ring_post(const struct packet *p);
/* The same; *end says where in the ring it ends. */
CUresult ring_post_until(const struct packet *p, uint32_t *end);
/* Waits until the host has taken what is before end: CUDA_ERROR_NOT_READY if it waits itself, for its gate, before it comes there. */
CUresult ring_taken(uint32_t end);

/* Queues a packet that wants a reply. After success call_finish must be called. */
CUresult call_start(struct call *c, const struct packet *p);
/* Waits for the reply and copies up to replyBytes of its data; *got says how much came. */
CUresult call_finish(struct call *c, void *reply, uint32_t replyBytes, uint32_t *got);

/* Both: the reply has to have exactly replyBytes if it is a success. */
CUresult ring_call(const struct packet *p, void *reply, uint32_t replyBytes);
/* The same for a call without an answer's data that may take long; asleep says not to spin for it at all. */
CUresult ring_wait(const struct packet *p, bool asleep);

/* A record of an event. */
struct record {
	struct event_word *word;
	uint64_t serial;
	uint32_t context;
	const struct object *event;
	uint64_t handle; /* of the event, while it is alive */
};

/*
 * Waits until a record has completed. CUDA_ERROR_NOT_READY means that a call in
 * the ring has to do it: another thread waits for this event, the event is gone,
 * or the context owes an error.
 */
CUresult record_wait(const struct record *r, bool asleep);

static inline bool event_reached(const struct event_word *w, uint64_t serial)
{
	return atomic_load_explicit(&w->completed, memory_order_acquire) >= serial;
}

/* Gives the calling thread's reply slot back. */
void call_release_thread(void);
/* Forgets all slots' users; for a fresh segment. */
CUresult call_reset(void);

#endif
