#ifndef PEGASUS_STREAM_H
#define PEGASUS_STREAM_H

#include "object.h"

#define WIRE_LEGACY 0

/* A stream reference: the target of work, in the form that packets use. */
struct place {
	uint32_t context;
	uint64_t stream; /* the stream's handle, or WIRE_LEGACY */
	uint64_t contextHandle;
	struct mark *mark;
	struct stream *capturing; /* the stream, if it is capturing, else NULL: see capture.h */
};

/*
 * Resolves a program's stream handle for the calling thread; fails with the context's sticky error if it has failed.
 * Rejects a capturing stream, for calls that cannot be captured.
 */
CUresult stream_resolve(CUstream handle, struct place *place);
/* As stream_resolve for callers that handle capturing streams. */
CUresult stream_resolve_any(CUstream handle, struct place *place);
/* As stream_resolve for callers that submit nothing, whether or not the stream captures. */
CUresult stream_place(CUstream handle, struct place *place);
/*
 * Looks up a stream and its context; *s is NULL for the legacy stream of the current context. out, a result pointer of
 * the caller, must not be NULL.
 */
CUresult stream_look_up(CUstream handle, const void *out, struct stream **s, struct context **c);
/*
 * Reports whether threads that wait for a stream sleep instead of spinning, by the stream's setting, else the
 * context's.
 */
bool stream_sleeps(const struct place *place);
/* Blocks until all work queued to a stream has completed. */
CUresult stream_wait(const struct place *place);

/* Returns the nearest supported priority. */
int stream_priority(int wanted);
/* Creates an empty stream of a context. */
CUresult stream_create(struct context *c, uint32_t flags, struct stream **created);
/* Orders a new stream after the event waits of its context. */
CUresult stream_joins(struct context *c, struct stream *s);

/* Numbers of packets: of a stream itself, and of all streams that a wait for it covers. */
struct sent {
	uint64_t own, all;
};
/*
 * Reports whether all work that a wait for a stream covers has completed, as far as earlier blocking calls have found;
 * sets *sent to the numbers of packets sent.
 */
bool mark_ended(const struct place *place, struct sent *sent);
/* Records that a blocking call found so many packets of a stream completed. */
void mark_waited(const struct place *place, const struct sent *sent);
/*
 * Retires the marker of a stream that is destroyed, so that lookups miss it. True for exactly one of several concurrent
 * callers.
 */
bool mark_retire(struct stream *stream);

/* Destroys the default streams of the calling thread, which ends. */
void stream_release_thread(void);
/* Drops streams, events, arrays and textures of a context that is destroyed. */
void stream_context_gone(uint64_t context);
/* Called after a context was destroyed, without locks: runs its pending callbacks with an error. */
void callback_context_gone(uint64_t serial);
/*
 * Blocks until the callbacks of a context that is about to be destroyed have run, however long its work takes, since
 * programs free the resources of the work in them. Returns early when the context or the worker has failed, when a
 * running callback is blocked, since it may wait for the caller, and in a program with stream memory waits, which may
 * never be satisfied.
 */
void callback_await(uint64_t serial, uint32_t wire);
extern _Atomic bool memopWaits; /* some stream was made to wait for a memory word */
/*
 * Registers a callback of a graph, which the host may run any number of times until it is dropped. It receives no
 * errors.
 */
CUresult callback_keep(CUhostFn function, void *userData, uint64_t *id);
void callback_drop(uint64_t id);

#endif
