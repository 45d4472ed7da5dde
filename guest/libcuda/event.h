#ifndef PEGASUS_EVENT_H
#define PEGASUS_EVENT_H

#include "object.h"
#include "ring.h"
#include "stream.h"
#include "zz_wire.h"

/* An event's word is shared by no other living event: the table of words is larger than ours. */
static inline struct event_word *event_word_of(const struct event *e)
{
	return &process.events[e->object.id & (process.eventWords - 1)];
}

CUresult event_create(struct context *c, uint32_t flags, struct event **created);
CUresult event_destroy(struct event *e);
/* Records an event of the place's context there. */
CUresult event_record(struct event *e, const struct place *place);
/* Waits until its latest record has completed. */
CUresult event_settle(struct event *e);
/* Posts a packet that records events in a place, of which records, that it brings, say what they are and their next serials. */
CUresult event_record_many(struct event *const *all, uint32_t count, struct event_record_args *records, const struct place *place, const struct packet *p);

#endif
