/*
 * Streams, and the default streams: the legacy one that all threads share, and one for each thread, which on the wire is
 * an ordinary stream.
 */
#ifndef PEGASUS_OBJECT_STREAM_H
#define PEGASUS_OBJECT_STREAM_H

#include "object/context.h"

#define WIRE_LEGACY 0

/* A stream reference: the target of work, in the form that packets use. */
struct stream_ref {
	uint32_t context;
	uint64_t stream; /* the stream's handle, or WIRE_LEGACY */
	uint64_t contextHandle;
	struct completion_marker *marker;
	struct stream *capturing; /* the stream, if it is capturing, else NULL: see graph/capture.h */
};

enum { STREAM_PRIORITY_LEAST = 0, STREAM_PRIORITY_GREATEST = -5 };

/*
 * Resolves a program's stream handle for the calling thread, whether or not the stream captures; fails with the
 * context's sticky error if it has failed. Calls that submit work use stream_resolve and stream_resolve_any of
 * graph/capture.h.
 */
CUresult stream_ref_of(CUstream handle, struct stream_ref *ref);
/* Looks up a stream and its context; *s is NULL for a default stream, whose context is the current one. */
CUresult stream_look_up(CUstream handle, struct stream **s, struct context **c);
/*
 * Reports whether threads that wait for a stream sleep instead of spinning, by the stream's setting, else the
 * context's.
 */
bool stream_sleeps(const struct stream_ref *ref);
/* Blocks until all work queued to a stream has completed. */
CUresult stream_wait(const struct stream_ref *ref);

/* Returns the nearest supported priority. */
int stream_priority(int wanted);
/* Creates an empty stream of a context. */
CUresult stream_create(struct context *c, uint32_t flags, int priority, struct stream **created);
/*
 * Removes one of the calling thread's default streams from its list: *s is the stream, or NULL if it was destroyed with
 * its context. Returns false if the list is empty.
 */
bool stream_take_default(struct stream **s);

#endif
