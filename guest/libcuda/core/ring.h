/* Submission of packets to the ring, and calls that wait for a reply. */
#ifndef PEGASUS_CORE_RING_H
#define PEGASUS_CORE_RING_H

#include "core/handle.h"
#include "core/process.h"

/* A packet to be sent. The payload is fixed followed by tail. */
struct packet {
	uint16_t op;
	uint32_t context;
	uint64_t stream;
	const void *fixed;
	uint32_t fixedBytes;
	const void *tail;
	uint32_t tailBytes;
	bool beside; /* bypasses the ring, if the host supports it. One thread at a time; small packets only */
	bool anyway; /* sent also to a context that has failed */
	_Atomic uint64_t *sent; /* incremented with the packet, unless NULL */
};

/* A call in progress: its packet was sent, and its reply arrives in slot. */
struct call {
	uint32_t slot, tag, old;
	bool own;      /* the thread's own slot */
	bool woke;     /* the call had to wake the poller */
	bool lost;     /* a reply may still arrive: the slot stays claimed */
	bool patient;  /* sleep at once: latency does not matter */
	bool holding;  /* the thread has another call in progress: return CUDA_ERROR_NOT_READY rather than wait for a slot */
};

/* Queues a packet. Blocks while the ring is full, for a bounded time. */
CUresult ring_post(const struct packet *p);
/* As ring_post; sets *end to the packet's end in the ring. */
CUresult ring_post_until(const struct packet *p, uint32_t *end);
/*
 * Blocks until the host has consumed all packets before end: CUDA_ERROR_NOT_READY if the host's gate holds it back
 * before that position.
 */
CUresult ring_taken(uint32_t end);

/* Queues a packet that requests a reply. After success call_finish must be called. */
CUresult call_start(struct call *c, const struct packet *p);
/* Blocks until the reply arrives, copies up to replyBytes of its data and sets *got to the length of the data. */
CUresult call_finish(struct call *c, void *reply, uint32_t replyBytes, uint32_t *got);

/* Both in one; the data of a successful reply must have exactly replyBytes. */
CUresult ring_call(const struct packet *p, void *reply, uint32_t replyBytes);
/* As ring_call for a long call without reply data; asleep: do not spin for the reply at all. */
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
 * Blocks until a record has completed. CUDA_ERROR_NOT_READY means that the caller must use a call in the ring: another
 * thread waits for this event, the event is destroyed, or the context has an error to fetch.
 */
CUresult record_wait(const struct record *r, bool asleep);

static inline bool event_reached(const struct event_word *w, uint64_t serial)
{
	return atomic_load_explicit(&w->completed, memory_order_acquire) >= serial;
}

/* Releases the calling thread's reply slot. */
void call_release_thread(void);
/* Marks all slots as unclaimed, for a new segment. */
CUresult call_reset(void);

#endif
