/*
 * Device printf. The output of kernels stays on the host until the program synchronises with the context, as CUDA
 * specifies; then it is written to the program's stdout or stderr.
 */
#ifndef PEGASUS_CORE_DEVICE_PRINTF_H
#define PEGASUS_CORE_DEVICE_PRINTF_H

#include "core/process.h"

/* Fetches and prints the pending output of a context, given by its wire id. */
void text_fetch(uint32_t context);
/*
 * As text_fetch after all work of a context has ended, before the context is destroyed. The caller holds no lock that
 * others need.
 */
void text_show_last(uint32_t context);

/*
 * Context with output that a thread is printing, or 0; a thread that synchronises with the context waits for that output.
 */
extern _Atomic uint32_t textUnderWay;

/* The order of the loads matters: a thread that has taken the output sets textUnderWay first. */
static inline bool text_waits(uint32_t context)
{
	return UNLIKELY(atomic_load_explicit(&process.header->contextText[context], memory_order_acquire) != 0 ||
		atomic_load_explicit(&textUnderWay, memory_order_acquire) == context);
}

static inline void text_show(uint32_t context)
{
	if (text_waits(context))
		text_fetch(context);
}

/* End of a call that synchronises: prints output and returns r. */
static inline CUresult text_shown(uint32_t context, CUresult r)
{
	text_show(context);
	return r;
}

#endif
