/* Checks that the generated exports run before each call. */
#ifndef PEGASUS_ENTRY_H
#define PEGASUS_ENTRY_H

#include "core/process.h"

/* Flags of pg_enter. */
#define ENTER_UNSAFE 1 /* the call can disturb a capture, or wait for work that the capture holds back */

/* Number of capturing streams, and the check of the calling thread's capture mode: see capture.h. */
extern _Atomic uint32_t captures_running;
CUresult capture_forbids(void);

/*
 * Returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and invalidates the capture, if the modes of a capture and of the
 * calling thread forbid unsafe calls.
 */
static inline CUresult capture_permits(void) { return LIKELY(captures_running == 0) ? CUDA_SUCCESS : capture_forbids(); }

/*
 * Returns CUDA_SUCCESS or the error that every API call returns in the current state: not initialised, poisoned, worker
 * lost, or called from a host callback, where a blocking call would deadlock.
 */
static inline CUresult pg_enter(int flags)
{
	CUresult r = process_enter();
	if (UNLIKELY(thread.inCallback) && r == CUDA_SUCCESS)
		return CUDA_ERROR_NOT_PERMITTED;
	return (flags & ENTER_UNSAFE) && r == CUDA_SUCCESS ? capture_permits() : r;
}

/* Result of an API symbol without implementation; logs each name once. */
CUresult pg_unsupported(const char *symbol);

#endif
