/*
 * Positions in streams at which pool memory was freed, and the order of later work relative to them. Memory of a pool
 * is free from a position of a stream on: later work of the same stream is ordered after it; work of another stream is
 * if that stream waits for an event that was recorded after the position, or if all work before the position has
 * completed.
 *
 * The functions take no lock: the caller holds the lock of the pools, except for timeline_recorded, timeline_waits and
 * timeline_stream_ends, which take it themselves.
 */
#ifndef PEGASUS_OBJECT_STREAM_TIMELINE_H
#define PEGASUS_OBJECT_STREAM_TIMELINE_H

#include "object/stream.h"

extern pthread_mutex_t timelineLock; /* the lock of the pools */

/* Sets *now to the current position of a stream; false if memory is exhausted. */
bool position_now(const struct stream_ref *ref, struct stream_position *now);
/* Reports whether one position stands for both, and sets *both to it. */
bool position_merge(const struct stream_position *a, const struct stream_position *b, struct stream_position *both);
/*
 * Reports whether work queued to a stream from now on is ordered after the position anyway; events: take the stream's
 * event waits into account.
 */
bool position_before(const struct stream_position *m, const struct stream_ref *ref, bool events);
/* Reports whether all work before the position has completed, as far as the guest can determine without waiting. */
bool position_passed(const struct stream_position *m);
/* Orders work queued to a stream from now on after the position. */
CUresult position_await(const struct stream_position *m, const struct stream_ref *ref);
/* Reports whether the position is in a stream of that context, or is the zero value. */
bool position_within(const struct stream_position *m, uint64_t context);

/* Called before an event is recorded in a stream. */
void timeline_recorded(struct event *e, const struct stream_ref *ref);
/* Called after a stream was made to wait for an event. */
void timeline_waits(const struct stream_ref *ref, const struct event *e);
/* Called before a stream is destroyed. */
void timeline_stream_ends(struct stream *s);
/* Called after a context was destroyed and its work has ended. */
void timeline_context_ended(uint64_t context);

#endif
