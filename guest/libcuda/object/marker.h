/*
 * Completion markers: they show whether a stream has pending work without a call in the ring, which would block while
 * the host's gate is closed.
 */
#ifndef PEGASUS_OBJECT_MARKER_H
#define PEGASUS_OBJECT_MARKER_H

#include "object/stream.h"

/* Returns CUDA_SUCCESS if all work of a stream has completed, CUDA_ERROR_NOT_READY if not, or an error. */
CUresult marker_query(const struct stream_ref *ref);
/* Numbers of packets: of a stream itself, and of all streams that a wait for it covers. */
struct sent {
	uint64_t own, all;
};
/*
 * Reports whether all work that a wait for a stream covers has completed, as far as earlier blocking calls have found;
 * sets *sent to the numbers of packets sent.
 */
bool marker_completed(const struct stream_ref *ref, struct sent *sent);
/* Records that a blocking call found so many packets of a stream completed. */
void marker_set_completed(const struct stream_ref *ref, const struct sent *sent);
/*
 * Retires the marker of a stream that is destroyed, so that lookups miss it. True for exactly one of several concurrent
 * callers.
 */
bool marker_retire(struct stream *stream);

#endif
