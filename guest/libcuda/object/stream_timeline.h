/*
 * Positions in streams at which pool memory was freed, and the order of later work relative to them. Memory of a pool
 * is free from a position of a stream on: later work of the same stream is ordered after it; work of another stream is
 * if that stream waits for an event that was recorded after the position, or if all work before the position has
 * completed.
 *
 * The functions take no lock: the caller holds the lock of the pools, except for moment_recorded, moment_waits and
 * moment_stream_ends, which take it themselves.
 */
#ifndef PEGASUS_MOMENT_H
#define PEGASUS_MOMENT_H

#include "object/stream.h"

extern pthread_mutex_t momentLock; /* the lock of the pools */

/* Sets *now to the current position of a stream; false if memory is exhausted. */
bool moment_now(const struct place *place, struct moment *now);
/* Reports whether one position stands for both, and sets *both to it. */
bool moment_merge(const struct moment *a, const struct moment *b, struct moment *both);
/*
 * Reports whether work queued to a stream from now on is ordered after the position anyway; events: take the stream's
 * event waits into account.
 */
bool moment_before(const struct moment *m, const struct place *place, bool events);
/* Reports whether all work before the position has completed, as far as the guest can determine without waiting. */
bool moment_passed(const struct moment *m);
/* Orders work queued to a stream from now on after the position. */
CUresult moment_await(const struct moment *m, const struct place *place);
/* Reports whether the position is in a stream of that context, or is the zero value. */
bool moment_within(const struct moment *m, uint64_t context);

/* Called before an event is recorded in a stream. */
void moment_recorded(struct event *e, const struct place *place);
/* Called after a stream was made to wait for an event. */
void moment_waits(const struct place *place, const struct event *e);
/* Called before a stream is destroyed. */
void moment_stream_ends(struct stream *s);
/* Called after a context was destroyed and its work has ended. */
void moment_context_ended(uint64_t context);

#endif
