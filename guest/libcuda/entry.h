/* What the generated exports call before anything else. */
#ifndef PEGASUS_ENTRY_H
#define PEGASUS_ENTRY_H

#include "process.h"

/* Flags of pg_enter. */
#define ENTER_UNSAFE 1 /* might disturb a capture, or wait for what it holds back */

/* Streams that capture, and what that forbids the calling thread: see capture.h. */
extern _Atomic uint32_t captures_running;
CUresult capture_forbids(void);

/* STREAM_CAPTURE_UNSUPPORTED, and the capture is invalid, where the modes of a capture and of the calling thread forbid unsafe calls. */
static inline CUresult capture_permits(void) { return LIKELY(captures_running == 0) ? CUDA_SUCCESS : capture_forbids(); }

/*
 * Success, or what the caller of any API function gets: not initialised, poisoned, worker gone, or
 * called from a host callback, where a call that waits would wait for ever.
 */
static inline CUresult pg_enter(int flags)
{
	CUresult r = process_enter();
	if (UNLIKELY(thread.inCallback) && r == CUDA_SUCCESS)
		return CUDA_ERROR_NOT_PERMITTED;
	return (flags & ENTER_UNSAFE) && r == CUDA_SUCCESS ? capture_permits() : r;
}

/* Answers for a symbol that has no implementation; each is logged once by name. */
CUresult pg_unsupported(const char *symbol);

#endif
