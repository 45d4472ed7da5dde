/*
 * When in a stream memory was let go of, and what comes after that. Memory of a pool is free from a point of a stream on: work
 * of the same stream comes after it anyway; other work does if its stream waits for an event that was recorded behind that
 * point, or if all before it has ended.
 *
 * Nothing here takes a lock of its own: callers hold the lock of the pools, which moment_recorded, moment_waits and
 * moment_stream_ends take themselves.
 */
#ifndef PEGASUS_MOMENT_H
#define PEGASUS_MOMENT_H

#include "stream.h"

extern pthread_mutex_t momentLock; /* the lock of the pools */

/* Now, in a place; false if there is no room to remember it. */
bool moment_now(const struct place *place, struct moment *now);
/* Whether two points can be spoken of as one, which is then *both. */
bool moment_merge(const struct moment *a, const struct moment *b, struct moment *both);
/* Whether work that is queued to a place from now on comes after it anyway; events: also by those that its stream waits for. */
bool moment_before(const struct moment *m, const struct place *place, bool events);
/* Whether all work before it has ended, as far as is known without waiting. */
bool moment_passed(const struct moment *m);
/* Has work that is queued to a place from now on come after it. */
CUresult moment_await(const struct moment *m, const struct place *place);
/* Whether it is in a stream of that context, or long ago. */
bool moment_within(const struct moment *m, uint64_t context);

/* An event is recorded in a place: called before. */
void moment_recorded(struct event *e, const struct place *place);
/* A place waits for an event: called after. */
void moment_waits(const struct place *place, const struct event *e);
/* A stream is about to end. */
void moment_stream_ends(struct stream *s);
/* A context has ended: all its work has. */
void moment_context_ended(uint64_t context);

#endif
