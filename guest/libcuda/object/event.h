#ifndef PEGASUS_EVENT_H
#define PEGASUS_EVENT_H

#include "object/object.h"
#include "core/ring.h"
#include "object/stream.h"
#include "core/zz_wire.h"

/*
 * Returns the event's completion word. Live events never share a word: the host's table of words is larger than the
 * table of events.
 */
static inline struct event_word *event_word_of(const struct event *e)
{
	return &process.events[e->object.id & (process.eventWords - 1)];
}

CUresult event_create(struct context *c, uint32_t flags, struct event **created);
CUresult event_destroy(struct event *e);
/* Records the event in a stream of the event's context. */
CUresult event_record(struct event *e, const struct place *place);
/* Blocks until the event's latest record has completed. */
CUresult event_settle(struct event *e);
/*
 * Posts a packet that records several events in a stream; fills records, which are part of the packet, with the events'
 * ids and next serials.
 */
CUresult event_record_many(struct event *const *all, uint32_t count, struct event_record_args *records, const struct place *place, const struct packet *p);

#endif
