/* What the generated exports call before anything else. */
#ifndef PEGASUS_ENTRY_H
#define PEGASUS_ENTRY_H

#include "process.h"

/* Flags of pg_enter. */
#define ENTER_UNSAFE 1 /* might disturb a capture, or wait for what it holds back */

/* Streams that capture, and what that forbids the calling thread: see capture.h. */
extern _Atomic uint32_t captures_running;
CUresult capture_permits(void);

/*
 * Success, or what the caller of any API function gets: not initialised, poisoned, worker gone, or
 * called from a host callback, where a call that waits would wait for ever.
 */
static inline CUresult pg_enter(int flags)
{
	CUresult r = process_enter();
	if (UNLIKELY(thread.inCallback) && r == CUDA_SUCCESS)
		return CUDA_ERROR_NOT_PERMITTED;
	if ((flags & ENTER_UNSAFE) && UNLIKELY(captures_running != 0) && r == CUDA_SUCCESS)
		return capture_permits();
	return r;
}

/* Answers for a symbol that has no implementation; each is logged once by name. */
CUresult pg_unsupported(const char *symbol);

#endif
