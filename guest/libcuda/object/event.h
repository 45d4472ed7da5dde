/*
 * Events. A record carries a serial number; the host stores it in the event's word of the segment when the record has
 * completed, so a query is a load.
 */
#ifndef PEGASUS_OBJECT_EVENT_H
#define PEGASUS_OBJECT_EVENT_H

#include "core/ring.h"
#include "core/zz_wire.h"
#include "object/stream.h"

/*
 * Returns the event's completion word. Live events never share a word: the host's table of words is larger than the
 * table of events.
 */
static inline struct event_word *event_word_of(const struct event *e)
{
	return &process.events[e->object.id & (process.eventWords - 1)];
}

CUresult event_create(struct context *c, uint32_t flags, struct event **created);
/* Destroys an internal event, which is in no capture. */
CUresult event_destroy(struct event *e);
/* Destroys an event that the caller has retired. */
CUresult event_free(struct event *e);
/* Records the event in a stream of the event's context. */
CUresult event_record(struct event *e, const struct stream_ref *ref);
/*
 * Posts a packet that records several events in a stream; fills records, which are part of the packet, with the events'
 * ids and next serials.
 */
CUresult event_record_many(struct event *const *all, uint32_t count, struct event_record_args *records, const struct stream_ref *ref, const struct packet *p);
/* Makes a stream wait for the event's latest record. */
CUresult event_wait(const struct event *e, const struct stream_ref *ref);

#endif
