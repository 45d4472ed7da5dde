/* Checks that the generated exports run before each call. */
#ifndef PEGASUS_API_ENTRY_H
#define PEGASUS_API_ENTRY_H

#include "core/process.h"
#include "graph/capture.h"

/* Flags of pg_enter. */
#define ENTER_UNSAFE 1 /* the call can disturb a capture, or wait for work that the capture holds back */

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
