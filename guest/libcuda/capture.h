/*
 * Stream capture: what is submitted to a stream becomes a graph's nodes instead
 * of work. Other streams join where they wait for an event that was recorded in
 * the capture.
 *
 * Nothing of a stream that captures goes to the host, and nothing that would
 * have to: what can't be captured is refused, and makes the capture invalid.
 */
#ifndef PEGASUS_CAPTURE_H
#define PEGASUS_CAPTURE_H

#include "copy.h"
#include "graph.h"

extern _Atomic uint32_t captures_running;

static inline bool captures_any(void) { return atomic_load_explicit(&captures_running, memory_order_relaxed) != 0; }

/* Whether the legacy stream of a context may be used: not while one that keeps order with it captures. */
CUresult capture_implies(uint64_t context);
/* Whether something may concern all streams of a context: not while one captures, in whatever mode. */
CUresult capture_refuse_context(uint64_t context);
/* Refuses what can't be captured, or depends on what has not happened. */
CUresult capture_refuse(struct stream *s);
/* The same, but the capture stays valid. */
CUresult capture_refuse_only(struct stream *s);
CUresult capture_refuse_event(struct event *e);

/* A node of what was to be submitted to a place that captures. */
CUresult capture_kernel(const struct parcel *p, CUfunction handle, const struct function *f);
CUresult capture_copy(const struct place *place, const struct box *box);
CUresult capture_fill(const struct place *place, const struct fill_args *args);
CUresult capture_host(const struct place *place, CUhostFn function, void *data);
CUresult capture_alloc(const struct place *place, CUDA_MEM_ALLOC_NODE_PARAMS *p);
CUresult capture_free(const struct place *place, CUdeviceptr address);
CUresult capture_record(const struct place *place, struct event *e, bool external);

/* A place waits for an event, one of which is in a capture. */
CUresult capture_wait(const struct place *place, struct event *e, bool external);

/* A stream ends. */
void capture_stream_gone(struct stream *s);
/* An event ends, or was recorded outside of captures; with the graphs' lock held, or without. */
void capture_event_forget(struct event *e);
void capture_event_gone(struct event *e);

#endif
