#ifndef PEGASUS_EVENT_H
#define PEGASUS_EVENT_H

#include "object.h"

/* An event's word is shared by no other living event: the table of words is larger than ours. */
static inline struct event_word *event_word_of(const struct event *e)
{
	return &process.events[e->object.id & (process.eventWords - 1)];
}

CUresult event_create(struct context *c, uint32_t flags, struct event **created);
CUresult event_destroy(struct event *e);

#endif
