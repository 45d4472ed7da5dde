/* What the generated exports call before anything else. */
#ifndef PEGASUS_ENTRY_H
#define PEGASUS_ENTRY_H

#include "process.h"

/*
 * Success, or what the caller of any API function gets: not initialised, poisoned, worker gone, or
 * called from a host callback, where a call that waits would wait for ever. flags: none yet.
 */
static inline CUresult pg_enter(int flags)
{
	(void)flags;
	CUresult r = process_enter();
	return UNLIKELY(thread.inCallback) && r == CUDA_SUCCESS ? CUDA_ERROR_NOT_PERMITTED : r;
}

/* Answers for a symbol that has no implementation; each is logged once by name. */
CUresult pg_unsupported(const char *symbol);

#endif
