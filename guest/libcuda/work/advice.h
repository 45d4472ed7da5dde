/* Per-range memory advice (cuMemAdvise, prefetch location) of managed memory. */
#ifndef PEGASUS_ADVICE_H
#define PEGASUS_ADVICE_H

#include <stdint.h>

/* Drops the advice of an allocation that is freed, so that the next allocation at its address starts without any. */
void advice_forget(uint64_t allocation);

#endif
