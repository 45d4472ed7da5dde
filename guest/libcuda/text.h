/*
 * What kernels print. It waits on the host until the program synchronises with
 * the context, as CUDA says; then it goes to the program's own stdout or stderr.
 */
#ifndef PEGASUS_TEXT_H
#define PEGASUS_TEXT_H

#include "process.h"

/* Fetches and prints what a context, by its id on the wire, has to say by now. */
void text_fetch(uint32_t context);
/* The same when all its work has ended: it is about to go. The caller has no lock that others need. */
void text_show_last(uint32_t context);

/* The context whose text a thread prints now, or 0: who synchronises with it meanwhile waits for that. */
extern _Atomic uint32_t textUnderWay;

/* In this order: a thread that has taken the text says so first. */
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

/* For the end of a call that synchronises. */
static inline CUresult text_shown(uint32_t context, CUresult r)
{
	text_show(context);
	return r;
}

#endif
