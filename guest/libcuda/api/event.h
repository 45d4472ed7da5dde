/* Events beyond their records: waits that look at captures. */
#ifndef PEGASUS_API_EVENT_H
#define PEGASUS_API_EVENT_H

#include "object/object.h"

/* Blocks until the event's latest record has completed. */
CUresult event_settle(struct event *e);

#endif
