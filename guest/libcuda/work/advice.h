/* The table of memory advice (cuMemAdvise, prefetch location): advice for each range of pages of managed memory. */
#ifndef PEGASUS_WORK_ADVICE_H
#define PEGASUS_WORK_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/device.h"

/* The zero value: no advice. */
struct advice {
	bool readMostly;
	CUmemLocation preferred, prefetched; /* of type 0: none */
	uint32_t accessedBy;                 /* a bit for each device, and HOST_BIT */
};
#define HOST_BIT (1u << DEVICES_MOST)

/* A part of one managed allocation, in whole pages. Allocations share no page. */
struct advice_part {
	uint64_t begin, end, allocation;
};

/* Sets *part to the pages of bytes at an address; fails unless they lie in one managed allocation. */
CUresult advice_part(CUdeviceptr address, size_t bytes, struct advice_part *part);
/* Applies a change to the advice of all pages of a part. */
CUresult advice_change(const struct advice_part *part, void (*how)(struct advice *, CUmemLocation), CUmemLocation where);
/* Returns the advice that all pages of a part have in common. */
struct advice advice_common(const struct advice_part *part);
/* Drops the advice of an allocation that is freed, so that the next allocation at its address starts without any. */
void advice_forget(uint64_t allocation);

#endif
