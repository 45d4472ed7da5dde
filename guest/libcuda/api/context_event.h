/* Events of all work of a context. */
#ifndef PEGASUS_API_CONTEXT_EVENT_H
#define PEGASUS_API_CONTEXT_EVENT_H

#include "object/object.h"

/* Orders a new stream after the event waits of its context. */
CUresult stream_joins(struct context *c, struct stream *s);

#endif
