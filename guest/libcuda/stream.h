#ifndef PEGASUS_STREAM_H
#define PEGASUS_STREAM_H

#include "object.h"

#define WIRE_LEGACY 0

/* Where work goes: a stream of a context, as packets name them. */
struct place {
	uint32_t context;
	uint64_t stream; /* its handle, or WIRE_LEGACY */
	uint64_t contextHandle;
	struct mark *mark;
	struct stream *capturing; /* it, if it captures what is submitted to it: see capture.h */
};

/*
 * What a program's stream handle means to the calling thread, unless the
 * context has failed: then its sticky error. A stream that captures is refused,
 * as for all that can't be captured.
 */
CUresult stream_resolve(CUstream handle, struct place *place);
/* The same for callers who look whether it captures. */
CUresult stream_resolve_any(CUstream handle, struct place *place);
/* The same for callers who submit nothing, and don't mind what captures. */
CUresult stream_place(CUstream handle, struct place *place);
/* A stream object and its context; NULL for the legacy stream of the current one. out must not be NULL. */
CUresult stream_look_up(CUstream handle, const void *out, struct stream **s, struct context **c);
/* Whether threads that wait for a place are to sleep, by what was set of the stream, else of its context. */
bool stream_sleeps(const struct place *place);
/* Waits for all work queued to a place. */
CUresult stream_wait(const struct place *place);

/* The nearest priority that there is. */
int stream_priority(int wanted);
/* A stream of a context, in which nothing is queued. */
CUresult stream_create(struct context *c, uint32_t flags, struct stream **created);
/* A stream was created: it comes after what the context has waited for. */
CUresult stream_joins(struct context *c, struct stream *s);

/* Whether all that was sent to a place has ended, as far as calls that waited for it know; *sent is how much that was. */
bool mark_ended(const struct place *place, uint64_t *sent);
/* A call that waited for the place, after so much was sent, found that all of it has ended. */
void mark_waited(const struct place *place, uint64_t sent);
/* A stream goes, and so does its mark: nobody finds it any more. True for the one caller who did it. */
bool mark_retire(struct stream *stream);

/* The calling thread ends: so do its default streams. */
void stream_release_thread(void);
/* A context ends: its streams, events, arrays and textures do. */
void stream_context_gone(uint64_t context);
/* A context has ended: its callbacks will not be due any more, and run now, with an error. Takes no lock with it. */
void callback_context_gone(uint64_t serial);
/*
 * Waits until the callbacks of a context that is about to end have run, however long its work takes: programs that end free by
 * them what the work used. Returns early when the context or the worker has failed, when a callback that runs is blocked, since it
 * may wait for the caller, and in a program whose streams wait for words, since these may never be written.
 */
void callback_await(uint64_t serial, uint32_t wire);
extern _Atomic bool memopWaits; /* a stream was ever told to wait for a word */
/* A callback of a graph, which the host may have run again and again until it is dropped. Errors it doesn't hear of. */
CUresult callback_keep(CUhostFn function, void *userData, uint64_t *id);
void callback_drop(uint64_t id);

#endif
