/*
 * Stream capture: work that is submitted to a capturing stream becomes nodes of a graph. Another stream joins the
 * capture when it waits for an event that was recorded in the capture.
 *
 * A capturing stream sends nothing to the host. A call that cannot be captured fails and invalidates the capture.
 */
#ifndef PEGASUS_GRAPH_CAPTURE_H
#define PEGASUS_GRAPH_CAPTURE_H

#include "work/copy.h"
#include "graph/graph.h"

extern _Atomic uint32_t captures_running;

static inline bool captures_any(void) { return atomic_load_explicit(&captures_running, memory_order_relaxed) != 0; }

/* Checks that the context's legacy stream may be used: no stream that synchronises with it is capturing. */
CUresult capture_implies(uint64_t context);
/* Checks that a call may affect all streams of the context: no stream of the context is capturing, in any mode. */
CUresult capture_refuse_context(uint64_t context);
/* Rejects a call that cannot be captured, or has a result that depends on work that has not run; invalidates the capture. */
CUresult capture_refuse(struct stream *s);
/* As capture_refuse, but the captures stay valid. */
CUresult capture_refuse_only(struct stream *s);
CUresult capture_refuse_event(struct event *e);

/*
 * Resolves a program's stream handle for a call that submits work and handles a capturing stream; fails with the
 * context's sticky error if it has failed.
 */
static inline CUresult stream_resolve_any(CUstream handle, struct stream_ref *ref)
{
	CUresult r = stream_ref_of(handle, ref);
	if (UNLIKELY(captures_any()) && r == CUDA_SUCCESS && ref->stream == WIRE_LEGACY)
		r = capture_implies(ref->contextHandle);
	return r;
}

/* As stream_resolve_any for a call that cannot be captured: rejects a capturing stream. */
static inline CUresult stream_resolve(CUstream handle, struct stream_ref *ref)
{
	CUresult r = stream_resolve_any(handle, ref);
	return LIKELY(r != CUDA_SUCCESS || !ref->capturing) ? r : capture_refuse(ref->capturing);
}

/*
 * Checks that the modes of a capture and of the calling thread permit a call that can disturb a capture; otherwise
 * invalidates the capture and returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
 */
CUresult capture_forbids(void);
static inline CUresult capture_permits(void) { return LIKELY(captures_running == 0) ? CUDA_SUCCESS : capture_forbids(); }

/* Each adds a node to the capture of a stream reference in place of submitting the work. */
CUresult capture_kernel(const struct packed_launch *p, CUfunction handle, const struct function *f);
CUresult capture_copy(const struct stream_ref *ref, const struct box *box);
CUresult capture_fill(const struct stream_ref *ref, const struct fill_args *args);
CUresult capture_host(const struct stream_ref *ref, CUhostFn function, void *data);
CUresult capture_alloc(const struct stream_ref *ref, CUDA_MEM_ALLOC_NODE_PARAMS *p);
CUresult capture_free(const struct stream_ref *ref, CUdeviceptr address);
CUresult capture_record(const struct stream_ref *ref, struct event *e, bool external);

/* Makes a stream reference wait for an event; the stream or the event's record belongs to a capture. */
CUresult capture_wait(const struct stream_ref *ref, struct event *e, bool external);

/* Removes a stream that is destroyed from its capture. */
void capture_stream_gone(struct stream *s);
/*
 * Drops the captured record of an event that is destroyed or was recorded outside of captures; _forget expects the
 * graphs' lock, _gone takes it.
 */
void capture_event_forget(struct event *e);
void capture_event_gone(struct event *e);

#endif
